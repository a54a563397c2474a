"""TorchRec's table of statistics, written from a plan's columns.

TorchRec's own functions write it, but for those that go over all shards of a plan in Python. These
are told apart by name and given here for columns: their sums are added in TorchRec's order, so that
the text is TorchRec's to the last digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.constants import BIGINT_DTYPE, POOLING_FACTOR
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import (
    CriticalPathEstimate,
    Perf,
    ShardingOption,
    Storage,
    Topology,
)

from fastplan.bridge import hooks
from fastplan.bridge.placed import PlacedShards
from fastplan.bridge.space import ChosenOptions, EstimatedSpace
from fastplan.bridge.stock import is_stock, replaced_in
from fastplan.spec.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES

_STOCK_LOG = EmbeddingStats.log
_OWN_ATTRIBUTES = {"_width", "_stats_table"}
_CLASSES = (EmbeddingStats, EmbeddingStorageEstimator, ShardingOption, Storage, Perf)
_PROPERTIES = ((Perf, "total"), (ShardingOption, "total_storage"))
_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
_CUT_BY_COLUMNS = frozenset({"column_wise", "table_column_wise", "grid_shard"})
_GIB = 1024 * 1024 * 1024
_FEW_DIGITS = 1e11  # below, a double is written with the three decimals it was rounded to
_CUT_BY_ROWS = ("row_wise", "table_row_wise", "grid_shard")
# TorchRec asks a plan whether it has tables, and sums up the sizes of those it finds one by one.
_NO_TABLES = SimpleNamespace(plan={"": {}})


def can_write(stats: Any, best_plan: Any, known: dict[str, Any]) -> bool:
    """Whether the table of these statistics can be written from columns.

    That is so if the statistics are TorchRec's with all their functions, and if the plan consists
    of options that nobody has seen yet.
    """
    if not isinstance(best_plan, ChosenOptions) or not isinstance(best_plan.space, EstimatedSpace):
        return False
    estimators = best_plan.space.extraction.estimators
    return (
        type(stats) is EmbeddingStats
        and set(vars(stats)) == _OWN_ATTRIBUTES
        and EmbeddingStats.log is _STOCK_LOG
        and not any(replaced_in(kind) for kind in _CLASSES)
        and all(is_stock(getattr(vars(kind)[name], "fget", None)) for kind, name in _PROPERTIES)
        and type(known["topology"]) is Topology
        and bool(known["sharding_plan"].plan)
        and estimators.has_perf
        and estimators.has_storage
    )


def write(stats: Any, best_plan: ChosenOptions, arguments: dict[str, Any]) -> None:
    """Lets the statistics log what they would log with the options of `best_plan`."""
    writer: Any = _Writer.__new__(_Writer)
    writer.__dict__ = stats.__dict__  # width and table are the stock object's own
    writer.planned = _Planned(best_plan, arguments)
    arguments = {**arguments, "sharding_plan": _NO_TABLES, "best_plan": writer.planned.options}
    writer.with_columns(_STOCK_LOG)(**arguments)


class _Option:
    """What TorchRec's functions for statistics read of a chosen option."""

    __slots__ = (
        "compute_kernel",
        "fqn",
        "input_lengths",
        "module",
        "name",
        "number",
        "placed",
        "sharding_type",
        "tensor",
        "total_storage",
    )
    num_poolings = None  # TorchRec's enumerator sets none

    compute_kernel: str
    fqn: str
    input_lengths: list[float]
    module: tuple[str, Any]
    name: str
    number: int  # in the plan
    placed: PlacedShards
    sharding_type: str
    tensor: Any
    total_storage: Storage

    @property
    def shards(self) -> list[Any]:
        return [
            SimpleNamespace(rank=rank, storage=Storage(*storage))
            for rank, *storage in self.placed.shards_of(self.number)
        ]


