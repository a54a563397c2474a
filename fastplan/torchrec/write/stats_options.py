"""The options of a plan for TorchRec's statistics, and sums over all options.

This has TorchRec's functions over all shards, for columns. They add in TorchRec's order, so that
the numbers equal TorchRec's to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.constants import BIGINT_DTYPE, POOLING_FACTOR
from torchrec.distributed.planner.types import CriticalPathEstimate, Perf, Storage

from fastplan.engine.layout import chosen_runs
from fastplan.engine.problem import SearchSpace
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.read.space import ChosenOptions

_CUT_BY_ROWS = ("row_wise", "table_row_wise", "grid_shard")


class Option:
    """The fields of a chosen option that TorchRec's statistics read."""

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
    placed: ShardColumns
    sharding_type: str
    tensor: Any
    total_storage: Storage

    @property
    def shards(self) -> list[Any]:
        return [
            SimpleNamespace(rank=rank, storage=storage_tiers.storage(*storage))
            for rank, *storage in self.placed.shards_of(self.number)
        ]


class Planned:
    """The options of a plan, and the statistics over all of them."""

    def __init__(self, best_plan: ChosenOptions, arguments: dict[str, Any]) -> None:
        space: Any = best_plan.space
        numbers = np.asarray(best_plan.options)
        self.topology = arguments["topology"]
        self.constraints = arguments["constraints"] or {}
        self.placed = ShardColumns(space.columns, numbers, np.asarray(best_plan.ranks))
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

    def _options(self, kernels: list[int]) -> list[Option]:
        storages = zip(*self.placed.storage_of_options(), strict=True)
        types = self.types.tolist()
        made = []
        for number, (table, storage) in enumerate(zip(self.tables, storages, strict=True)):
            origin = self.origins[table]
            option = Option()
            option.number, option.placed = number, self.placed
            option.name, option.fqn = origin.name, f"{origin.path}.{origin.name}"
            option.module, option.tensor = (origin.path, origin.module), origin.parameter
            option.sharding_type = SHARDING_TYPES[types[number]]
            option.compute_kernel = KERNELS[kernels[number]]
            option.total_storage = storage_tiers.storage(*storage)
            rule = origin.constraint
            option.input_lengths = rule.pooling_factors if rule else [POOLING_FACTOR]
            made.append(option)
        return made

    def io_megabytes(self) -> tuple[Any, Any]:
        """Returns input and output of each rank per iteration, by TorchRec's formulas."""
        inputs, pooled = [], []
        for option, poolings, given in zip(
            self.options, self.poolings, self.batch_sizes, strict=True
        ):
            lengths = option.input_lengths
            each = [
                *zip(lengths, poolings, given or [self.batch_size] * len(lengths), strict=False)
            ]
            inputs.append(sum([x * y * z for x, y, z in each]))
            pooled.append(sum([(x if x < 1.0 else 1.0) * y * z for x, y, z in each]))
        world, local = self.topology.world_size, self.topology.intra_group_size
        divisor = np.array([1, 1, 1, world, local, 1, local])[self.types]
        factor = np.array([1, *[world] * (len(SHARDING_TYPES) - 1)])[self.types]
        lookups = np.array(inputs, np.float64) / divisor
        is_pooled = np.array([bool(self.facts[table].pooled) for table in self.tables])
        outputs = np.where(is_pooled, np.array(pooled, np.float64), lookups)
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
        """Returns, by short name of each sharding type in use, the number of shards by rank."""
        for kind in np.unique(self.types).tolist():
            counts = self.placed.count_by_rank(self.types == kind, self.world)
            yield torchrec_stats._get_sharding_type_abbr(SHARDING_TYPES[kind]), counts.tolist()

    def usage(
        self, topology: Any, best_plan: Any, dense_storage: Storage, kjt_storage: Storage
    ) -> tuple[list[int], list[int], list[int], list[Perf]]:
        """Replaces TorchRec's _compute_mem_usage_and_perf."""
        placed = self.placed
        sparse, ddr = placed.storage_by_rank(self.world)
        used_hbm = [hbm + dense_storage.hbm + kjt_storage.hbm for hbm in sparse]
        used_ddr = [each + dense_storage.ddr + kjt_storage.ddr for each in ddr]
        # An empty sum is a whole number, and so is the sum of data-parallel tables' comms.
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
        """Replaces TorchRec's _calculate_critical_path."""
        groups: dict[tuple[Any, str], int] = {}
        group = [
            groups.setdefault((option.module, option.sharding_type), len(groups))
            for option in self.options
        ]
        fwd, bwd = self.placed.largest_comms(np.array(group), self.world)
        comms = sum(value for pair in zip(fwd, bwd, strict=True) for value in pair)
        return CriticalPathEstimate(comms, sum(self.placed.largest_compute(self.world)))

    def imbalanced(self, best_plan: Any, target_imbalance: str = "perf") -> list[Option]:
        """Replaces TorchRec's _find_imbalance_tables."""
        movable = ~np.isin(self.types, [SHARDING_TYPES.index(kind) for kind in UNIFORM_TYPES])
        found = self.placed.on_fullest_ranks(movable, self.world, by_hbm=target_imbalance == "hbm")
        return [self.options[number] for number in found]


