"""Builds TorchRec's ShardingOption objects from a search space's columns."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from torchrec.distributed.planner.constants import POOLING_FACTOR
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from fastplan.engine.problem import SearchSpace
from fastplan.model.request import Table
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.torchrec import compat
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.differences.estimates import perf_estimators
from fastplan.torchrec.differences.option_arguments import option_arguments
from fastplan.torchrec.read.costs import stock_estimator
from fastplan.torchrec.read.extract import Extraction, TableSource
from fastplan.torchrec.support.watch import is_stock

# All shards of an option have one list as their size in TorchRec, which other code may change; all
# data-parallel ones have one offset, too.
_SHARED_SIZES = frozenset({"data_parallel", "column_wise", "table_column_wise"})


class OptionBuilder:
    """Creates options as TorchRec's enumerator does, with stock estimates."""

    def __init__(
        self,
        enumerator: Any,
        space: SearchSpace,
        tables: tuple[Table, ...],
        origins: tuple[TableSource, ...],
        extraction: Extraction,
    ) -> None:
        estimators = extraction.estimators
        self._enumerator = enumerator
        self._has_perf = estimators.has_perf
        self._has_storage = estimators.has_storage
        self._is_priced = estimators.pricing is not None
        self._batch_size = extraction.batch_size
        self._space = space
        self._tables = tables
        self._origins = origins
        self._numpy_parts: dict[Any, dict[str, type]] = {}

    def all(self) -> list[ShardingOption]:
        """Returns every option of the search space, in order."""
        lists: dict[int, Any] = {}
        return [
            option
            for table in range(self._space.tables)
            for option in self.of_table(
                table,
                range(
                    int(self._space.table_option_begin[table]),
                    int(self._space.table_option_begin[table + 1]),
                ),
                lists,
            )
        ]

    def of_table(self, table: int, numbers: Any, lists: dict[int, Any]) -> list[ShardingOption]:
        """Returns some options of one table. They share the same objects as TorchRec's options.

        `lists` are the copies of lists of constraints, by the ids of these: whoever gets the
        options may change a list, which later options must not show.
        """
        shared = self._shared_arguments(table, lists)
        options = [self._option(table, number, shared) for number in numbers]
        factors = self._factors(table, shared) if self._has_perf else []
        if any(isinstance(factor, np.generic) for factor in factors):
            # `min(1, factor)` is the 1 or the factor.
            kinds = tuple((type(factor), bool(factor < 1)) for factor in factors)
            for option in options:
                self._use_numpy_floats(option, kinds)
        return options

    def _factors(self, table: int, shared: dict[str, Any]) -> list[Any]:
        """Returns the numbers that TorchRec's costs of a table are products of."""
        rule = self._origins[table].constraint
        factors = [*shared["input_lengths"], self._batch_size]
        if rule is not None:
            factors += [*(rule.num_poolings or ()), *(rule.batch_sizes or ())]
        return factors

    def _use_numpy_floats(self, option: ShardingOption, kinds: tuple[Any, ...]) -> None:
        """Converts costs to numpy's floats if TorchRec's are, because messages show the type."""
        of_option = (option.sharding_type, option.compute_kernel, option.is_pooled)
        key = (*of_option, option.is_weighted, option.cache_params is not None, kinds)
        if key not in self._numpy_parts:
            self._numpy_parts[key] = self._numpy_parts_of(option)
        for name, kind in self._numpy_parts[key].items():
            for shard in option.shards:
                setattr(shard.perf, name, kind(getattr(shard.perf, name)))

    def _numpy_parts_of(self, option: ShardingOption) -> dict[str, type]:
        """Returns the numpy types of parts of a cost: TorchRec estimates the first shard again."""
        data = getattr(self._enumerator, "_sharder_data_map", None)  # new in 1.7
        if data is None:
            return {}
        first = copy_option(option, {})
        first.shards = first.shards[:1]
        try:
            for estimator in filter(None, map(stock_estimator, self._enumerator._estimators)):
                if isinstance(estimator, perf_estimators.EmbeddingPerfEstimator):
                    # The object's own method may be the core's for now.
                    estimate = inspect.unwrap(perf_estimators.EmbeddingPerfEstimator.estimate)
                    estimate(estimator, [first], sharder_data_map=data)
        except Exception:
            return {}  # their inputs have changed since the plan
        parts = vars(first.shards[0].perf).items()
        return {name: type(part) for name, part in parts if isinstance(part, np.generic)}

    def _shared_arguments(self, table: int, lists: dict[int, Any]) -> dict[str, Any]:
        origin, facts = self._origins[table], self._tables[table]
        rule = origin.constraint
        arguments: dict[str, Any] = {
            "name": origin.name,
            "tensor": origin.parameter,
            "module": (origin.path, origin.module),
            "input_lengths": _copied(rule.pooling_factors, lists) if rule else [POOLING_FACTOR],
            "batch_size": self._batch_size,
            "dependency": facts.tower,
            "is_pooled": facts.pooled,
        }
        if rule:
            arguments |= {
                "cache_params": compat.copy_params(rule.cache_params),
                "enforce_hbm": rule.enforce_hbm,
                "stochastic_rounding": rule.stochastic_rounding,
                "bounds_check_mode": rule.bounds_check_mode,
                "feature_names": _copied(rule.feature_names, lists),
                "output_dtype": rule.output_dtype,
                "key_value_params": compat.copy_params(rule.key_value_params),
            }
        return option_arguments(arguments, self._enumerator, origin.module)

    def _option(self, table: int, number: int, shared: dict[str, Any]) -> ShardingOption:
        sharding_type = SHARDING_TYPES[self._space.option_type[number]]
        option = ShardingOption(
            sharding_type=sharding_type,
            compute_kernel=KERNELS[self._space.option_kernel[number]],
            partition_by=get_partition_by_type(sharding_type),
            shards=self._shards(table, number, sharding_type),
            **shared,
        )
        if self._has_perf:
            # TorchRec's perf estimator also sets a field of the option.
            option.is_weighted = self._tables[table].weighted
        return option

    def _shards(self, table: int, number: int, sharding_type: str) -> list[Shard]:
        space = self._space
        runs = range(int(space.option_run_begin[number]), int(space.option_run_begin[number + 1]))
        sizes = [
            (int(space.run_rows[run]), int(space.run_cols[run]))
            for run in runs
            for _ in range(space.run_count[run])
        ]
        offsets = iter(shard_offsets(sharding_type, sizes, self._tables[table].dim))
        origin = [0, 0] if sharding_type == "data_parallel" else None
        # TorchRec has a whole number here, which error messages show.
        no_comms = sharding_type == "data_parallel" and not self._is_priced
        shards = []
        for run in runs:
            perf = (
                float(space.run_fwd_compute[run]),
                0 if no_comms else float(space.run_fwd_comms[run]),
                float(space.run_bwd_compute[run]),
                float(space.run_bwd_comms[run]),
                float(space.run_input_dist_comms[run]),
                float(space.run_prefetch_compute[run]),
            )
            storage = (int(space.run_hbm[run]), int(space.run_ddr[run]), int(space.run_ssd[run]))
            size = [int(space.run_rows[run]), int(space.run_cols[run])]
            for _ in range(space.run_count[run]):
                offset = next(offsets)
                shards.append(
                    Shard(
                        size=size if sharding_type in _SHARED_SIZES else size.copy(),
                        offset=offset if origin is None else origin,
                        storage=storage_tiers.storage(*storage) if self._has_storage else None,
                        perf=Perf(*perf) if self._has_perf else None,
                    )
                )
        return shards


