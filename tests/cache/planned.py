"""Cached plans to test with: real ones, made with no torch."""

from dataclasses import replace

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.cache.plan_cache import Cache
from fastplan.engine.optimize import Optimize, optimize
from fastplan.engine.packed_certificate import pack_certificate
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from fastplan.model.objectives import Objectives
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, GIB, request, table

SETTINGS = Optimize(time_budget=None, move_budget=5_000)
CONTEXT = {"torchrec": "1.8.0", "local_world_size": 4, "group_size": 4, "custom": []}
CLUSTER = Cluster(
    rank_hbm=(GIB,) * 8,
    rank_ddr=(8 * GIB,) * 8,
    rank_ssd=(0,) * 8,
    local_world_size=4,
    group_size=4,
)


def keep(store, names=("a", "b", "c"), *, rows=10_000, hbm=GIB, context=None, **facts):
    """Plans tables on eight ranks and keeps the plan; returns its key."""
    tables = [table(name, rows + i, 64, pooling=2.0 + i) for i, name in enumerate(names)]
    asked = request(tables, 8, 4, ALL_TYPES)
    cluster = replace(CLUSTER, rank_hbm=(hbm,) * 8)
    space = estimate(asked)
    found = solve(Problem(space, cluster), DEFAULT_SEARCH)
    record = PlanRecord.of(space, found.options, found.ranks, found.rating)
    canonical = canonical_request(
        asked, DEFAULT_SEARCH, ranks=8, context=CONTEXT if context is None else context
    )
    told = {"torchrec": "1.8.0", "engine": "native", "tables": len(names), "ranks": 8, **facts}
    Cache(store).put(fingerprint(canonical), record, cluster, canonical, told)
    return fingerprint(canonical)


def keep_better(store, *, objectives=None):
    """A plan better than TorchRec's, with a certificate; returns its key."""
    settings = replace(SETTINGS, objectives=objectives or Objectives())
    tables = [table(name, 10_000 + i, 64, pooling=2.0 + i) for i, name in enumerate("abc")]
    names = [(each.path, each.name) for each in tables]
    asked = request(tables, 8, 4, ALL_TYPES)
    problem = Problem(estimate(asked), CLUSTER)
    found = optimize(problem, DEFAULT_SEARCH, settings, names=names)
    record = PlanRecord.of(problem.space, found.options, found.ranks, found.rating)
    context = {**CONTEXT, "optimize": settings.describe()}
    canonical = canonical_request(asked, DEFAULT_SEARCH, ranks=8, context=context)
    key = fingerprint(canonical)
    packed = pack_certificate(found.certificate, problem, settings.objectives, names)
    Cache(store).put(key, record, CLUSTER, canonical, {}, packed)
    return key
