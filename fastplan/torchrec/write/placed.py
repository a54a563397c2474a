"""The shards of a plan as columns, and sums over them that are added in the order of the shards."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastplan.engine.problem import SearchSpace
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec.write.plan import chosen_runs

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


class PlacedShards:
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
        """Rank, HBM, DDR and SSD of the shards of an option, given by its place in the plan."""
        begin = int(self.first_shard[option])
        own = slice(begin, begin + int(np.count_nonzero(self._option == option)))
        runs = self._run[own]
        columns = (self.rank[own], *(each[runs] for each in self._storage))
        return [*zip(*(column.tolist() for column in columns), strict=True)]

    def first_cols(self) -> Any:
        """The columns of each option's first shard."""
        return self.run_cols[self._first_run]

    def storage_of_options(self) -> list[list[int]]:
        """HBM, DDR and SSD of each option."""
        return [_whole_sums(self._option, each[self._run], self._options) for each in self._storage]

    def storage_by_rank(self, world: int) -> list[list[int]]:
        """HBM and DDR of the shards on each rank."""
        return [_whole_sums(self.rank, each[self._run], world) for each in self._storage[:2]]

    def perf_of_options(self) -> list[Any]:
        """The fields of a Perf, summed up over each option's shards."""
        return [np.bincount(self._option, each[self._run], self._options) for each in self._perf]

    def perf_by_rank(self, world: int) -> list[Any]:
        """The fields of a Perf, summed up over each rank's shards."""
        return [self.by_rank(each, world) for each in self._perf]

    def by_rank(self, of_run: Any, world: int) -> Any:
        """The sum over each rank's shards of what each shard of a run has."""
        return np.bincount(self.rank, of_run[self._run], world)

    def count_by_rank(self, of_option: Any, world: int) -> Any:
        """How many shards each rank has, of all options or of some."""
        ranks = self.rank if of_option is None else self.rank[of_option[self._option]]
        return np.bincount(ranks, minlength=world)

    def largest_comms(self, group: Any, world: int) -> tuple[list[float], list[float]]:
        """Forward and backward comms of the rank that has most of them, for groups of options."""
        keys, place = np.unique(group[self._option] * world + self.rank, return_inverse=True)
        begin = np.flatnonzero(np.diff(keys // world, prepend=-1))
        fwd, bwd = (
            np.maximum.reduceat(np.bincount(place, each[self._run]), begin).tolist()
            for each in (self._perf[1], self._perf[3])
        )
        return fwd, bwd

    def largest_compute(self, world: int) -> list[float]:
        """Forward and backward compute of the rank that has most of it."""
        used = np.unique(self.rank)
        return [float(self.by_rank(self._perf[i], world)[used].max()) for i in (0, 2)]

    def on_fullest_ranks(self, of_option: Any, world: int, *, by_hbm: bool) -> list[int]:
        """Those of some options that have a shard on every fullest rank, the largest first.

        Full and large is by HBM or by perf. There are none where all shards are on one rank.
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