_UNIFORM = np.array([kind in UNIFORM_TYPES for kind in SHARDING_TYPES])
_PERF_COLUMNS = (
    "run_fwd_compute",
    "run_fwd_comms",
    "run_bwd_compute",
    "run_bwd_comms",
    "run_input_dist_comms",
    "run_prefetch_compute",
)
_STORAGE_COLUMNS = ("run_hbm", "run_ddr", "run_ssd")


class ShardColumns:
    """The shards of chosen options with their ranks.

    A float sum depends on the order. `bincount` adds each of its sums from the first shard to the
    last, as a loop over the shards does.
    """

    def __init__(self, space: SearchSpace, options: Any, ranks: Any) -> None:
        runs, runs_of_option = chosen_runs(space, options)
        count = space.run_count[runs]
        self.option_of_run = np.repeat(np.arange(len(options)), runs_of_option)
        self.run_rows, self.run_cols = space.run_rows[runs], space.run_cols[runs]
        self._first_run = np.cumsum(runs_of_option) - runs_of_option
        self._run = np.repeat(np.arange(len(runs)), count)
        self._option = self.option_of_run[self._run]
        shards = np.bincount(self._option, minlength=len(options))
        self._options = len(options)
        self.first_shard = np.cumsum(shards) - shards
        self.rank = np.arange(len(self._run)) - self.first_shard[self._option]
        self.rank[~_UNIFORM[space.option_type[options]][self._option]] = ranks
        self._perf = [getattr(space, name)[runs] for name in _PERF_COLUMNS]
        self._storage = [getattr(space, name)[runs] for name in _STORAGE_COLUMNS]

    def shards_of(self, option: int) -> list[tuple[int, ...]]:
        """Returns rank, HBM, DDR and SSD of the shards of the option at this plan position."""
        begin = int(self.first_shard[option])
        own = slice(begin, begin + int(np.count_nonzero(self._option == option)))
        runs = self._run[own]
        columns = (self.rank[own], *(each[runs] for each in self._storage))
        return [*zip(*(column.tolist() for column in columns), strict=True)]

    def first_cols(self) -> Any:
        """Returns the columns of each option's first shard."""
        return self.run_cols[self._first_run]

    def storage_of_options(self) -> list[list[int]]:
        """Returns HBM, DDR and SSD of each option."""
        return [_whole_sums(self._option, each[self._run], self._options) for each in self._storage]

    def storage_by_rank(self, world: int) -> list[list[int]]:
        """Returns HBM and DDR of the shards on each rank."""
        return [_whole_sums(self.rank, each[self._run], world) for each in self._storage[:2]]

    def perf_of_options(self) -> list[Any]:
        """Returns the fields of a Perf, summed over each option's shards."""
        return [np.bincount(self._option, each[self._run], self._options) for each in self._perf]

    def perf_by_rank(self, world: int) -> list[Any]:
        """Returns the fields of a Perf, summed over each rank's shards."""
        return [self.by_rank(each, world) for each in self._perf]

    def by_rank(self, of_run: Any, world: int) -> Any:
        """Returns the sum of a run's value over each rank's shards."""
        return np.bincount(self.rank, of_run[self._run], world)

    def count_by_rank(self, of_option: Any, world: int) -> Any:
        """Returns the number of shards of each rank, for all options or for some."""
        ranks = self.rank if of_option is None else self.rank[of_option[self._option]]
        return np.bincount(ranks, minlength=world)

    def largest_comms(self, group: Any, world: int) -> tuple[list[float], list[float]]:
        """Returns forward and backward comms of the rank with the most, for groups of options."""
        keys, place = np.unique(group[self._option] * world + self.rank, return_inverse=True)
        begin = np.flatnonzero(np.diff(keys // world, prepend=-1))
        fwd, bwd = (
            np.maximum.reduceat(np.bincount(place, each[self._run]), begin).tolist()
            for each in (self._perf[1], self._perf[3])
        )
        return fwd, bwd

    def largest_compute(self, world: int) -> list[float]:
        """Returns forward and backward compute of the rank with the most."""
        used = np.unique(self.rank)
        return [float(self.by_rank(self._perf[i], world)[used].max()) for i in (0, 2)]

    def on_fullest_ranks(self, of_option: Any, world: int, *, by_hbm: bool) -> list[int]:
        """Returns the options that have a shard on every fullest rank, the largest first.

        Ranks and options are compared by HBM or by perf. Empty if all shards are on one rank.
        """
        fwd, comms, bwd, bwd_comms, _, prefetch = self._perf
        of_run = self._storage[0] if by_hbm else fwd + bwd + comms + bwd_comms + prefetch
        used = np.unique(self.rank)
        if len(used) <= 1:
            return []
        if by_hbm:
            sums = np.array(_whole_sums(self.rank, of_run[self._run], world))
        else:
            sums = self.by_rank(of_run, world)
        is_fullest = np.zeros(world, bool)
        is_fullest[used[sums[used] == sums[used].max()]] = True
        there = is_fullest[self.rank] & of_option[self._option]
        pairs = np.unique(self._option[there] * world + self.rank[there])
        on_all = np.bincount(pairs // world, minlength=self._options) == is_fullest.sum()
        size = of_run[self._first_run].tolist()
        return sorted(np.flatnonzero(on_all).tolist(), key=size.__getitem__, reverse=True)


def _whole_sums(place: Any, values: Any, number: int) -> list[int]:
    sums = np.zeros(number, np.int64)
    np.add.at(sums, place, values)
    return sums.tolist()  # type: ignore[no-any-return]
