"""TorchRec's estimates of options that other code has made or changed, from the core.

An enumerator may list options itself, cut them into its own shards, or give them other caches. All
that TorchRec's estimators read of an option is read here, so its estimates don't depend on who made
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchrec.distributed.planner.constants import UVM_CACHING_RATIO
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption

from fastplan.engine.solve import GivenShards, estimate_shards
from fastplan.model.request import Coefficients, MenuItem, Request, Table
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.differences.estimates import extract_comm_data_type_size
from fastplan.torchrec.read.costs import Estimators
from fastplan.torchrec.read.modules import (
    Cache,
    SharderNumbers,
    batch_counts,
    key_value_bytes,
    optimizer_multiplier,
    output_size,
    read_cache,
    tensor_bytes,
)

# The core needs a menu also if it estimates storage only.
_NO_COEFFICIENTS = Coefficients((0.0, 0.0, 0.0, 0.0), None)


class OptionEstimates:
    """One call of TorchRec's perf or storage estimator.

    Args:
        estimator: the estimator, of TorchRec's own class.
        sharder_data: TorchRec's data of each sharder.

    Raises:
        NotNative: a part of the estimator is custom.
    """

    def __init__(self, estimator: Any, sharder_data: dict[str, Any]) -> None:
        # No part of the layout is read: the shards are given.
        layout = {"_world_size": 1, "_local_world_size": 1, "_device_memory_sizes": None}
        self._estimators = Estimators(SimpleNamespace(_estimators=[estimator], **layout))
        self._has_perf = self._estimators.has_perf
        self._rules = estimator._constraints or {}
        self._sharder_data = sharder_data
        self._sharders: dict[str, SharderNumbers] = {}
        self._numbers: dict[tuple[Any, ...], tuple[int, Cache]] = {}
        self._tables: list[Table] = []
        self._items: dict[tuple[Any, ...], int] = {}
        self._menu: list[MenuItem] = []

    def estimate(self, options: Sequence[ShardingOption]) -> list[ShardingOption]:
        """Sets the estimates of all options that plain data can hold; returns the others.

        Raises:
            NotNative, OutOfRange: none of the options was changed.
        """
        read, rest = [], []
        for option in options:
            try:
                read.append((option, *self._read(option)))
            except NotNative:
                rest.append(option)
        if not read:
            return rest
        sizes = [shard.size for option, _, _ in read for shard in option.shards]
        begin = [0]
        for option, _, _ in read:
            begin.append(begin[-1] + len(option.shards))
        columns = estimate_shards(
            self._request({option.sharding_type for option, _, _ in read}),
            GivenShards(
                option_table=[table for _, table, _ in read],
                option_item=[item for _, _, item in read],
                option_begin=begin,
                rows=[rows for rows, _ in sizes],
                cols=[cols for _, cols in sizes],
                perf=self._has_perf,
                storage=not self._has_perf,
            ),
        )
        chosen = [option for option, _, _ in read]
        if self._has_perf:
            self._set_perf(chosen, columns)
        else:
            _set_storage(chosen, columns)
        return rest

    def _request(self, types: set[str]) -> Request:
        coefficients = self._estimators.coefficients if self._has_perf else (_NO_COEFFICIENTS,)
        return Request(
            tables=tuple(self._tables),
            menus=(tuple(self._menu),),
            coefficients=coefficients,
            cost=self._estimators.cost_model(types if self._has_perf else ()),
        )

    def _read(self, option: ShardingOption) -> tuple[int, int]:
        """Returns the numbers of the option's table and menu item. Raises NotNative."""
        if type(option) is not ShardingOption:
            raise NotNative(f"{type(option).__name__} is not TorchRec's ShardingOption")
        kind, kernel = option.sharding_type, option.compute_kernel
        if kind not in SHARDING_TYPE_INDEX or kernel not in KERNEL_INDEX:
            raise NotNative(f"({kind}, {kernel}) is unknown")
        shards = option.shards
        if kind == "table_wise" and len(shards) != 1:
            raise NotNative(f"table {option.name} is table-wise with {len(shards)} shards")
        for shard in shards:
            if type(shard) is not Shard or list(map(type, shard.size)) != [int, int]:
                raise NotNative(f"table {option.name} has a shard that is not rows x columns")
        poolings = getattr(option, "num_poolings", None)
        key = (
            option.name,
            option.module_type_key,
            id(option.tensor),
            tuple(option.input_lengths),
            option.batch_size,
            id(option.cache_params),
            id(option.key_value_params),
            option.output_dtype,
            option.is_pooled,
            option.is_weighted,
            option.has_feature_processor,
            None if poolings is None else tuple(poolings),
        )
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = self._add_table(option)
        table, cache = known
        return table, self._item(kind, kernel, cache)

    def _item(self, kind: str, kernel: str, cache: Cache) -> int:
        key = (kind, kernel, cache.ratio, cache.prefetches)
        known = self._items.get(key)
        if known is None:
            bandwidth, row = 1.0, 0
            if self._has_perf:
                bandwidth = self._estimators.bandwidth(kernel, cache.ratio, cache.prefetches)
                row = self._estimators.coefficients_of(kind, kernel)
            known = self._items[key] = len(self._menu)
            self._menu.append(MenuItem(kind, kernel, bandwidth, row))
        return known

    def _add_table(self, option: ShardingOption) -> tuple[int, Cache]:
        name, tensor = option.name, option.tensor
        sharder = self._sharder(option.module_type_key)
        cache = read_cache(option.cache_params, sharder)
        rule = self._rules.get(name)
        if len(tensor.shape) != 2:
            raise NotNative(f"table {name} does not have two dimensions")
        rows, dim = tensor.shape
        element_size = tensor.element_size()
        batch = batch_counts(
            option.input_lengths,
            self._poolings(option, rule),
            rule.batch_sizes if rule else None,
            option.batch_size,
            name,
        )
        wire: tuple[float, float, float, float]
        wire = extract_comm_data_type_size(option, sharder.data)
        self._tables.append(
            Table(
                name,
                option.path,
                rows,
                dim,
                element_size,
                tensor_bytes(tensor, rows * dim * element_size),
                0,
                *batch,
                *batch,
                option.is_pooled,
                bool(self._weighted(option)),
                sharder.usage,
                bool(rule and rule.use_virtual_table),
                output_size(option, element_size),
                *wire,
                0,
                0,
                cache.prefetch_passes,
                optimizer_multiplier(tensor),
                cache.ratio or UVM_CACHING_RATIO,
                sharder.kv_load_factor,
                key_value_bytes(option, rule),
                cache.lookups,
                cache.miss_rate,
                None,
            )
        )
        return len(self._tables) - 1, cache

    def _sharder(self, key: str) -> SharderNumbers:
        known = self._sharders.get(key)
        if known is None:
            if key not in self._sharder_data:
                raise NotNative(f"no sharder has data of {key}")
            known = self._sharders[key] = SharderNumbers(self._sharder_data[key])
        return known

    def _poolings(self, option: ShardingOption, rule: Any) -> Any:
        """Returns the numbers of poolings: the option's own come first if they are complete."""
        own = getattr(option, "num_poolings", None)
        if own is not None and len(own) == len(option.input_lengths):
            return own
        return rule.num_poolings if rule else None

    def _weighted(self, option: ShardingOption) -> Any:
        weighted = option.is_weighted
        if weighted is None:
            rule = self._rules.get(option.name)
            weighted = (rule.is_weighted if rule else False) or False
        return weighted or option.has_feature_processor

    def _set_perf(self, options: list[ShardingOption], columns: Any) -> None:
        rows = zip(
            columns["run_fwd_compute"].tolist(),
            columns["run_fwd_comms"].tolist(),
            columns["run_bwd_compute"].tolist(),
            columns["run_bwd_comms"].tolist(),
            columns["run_input_dist_comms"].tolist(),
            columns["run_prefetch_compute"].tolist(),
            strict=True,
        )
        for option in options:
            # TorchRec has a whole number here, which error messages show.
            no_comms = option.sharding_type == "data_parallel"
            if option.shards:
                option.is_weighted = self._weighted(option)
            for shard in option.shards:
                fwd, fwd_comms, *more = next(rows)
                shard.perf = Perf(fwd, 0 if no_comms else fwd_comms, *more)


def _set_storage(options: list[ShardingOption], columns: Any) -> None:
    rows = zip(
        columns["run_hbm"].tolist(),
        columns["run_ddr"].tolist(),
        columns["run_ssd"].tolist(),
        strict=True,
    )
    for option in options:
        for shard in option.shards:
            shard.storage = storage_tiers.storage(*next(rows))