class _Planned:
    """The options of a plan, and what statistics tell about them all."""

    def __init__(self, best_plan: ChosenOptions, arguments: dict[str, Any]) -> None:
        space: Any = best_plan.space
        numbers = np.asarray(best_plan.options)
        self.topology = arguments["topology"]
        self.constraints = arguments["constraints"] or {}
        self.placed = PlacedShards(space.columns, numbers, np.asarray(best_plan.ranks))
        self.tables = space.table_of_option[numbers].tolist()
        self.facts, self.origins = space.request.tables, space.origins
        self.is_priced = space.extraction.estimators.pricing is not None
        self.batch_size = space.extraction.batch_size
        self.types = space.columns.option_type[numbers]
        self.options = self._options(space.columns.option_kernel[numbers].tolist())
        self.poolings = [
            torchrec_stats.get_num_poolings(self.constraints, option) for option in self.options
        ]
        rules = [self.constraints.get(option.name) for option in self.options]
        self.batch_sizes = [rule.batch_sizes if rule else None for rule in rules]

    def _options(self, kernels: list[int]) -> list[_Option]:
        storages = zip(*self.placed.storage_of_options(), strict=True)
        types = self.types.tolist()
        made = []
        for number, (table, storage) in enumerate(zip(self.tables, storages, strict=True)):
            origin = self.origins[table]
            option = _Option()
            option.number, option.placed = number, self.placed
            option.name, option.fqn = origin.name, f"{origin.path}.{origin.name}"
            option.module, option.tensor = (origin.path, origin.module), origin.parameter
            option.sharding_type = SHARDING_TYPES[types[number]]
            option.compute_kernel = KERNELS[kernels[number]]
            option.total_storage = Storage(*storage)
            rule = origin.constraint
            option.input_lengths = rule.pooling_factors if rule else [POOLING_FACTOR]
            made.append(option)
        return made

    def io_megabytes(self) -> tuple[Any, Any]:
        """Input and output of each rank in one iteration, by TorchRec's formulas for a shard."""
        inputs, pooled = [], []
        for option, poolings, given in zip(
            self.options, self.poolings, self.batch_sizes, strict=True
        ):
            lengths = option.input_lengths
            sizes = given or [self.batch_size] * len(lengths)
            each = [*zip(lengths, poolings, sizes, strict=False)]
            inputs.append(float(sum([x * y * z for x, y, z in each])))
            pooled.append(float(sum([min(1.0, x) * y * z for x, y, z in each])))
        world, local = self.topology.world_size, self.topology.intra_group_size
        divisor = np.array([1, 1, 1, world, local, 1, local])[self.types]
        factor = np.array([1, *[world] * (len(SHARDING_TYPES) - 1)])[self.types]
        lookups = np.array(inputs) / divisor
        is_pooled = np.array([bool(self.facts[table].pooled) for table in self.tables])
        outputs = np.where(is_pooled, np.array(pooled), lookups)
        width = np.array([option.tensor.element_size() for option in self.options])
        placed, of = self.placed, self.placed.option_of_run
        received = np.ceil(lookups * factor * BIGINT_DTYPE)[of]
        sent = np.ceil((outputs * factor)[of] * placed.run_cols * width[of])
        by_rows = np.isin(self.types, [SHARDING_TYPES.index(kind) for kind in _CUT_BY_ROWS])
        is_empty = by_rows[of] & (placed.run_rows * placed.run_cols == 0)
        received[is_empty] = sent[is_empty] = 0
        mib = 1024 * 1024
        return placed.by_rank(received / mib, self.world), placed.by_rank(sent / mib, self.world)

    @property
    def world(self) -> int:
        return int(self.topology.world_size)

    def shard_counts(self) -> Iterator[tuple[str, list[int]]]:
        """The short name of each sharding type in use, and how many shards the ranks have of it."""
        for kind in np.unique(self.types).tolist():
            counts = self.placed.count_by_rank(self.types == kind, self.world)
            yield torchrec_stats._get_sharding_type_abbr(SHARDING_TYPES[kind]), counts.tolist()

    def usage(
        self, topology: Any, best_plan: Any, dense_storage: Storage, kjt_storage: Storage
    ) -> tuple[list[int], list[int], list[int], list[Perf]]:
        """For TorchRec's _compute_mem_usage_and_perf."""
        placed = self.placed
        sparse, ddr = placed.storage_by_rank(self.world)
        used_hbm = [hbm + dense_storage.hbm + kjt_storage.hbm for hbm in sparse]
        used_ddr = [each + dense_storage.ddr + kjt_storage.ddr for each in ddr]
        # A sum of nothing is a whole number, and so is the one of data-parallel tables' comms.
        shards = placed.count_by_rank(None, self.world).tolist()
        silent = self.types == SHARDING_TYPES.index("data_parallel")
        talking = placed.count_by_rank(None if self.is_priced else ~silent, self.world).tolist()
        perf = []
        values = zip(*(each.tolist() for each in placed.perf_by_rank(self.world)), strict=True)
        for rank, (fwd, comms, bwd, bwd_comms, *more) in enumerate(values):
            if not shards[rank]:
                perf.append(Perf(0, 0, 0, 0))
            else:
                perf.append(Perf(fwd, comms if talking[rank] else 0, bwd, bwd_comms, *more))
        return sparse, used_hbm, used_ddr, perf

    def critical_path(self, best_plan: Any) -> CriticalPathEstimate:
        """For TorchRec's _calculate_critical_path."""
        groups: dict[tuple[Any, str], int] = {}
        group = [
            groups.setdefault((option.module, option.sharding_type), len(groups))
            for option in self.options
        ]
        fwd, bwd = self.placed.largest_comms(np.array(group), self.world)
        comms = sum(value for pair in zip(fwd, bwd, strict=True) for value in pair)
        return CriticalPathEstimate(comms, sum(self.placed.largest_compute(self.world)))

    def imbalanced(self, best_plan: Any, target_imbalance: str = "perf") -> list[_Option]:
        """For TorchRec's _find_imbalance_tables."""
        movable = ~np.isin(self.types, [SHARDING_TYPES.index(kind) for kind in UNIFORM_TYPES])
        found = self.placed.on_fullest_ranks(movable, self.world, by_hbm=target_imbalance == "hbm")
        return [self.options[number] for number in found]