def _copied(values: Any, lists: dict[int, Any]) -> Any:
    if id(values) not in lists:
        lists[id(values)] = values.copy() if type(values) is list else copy.copy(values)
    return lists[id(values)]


def shard_offsets(sharding_type: str, sizes: list[tuple[int, int]], dim: int) -> list[list[int]]:
    """Returns the start of each shard, given the sizes in order."""
    if sharding_type in ("data_parallel", "table_wise"):
        return [[0, 0] for _ in sizes]
    if sharding_type in ("column_wise", "table_column_wise"):
        return [[0, i * cols] for i, (_, cols) in enumerate(sizes)]
    columns = dim // sizes[0][1] if sharding_type == "grid_shard" else 1
    per_column = len(sizes) // columns
    offsets = []
    row = 0
    for i, (rows, cols) in enumerate(sizes):
        if i % per_column == 0:
            row = 0
        offsets.append([row, i // per_column * cols])
        row += rows
    return offsets


def copy_options(options: Sequence[ShardingOption]) -> list[ShardingOption]:
    """Returns what copy.deepcopy() returns for a list of options, in less time.

    Objects that options share are shared by their copies, too.
    """
    if not is_stock(ShardingOption.__deepcopy__):
        return copy.deepcopy(list(options))
    memo: dict[int, Any] = {}
    with compat.paused():
        return [memo.get(id(option)) or copy_option(option, memo) for option in options]


def copy_option(option: Any, memo: dict[int, Any]) -> Any:
    """Returns what copy.deepcopy() returns for an option and a memo."""
    if type(option) is not ShardingOption:
        return copy.deepcopy(option, memo)
    copied = _new(ShardingOption)
    own = copied.__dict__
    for name, value in vars(option).items():
        # TorchRec's copies share the tensor and the module.
        if type(value) in compat.IMMUTABLE or name in ("_tensor", "_module"):
            own[name] = value
        elif name == "shards" and type(value) is list and id(value) not in memo:
            shards = memo[id(value)] = []
            for shard in value:
                shards.append(memo.get(id(shard)) or _copied_shard(shard, memo))
            own[name] = shards
        else:
            known = memo.get(id(value))
            own[name] = _copied_values(value, memo) if known is None else known
    memo[id(option)] = copied
    return copied


def _copied_shard(shard: Any, memo: dict[int, Any]) -> Any:
    if type(shard) is not Shard:
        return copy.deepcopy(shard, memo)
    copied = memo[id(shard)] = _new(Shard)
    own = copied.__dict__
    for name, value in vars(shard).items():
        if value is None or type(value) is int:
            own[name] = value
        else:
            known = memo.get(id(value))
            own[name] = _copied_values(value, memo) if known is None else known
    return copied


def _copied_values(value: Any, memo: dict[int, Any]) -> Any:
    """Copies sizes, offsets and estimates, which hold nothing but numbers."""
    kind = type(value)
    copied: Any
    if kind is list:
        if not compat.IMMUTABLE.issuperset(map(type, value)):
            return copy.deepcopy(value, memo)
        copied = value.copy()
    elif kind is Storage or kind is Perf:
        held = vars(value)
        if not compat.IMMUTABLE.issuperset(map(type, held.values())):
            return copy.deepcopy(value, memo)
        copied = _new(kind)
        copied.__dict__.update(held)
    else:
        return copy.deepcopy(value, memo)
    memo[id(value)] = copied
    return copied


_new = object.__new__
