"""Estimates a plan again, and sums its costs and memory by rank and by table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastplan.engine.layout import narrowed
from fastplan.engine.problem import Floats, Ints, SearchSpace
from fastplan.engine.solve import OutOfRange, estimate
from fastplan.model.plan import BadRecord, Basis, PlanRecord
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES

# In TorchRec's order. Input distribution is estimated, but not part of a rating.
RATED = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch")
PARTS = (*RATED, "input_dist")
TIERS = ("hbm", "ddr", "ssd")

_COLUMNS = {"prefetch": "run_prefetch_compute", "input_dist": "run_input_dist_comms"}
_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


class EstimateUnavailable(Exception):
    """The plan's costs can't be estimated. The message says why."""


class Estimates(NamedTuple):
    """Costs in milliseconds and memory in bytes, by rank and by table in the record's order."""

    rank_parts: dict[str, Floats]
    rank_total: Floats  # the rating is the largest of these
    rank_memory: dict[str, Ints]
    table_total: Floats  # over all ranks
    table_on_worst: Floats  # on the rank with the largest total
    table_ranks: list[Ints]  # each rank once, ascending
    table_shards: Ints


def estimates(basis: Basis) -> Estimates:
    """Returns the estimates behind a plan's rating.

    Args:
        basis: The request, cluster and record of the plan.

    Raises:
        EstimateUnavailable: if the record does not match the request, the numbers are out of the
            native range, or the estimate differs from the plan's rating.
    """
    record = basis.record
    try:
        space = estimate(narrowed(basis.request, record))
        pieces = PlanPieces(space, record, len(basis.cluster.rank_hbm))
    except (BadRecord, OutOfRange) as problem:
        raise EstimateUnavailable(str(problem)) from problem
    parts = {part: getattr(space, _COLUMNS.get(part, f"run_{part}")) for part in PARTS}
    run_total = sum(parts[part] for part in RATED)
    rank_total = pieces.by_rank(run_total)
    worst = int(by_load(rank_total)[0])
    check_rating(float(rank_total[worst]), record.rating)
    run_table = np.repeat(np.arange(space.tables), np.diff(space.option_run_begin))
    there = pieces.runs_on(worst)
    on_worst = np.bincount(run_table[there], run_total[there], space.tables)
    return Estimates(
        rank_parts={part: pieces.by_rank(values) for part, values in parts.items()},
        rank_total=rank_total,
        rank_memory={
            tier: pieces.by_rank(getattr(space, f"run_{tier}")).astype(np.int64) for tier in TIERS
        },
        table_total=np.add.reduceat(run_total * space.run_count, space.option_run_begin[:-1]),
        table_on_worst=on_worst.astype(np.float64),
        table_ranks=pieces.table_ranks(),
        table_shards=pieces.table_shards,
    )


def check_rating(found: float, rating: float) -> None:
    if abs(found - rating) > 1e-9 * max(abs(rating), abs(found)):
        raise EstimateUnavailable(
            f"the estimate of the worst rank is {found:.6g} ms, but the plan's rating is "
            f"{rating:.6g} ms; a custom estimator or perf model was used"
        )


def by_load(loads: Floats) -> Ints:
    """Returns ranks from the most to the least loaded; among equal ones the lowest rank first.

    Loads are equal if they differ only by rounding, which depends on the order of summation.
    """
    most = float(loads.max(initial=0.0)) or 1.0
    return np.argsort(-np.round(loads / most, 9), kind="stable")


def distinct(values: Ints) -> Ints:
    """Returns each value once, ascending. np.unique would import numpy.ma for it."""
    ordered = np.sort(values)
    found: Ints = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


class PlanPieces:
    """A plan as pieces: ranges of ranks, each with one shard of a run.

    A uniform run is one piece, any other shard is a piece of its own. Few ranges of ranks differ,
    so sums are computed over runs and not over shards, of which there may be millions.

    Args:
        space: A search space with only the record's options.
        record: The plan.
        ranks: The number of ranks of the cluster.

    Raises:
        BadRecord: if the record does not match the search space.
    """

    def __init__(self, space: SearchSpace, record: PlanRecord, ranks: int) -> None:
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
        piece_ranges = self._begin * (ranks + 1) + self._count
        ranges = distinct(piece_ranges)
        self._group = np.searchsorted(ranges, piece_ranges)
        lengths = ranges % (ranks + 1)
        self._rank_group = np.repeat(np.arange(len(ranges)), lengths)
        first = np.repeat(np.cumsum(lengths) - lengths - ranges // (ranks + 1), lengths)
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
        """Returns the sum of the runs' values on every rank; integers below 2^53 stay exact."""
        sums = np.bincount(self._group, run_values[self._run])
        return np.bincount(self._rank, sums[self._rank_group], self._ranks).astype(np.float64)

    def runs_on(self, rank: int) -> Ints:
        """Returns the runs with a shard on a rank, once for each such shard."""
        there: Ints = self._run[(self._begin <= rank) & (rank < self._begin + self._count)]
        return there

    def table_ranks(self) -> list[Ints]:
        """Returns the ranks of each table, each once and ascending."""
        every = np.arange(self._ranks)
        ranks = self._record.ranks.astype(np.int64)
        ends = np.cumsum(np.where(self._table_uniform, 0, self.table_shards)).tolist()
        return [
            every if uniform else distinct(ranks[end - shards : end])
            for uniform, end, shards in zip(
                self._table_uniform.tolist(), ends, self.table_shards.tolist(), strict=True
            )
        ]
