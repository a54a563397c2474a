"""Where the runs of a plan's shards lie, and sums over them by rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastplan.engine.problem import Floats, Ints, SearchSpace
from fastplan.model.record import BadRecord, PlanRecord
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES

_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


def by_load(loads: Floats) -> Ints:
    """Ranks from the most to the least loaded; of equal ones the first rank first.

    Loads are equal when they differ by no more than the order in which they were added up does.
    """
    most = float(loads.max(initial=0.0)) or 1.0
    return np.argsort(-np.round(loads / most, 9), kind="stable")


class Spread:
    """A plan as pieces: stretches of ranks that each hold a shard of one run.

    A uniform run is one piece, any other shard a piece of its own. Few stretches differ, so that
    sums are taken over runs and not over shards, of which there may be millions.
    """

    def __init__(self, space: SearchSpace, record: PlanRecord, ranks: int) -> None:
        """Takes a space narrowed to the record's options. Raises BadRecord if they don't agree."""
        self._ranks = ranks
        count = space.run_count
        self.table_shards: Ints = np.add.reduceat(count, space.option_run_begin[:-1])
        table_runs = np.diff(space.option_run_begin)
        self._table_uniform = _UNIFORM[record.sharding_type]
        self._record = record
        self._check()
        uniform = np.repeat(self._table_uniform, table_runs)
        table_begin = np.repeat(np.cumsum(self.table_shards) - self.table_shards, table_runs)
        begin = np.cumsum(count) - count - table_begin
        runs = np.arange(len(count))
        placed = np.repeat(runs[~uniform], count[~uniform])
        self._run = np.concatenate([runs[uniform], placed])
        self._begin = np.concatenate([begin[uniform], record.ranks.astype(np.int64)])
        self._count = np.concatenate([count[uniform], np.ones(len(placed), np.int64)])
        stretches, self._group = np.unique(
            self._begin * (ranks + 1) + self._count, return_inverse=True
        )
        lengths = stretches % (ranks + 1)
        self._rank_group = np.repeat(np.arange(len(stretches)), lengths)
        first = np.repeat(np.cumsum(lengths) - lengths - stretches // (ranks + 1), lengths)
        self._rank = np.arange(len(first)) - first

    def _check(self) -> None:
        record, shards = self._record, self.table_shards
        placed = int(shards[~self._table_uniform].sum())
        if placed != len(record.ranks):
            raise BadRecord(f"it has {len(record.ranks)} ranks for {placed} shards")
        if (shards[self._table_uniform] != self._ranks).any():
            raise BadRecord(f"a uniform table does not have one shard on each of {self._ranks}")
        for rank in record.ranks[(record.ranks < 0) | (record.ranks >= self._ranks)]:
            raise BadRecord(f"a shard is on rank {rank} of {self._ranks}")

    def by_rank(self, run_values: Any) -> Floats:
        """The sum of the runs' values on every rank. Whole numbers below 2^53 stay exact."""
        sums = np.bincount(self._group, run_values[self._run])
        return np.bincount(self._rank, sums[self._rank_group], self._ranks).astype(np.float64)

    def runs_on(self, rank: int) -> Ints:
        """The runs with a shard on a rank, once for each such shard."""
        there: Ints = self._run[(self._begin <= rank) & (rank < self._begin + self._count)]
        return there

    def table_ranks(self) -> list[Ints]:
        """The ranks of each table, each once and rising."""
        every = np.arange(self._ranks)
        ranks = self._record.ranks.astype(np.int64)
        ends = np.cumsum(np.where(self._table_uniform, 0, self.table_shards)).tolist()
        return [
            every if uniform else np.unique(ranks[end - shards : end])
            for uniform, end, shards in zip(
                self._table_uniform.tolist(), ends, self.table_shards.tolist(), strict=True
            )
        ]