class _Writer(EmbeddingStats):
    """TorchRec's statistics, with functions for columns where theirs go over all shards."""

    __slots__ = ("planned",)

    planned: _Planned

    def with_columns(self, function: Any) -> Callable[..., Any]:
        """A method of TorchRec's that calls functions for columns; its module stays as it is."""
        planned = self.planned
        known = {
            "_compute_mem_usage_and_perf": planned.usage,
            "_calculate_critical_path": planned.critical_path,
            "_find_imbalance_tables": planned.imbalanced,
        }
        if hooks.does_nothing(torchrec_stats.EventLoggingHandler.log_event):
            known["_observability_log_storage_and_perf"] = _tell_nobody
        code, names = function.__code__, {**function.__globals__, **known}
        made = FunctionType(code, names, None, function.__defaults__, function.__closure__)
        return partial(made, self)

    def _log_max_perf_and_max_hbm(self, *args: Any, **kwargs: Any) -> None:
        self.with_columns(EmbeddingStats._log_max_perf_and_max_hbm)(*args, **kwargs)

    def _log_imbalance_tables(self, *args: Any, **kwargs: Any) -> None:
        self.with_columns(EmbeddingStats._log_imbalance_tables)(*args, **kwargs)

    def _log_rank_mem_usage_and_perf(self, **kwargs: Any) -> list[str]:
        stats, used = kwargs["stats"], kwargs["used_sharding_types"]
        for name, counts in self.planned.shard_counts():
            used.add(name)
            for rank, count in enumerate(counts):
                stats[rank]["type"][name] = count
        for name, sizes in zip(
            ("input_sizes", "output_sizes"), self.planned.io_megabytes(), strict=True
        ):
            for rank, size in enumerate(sizes.tolist()):
                stats[rank][name] = size
        lines: list[str] = super()._log_rank_mem_usage_and_perf(**kwargs)
        return lines

    def _log_sharding_plan(
        self,
        best_plan: Any,
        sharding_plan: Any,
        constraints: Any = None,
        sharder_data_map: Any = None,
    ) -> list[str]:
        # The columns are three blanks apart.
        heads = [
            re.split(" {3,}", line.strip())
            for line in super()._log_sharding_plan([], sharding_plan, constraints, sharder_data_map)
        ]
        rows = [*_parameter_rows(self.planned, sharder_data_map or {})]
        batches = self.planned.batch_sizes
        if any(batches):
            heads[0].append("Batch Sizes")
            heads[1].append("-------------")
            for row, sizes in zip(rows, batches, strict=True):
                row.append(torchrec_stats._reduce_int_list(sizes) if sizes else "n/a")
        lines = _aligned(heads + rows)
        own: dict[str, Any] = self.__dict__
        own["_width"] = max(own["_width"], len(lines[0]) + 6)
        return lines


