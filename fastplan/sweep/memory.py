"""Memory that a plan needs on each rank, and missing memory of a job without a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastplan.engine.layout import narrowed
from fastplan.engine.problem import Ints, Problem, SearchSpace
from fastplan.engine.solve import estimate, solve
from fastplan.model.job import SpecJob
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster
from fastplan.model.units import format_size
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.planning.describe import shortage_of
from fastplan.planning.search import Result

_TIERS = ("hbm", "ddr", "ssd")
_MOST_MEMORY = 1 << 50  # per rank
_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


def memory_of(job: SpecJob, record: PlanRecord) -> dict[str, Any]:
    """Returns the memory fields of a sweep's row: of all ranks, and of the fullest rank."""
    space = estimate(narrowed(job.request, record))
    used = rank_memory(space, record, len(job.cluster.rank_hbm))
    tier = _main_tier(job)
    capacity = np.array(_capacity(job, tier), np.int64)
    free = capacity - used[tier]
    fullest = int(np.argmin(free / np.maximum(capacity, 1)))
    return {
        "tier": tier,
        "headroom_bytes": int(free[fullest]),
        "headroom": float(free[fullest] / max(1, int(capacity[fullest]))),
        **{f"{name}_bytes": int(used[name].sum()) for name in _TIERS},
    }


def rank_memory(space: SearchSpace, record: PlanRecord, ranks: int) -> dict[str, Ints]:
    """Returns the bytes of a plan by tier and rank.

    Args:
        space: A search space with one option per table, in the record's order.
        record: The plan.
        ranks: The number of ranks.
    """
    shard_end = np.cumsum(space.run_count)
    shard_begin = shard_end - space.run_count
    runs = np.diff(space.option_run_begin)
    # Shards of uniform tables are on consecutive ranks, so each run covers a range of ranks.
    own_begin = np.repeat(shard_begin[space.option_run_begin[:-1]], runs)
    uniform = np.repeat(_UNIFORM[record.sharding_type], runs)
    first, last = (shard_begin - own_begin)[uniform], (shard_end - own_begin)[uniform]
    found = {}
    for tier in _TIERS:
        size = getattr(space, f"run_{tier}")
        steps = np.zeros(ranks + 1, np.int64)
        np.add.at(steps, first, size[uniform])
        np.subtract.at(steps, last, size[uniform])
        used = np.cumsum(steps)[:-1]
        np.add.at(used, record.ranks, np.repeat(size[~uniform], space.run_count[~uniform]))
        found[tier] = used
    return found


def missing_memory(job: SpecJob) -> dict[str, Any] | None:
    """Returns the memory that each rank lacks, as fields of a sweep's row.

    It is exact to 1 % of the necessary capacity. None if more memory would not help.
    """
    tier = _main_tier(job)
    space = estimate(job.request)
    search = replace(job.search, timeout_seconds=0.0)
    capacity = [max(0, size) for size in _capacity(job, tier)]

    def fits(more: int) -> bool:
        cluster = _with_capacity(job.cluster, tier, tuple(size + more for size in capacity))
        return solve(Problem(space, cluster), search, by="rating").found

    largest = max(1, *capacity)
    too_little, enough = 0, largest // 8 + 1
    while not fits(enough):
        too_little, enough = enough, 4 * enough
        if enough > _MOST_MEMORY:
            return None
    while enough - too_little > (largest + enough) // 100:
        middle = (too_little + enough) // 2
        if fits(middle):
            enough = middle
        else:
            too_little = middle
    return {"tier": tier, "headroom_bytes": -enough, "headroom": -enough / largest}


def explain_shortage(result: Result) -> tuple[dict[str, Any] | None, str]:
    """Explains why a job has no plan.

    Returns:
        The missing memory as figures (None if more memory would not help), and the reason as text.
    """
    assert isinstance(result.job, SpecJob)
    lack = missing_memory(result.job)
    if lack is None:
        return None, str(shortage_of(result))
    more = f"{format_size(-lack['headroom_bytes'])} more {lack['tier'].upper()}"
    return lack, f"about {more} on every rank would be enough"


def _main_tier(job: SpecJob) -> str:
    return "ddr" if job.device == "cpu" else "hbm"


def _capacity(job: SpecJob, tier: str) -> tuple[int, ...]:
    return job.cluster.rank_ddr if tier == "ddr" else job.cluster.rank_hbm


def _with_capacity(cluster: Cluster, tier: str, capacity: tuple[int, ...]) -> Cluster:
    if tier == "ddr":
        return replace(cluster, rank_ddr=capacity)
    return replace(cluster, rank_hbm=capacity)
