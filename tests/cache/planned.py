"""Cached plans to test with: real ones, made with no torch."""

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.cache.plan_cache import PlanCache
from fastplan.core.problem import Problem
from fastplan.core.record import PlanRecord
from fastplan.core.solve import estimate, solve
from fastplan.spec.request import Cluster
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, GIB, request, table

CONTEXT = {"torchrec": "1.8.0", "local_world_size": 4, "group_size": 4, "custom": []}


def keep(store, names=("a", "b", "c"), *, rows=10_000, hbm=GIB, context=None, **facts):
    """Plans tables on eight ranks and keeps the plan; returns its key."""
    tables = [table(name, rows + i, 64, pooling=2.0 + i) for i, name in enumerate(names)]
    asked = request(tables, 8, 4, ALL_TYPES)
    cluster = Cluster(
        rank_hbm=(hbm,) * 8,
        rank_ddr=(8 * GIB,) * 8,
        rank_ssd=(0,) * 8,
        local_world_size=4,
        group_size=4,
    )
    space = estimate(asked)
    found = solve(Problem(space, cluster), DEFAULT_SEARCH)
    record = PlanRecord.of(space, found.options, found.ranks, found.rating)
    canonical = canonical_request(
        asked, DEFAULT_SEARCH, ranks=8, context=CONTEXT if context is None else context
    )
    told = {"torchrec": "1.8.0", "engine": "native", "tables": len(names), "ranks": 8, **facts}
    PlanCache(store).put(fingerprint(canonical), record, cluster, canonical, told)
    return fingerprint(canonical)
