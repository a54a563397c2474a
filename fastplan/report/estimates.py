"""A plan's costs and memory, estimated again and spread over its shards and ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastplan.engine.layout import narrowed
from fastplan.engine.problem import Floats, Ints
from fastplan.engine.solve import OutOfRange, estimate
from fastplan.model.plan import Basis
from fastplan.model.record import BadRecord
from fastplan.report.spread import Spread, by_load

# As TorchRec adds them up; the distribution of inputs is estimated, but not part of a rating.
RATED = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch")
PARTS = (*RATED, "input_dist")
TIERS = ("hbm", "ddr", "ssd")

_COLUMNS = {"prefetch": "run_prefetch_compute", "input_dist": "run_input_dist_comms"}


class NoEstimate(Exception):
    """The plan's costs can't be told from what is known of it; says why."""


class Estimates(NamedTuple):
    """Costs in milliseconds and bytes, by rank and by table in the record's order."""

    rank_parts: dict[str, Floats]
    rank_total: Floats  # what the rating is the largest of
    rank_memory: dict[str, Ints]
    table_total: Floats  # over all ranks
    table_on_worst: Floats  # on the rank with the largest total
    table_ranks: list[Ints]  # each rank once, rising
    table_shards: Ints


def estimates(basis: Basis) -> Estimates:
    """The estimates behind a plan's rating. Raises NoEstimate where they can't be had."""
    record = basis.record
    try:
        space = estimate(narrowed(basis.request, record))
        spread = Spread(space, record, len(basis.cluster.rank_hbm))
    except (BadRecord, OutOfRange) as problem:
        raise NoEstimate(str(problem)) from problem
    parts = {part: getattr(space, _COLUMNS.get(part, f"run_{part}")) for part in PARTS}
    run_total = sum(parts[part] for part in RATED)
    rank_total = spread.by_rank(run_total)
    worst = int(by_load(rank_total)[0])
    _check_rating(float(rank_total[worst]), record.rating)
    run_table = np.repeat(np.arange(space.tables), np.diff(space.option_run_begin))
    there = spread.runs_on(worst)
    on_worst = np.bincount(run_table[there], run_total[there], space.tables)
    return Estimates(
        rank_parts={part: spread.by_rank(values) for part, values in parts.items()},
        rank_total=rank_total,
        rank_memory={
            tier: spread.by_rank(getattr(space, f"run_{tier}")).astype(np.int64) for tier in TIERS
        },
        table_total=np.add.reduceat(run_total * space.run_count, space.option_run_begin[:-1]),
        table_on_worst=on_worst.astype(np.float64),
        table_ranks=spread.table_ranks(),
        table_shards=spread.table_shards,
    )


def _check_rating(found: float, rating: float) -> None:
    if abs(found - rating) > 1e-9 * max(abs(rating), abs(found)):
        raise NoEstimate(
            f"estimated again the worst rank costs {found:.6g} ms, but the plan is rated "
            f"{rating:.6g}; a custom estimator or perf model took part"
        )