def _tell_nobody(**event: Any) -> None:
    pass


def _parameter_rows(planned: _Planned, sharder_data: dict[str, Any]) -> Iterator[list[str]]:
    placed = planned.placed
    perfs = zip(*(each.tolist() for each in placed.perf_of_options()), strict=True)
    first_cols = placed.first_cols().tolist()
    first = [*pairwise([*placed.first_shard.tolist(), len(placed.rank)])]
    ranks = placed.rank.tolist()
    abbreviations = {
        kind: torchrec_stats._get_sharding_type_abbr(kind)
        for kind in {option.sharding_type for option in planned.options}
    }
    for number, (option, perf, poolings) in enumerate(
        zip(planned.options, perfs, planned.poolings, strict=True)
    ):
        facts = planned.facts[planned.tables[number]]
        origin = planned.origins[planned.tables[number]]
        kind, kernel, lengths = option.sharding_type, option.compute_kernel, option.input_lengths
        data = sharder_data.get(origin.holder.key)
        hash_size, dim = option.tensor.shape[:2]
        start, end = first[number]
        yield [
            option.fqn,
            abbreviations[kind],
            kernel,
            _perf_text(perf),
            _storage_text(option.total_storage),
            _load_factor(origin.constraint, data) if kernel == _CACHED else "None",
            _rounded(sum(lengths)),
            _rounded(sum(poolings)),
            _rounded(sum([x * y for x, y in zip(lengths, poolings, strict=False)])),
            "pooled" if facts.pooled else "sequence",
            "weighted" if facts.weighted else "unweighted",
            f"{type(origin.module).__name__}Sharder" if data else "NoneType",
            str(len(lengths)),
            f"{dim} ({first_cols[number]})" if kind in _CUT_BY_COLUMNS else str(dim),
            str(hash_size),
            _rank_text(ranks[start:end]),
        ]


def _load_factor(rule: Any, data: Any) -> str:
    cache = rule.cache_params if rule else None
    if cache is not None and cache.load_factor is not None:
        return str(cache.load_factor)
    return str(data.fused_params.get("cache_load_factor") if data else None)


def _perf_text(perf: tuple[float, ...]) -> str:
    """TorchRec's _format_perf_breakdown, of the columns of a Perf."""
    fwd, comms, bwd, bwd_comms, _, prefetch = perf
    total = _rounded(fwd + bwd + comms + bwd_comms + prefetch)
    # TorchRec rounds small numbers to one digit, too, but reads and writes them once more.
    parts = [
        f"{part:.1g}" if 0 <= part < 1 else _large_part(part)
        for part in (fwd, comms, bwd, bwd_comms, prefetch)
    ]
    return f"{total} ({','.join(parts)})"


def _large_part(number: float) -> str:
    return str(round(number)) if number >= 1 else torchrec_stats.round_to_one_sigfig(number)


def _storage_text(storage: Storage) -> str:
    """TorchRec's _format_storage_breakdown."""
    hbm, ddr, ssd = (
        _rounded(size / _GIB) if size else "0.0" for size in (storage.hbm, storage.ddr, storage.ssd)
    )
    return f"({hbm} GB, {ddr} GB, {ssd} GB)"


def _rounded(number: float) -> str:
    """`str(round(number, 3))`, which takes twice as long."""
    if type(number) is not float or not 0 <= number < _FEW_DIGITS:
        return str(round(number, 3))
    text = f"{number:.3f}".rstrip("0")
    return f"{text}0" if text[-1] == "." else text


def _rank_text(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return str(ranks[0])
    return ",".join(torchrec_stats._collapse_consecutive_ranks(sorted(ranks)))


def _aligned(table: list[list[str]]) -> list[str]:
    """TorchRec's _format_table, of texts."""
    widths = [max(map(len, column)) + 3 for column in zip(*table, strict=True)]
    row = "".join(f"{{:>{width}}}" for width in widths)
    return [row.format(*cells) for cells in table]
