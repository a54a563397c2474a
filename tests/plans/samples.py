"""Random plans with no torch in them."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.engine.layout import layout_of
from fastplan.engine.solve import estimate, solve
from fastplan.model.plan import RANK, Basis, Layout, Plan, PlanRecord
from fastplan.model.replicas import ReplicaGroups
from fastplan.model.request import Cluster, Request, Search
from tests import problems
from tests.problems import ALL_TYPES, GIB

# What any reader of plan files refuses.
NO_PLANS = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b"{}",
    b'{"a": NaN}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 900 + b"]" * 900,
    b'{"format": "fastplan sharding plan"}',
    b'{"format": "fastplan sharding plan", "version": 2}',
    b'{"format": "fastplan sharding plan", "version": true}',
)


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The data with up to three pieces of it in wrong places."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        start, other = draw.randrange(len(data)), draw.randrange(len(data))
        made[start : start + draw.randint(0, 9)] = data[other : other + draw.randint(0, 9)]
    return bytes(made)


def mapped_to_group(layout: Layout, groups: ReplicaGroups, group: int) -> Layout:
    """The plan that all groups share, with the ranks of one group, as DMPCollection maps it."""
    ranks = np.array(groups.ranks_of(group), np.int64)
    tables = []
    for table in layout.tables:
        shards = table.shards.copy()
        shards[:, RANK] = ranks[shards[:, RANK]]
        tables.append(table._replace(shards=shards))
    return replace(layout, tables=tuple(tables))


# Random problems that have a plan.
SEEDS = (0, 3, 5, 6, 7, 8, 9, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29, 31, 32)


def random_request(seed: int) -> tuple[Request, Cluster, Search]:
    """The request behind a random problem."""
    seen = []

    def noted(request: Request) -> object:
        seen.append(request)
        return estimate(request)

    with patch.object(problems, "estimate", noted):
        problem, search = problems.random_problem(seed)
    return seen[0], problem.cluster, search


def canonical_of(request: Request, cluster: Cluster, search: Search) -> bytes:
    return canonical_request(
        request,
        search,
        ranks=len(cluster.rank_hbm),
        context={
            "torchrec": "1.8.0",
            "local_world_size": cluster.local_world_size,
            "group_size": cluster.group_size,
            "custom": [],
        },
    )


def plan_for(request: Request, cluster: Cluster, search: Search, record: PlanRecord) -> Plan:
    canonical = canonical_of(request, cluster, search)
    return Plan(
        name="model",
        layout=layout_of(request, cluster, record),
        fingerprint=fingerprint(canonical),
        notes={"model": "model"},
        basis=Basis(canonical=canonical, request=request, cluster=cluster, record=record),
    )


def solved(request: Request, cluster: Cluster, search: Search) -> Plan | None:
    """The plan of a request; None if nothing fits."""
    space = estimate(request)
    found = solve(problems.Problem(space, cluster), search)
    if not found.found:
        return None
    record = PlanRecord.of(space, found.options, found.ranks, found.rating)
    return plan_for(request, cluster, search, record)


def random_plan(seed: int) -> Plan:
    plan = solved(*random_request(seed))
    assert plan is not None, f"seed {seed} has no plan"
    return plan


def cluster_of(ranks: int, group: int) -> Cluster:
    return Cluster(
        rank_hbm=(800 * GIB,) * ranks,
        rank_ddr=(800 * GIB,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )


def mixed_plan(seed: int = 0, ranks: int = 8, group: int = 4, count: int = 14) -> Plan:
    """Every sharding type twice, on random ranks, tables of two modules in turn."""
    draw = random.Random(seed)
    tables = [
        problems.table(f"t{i}", draw.randint(1, 500), draw.choice((8, 256, 512)))._replace(
            path=("a.b", "c")[i % 2], element_size=draw.choice((2, 4))
        )
        for i in range(count)
    ]
    request = problems.request(tables, ranks, group, ALL_TYPES)
    return plan_for(
        request,
        cluster_of(ranks, group),
        problems.DEFAULT_SEARCH,
        random_record(request, draw, ranks, group),
    )


def random_record(request: Request, draw: random.Random, ranks: int, group: int) -> PlanRecord:
    """Random options in a random order, on ranks that their types allow."""
    space = estimate(request)
    order = draw.sample(range(space.tables), space.tables)
    options, chosen_ranks = [], []
    for number, table in enumerate(order):
        begin, end = space.table_option_begin[table : table + 2].tolist()
        kind = ALL_TYPES[number % len(ALL_TYPES)]
        fitting = [o for o in range(begin, end) if ALL_TYPES[space.option_type[o]] == kind]
        option = draw.choice(fitting)
        options.append(option)
        runs = slice(space.option_run_begin[option], space.option_run_begin[option + 1])
        shards = int(space.run_count[runs].sum())
        if kind in ("table_row_wise", "grid_shard"):
            host = draw.randrange(ranks // group) * group
            chosen_ranks += [host + i % group for i in range(shards)]
        elif kind not in ("data_parallel", "row_wise"):
            chosen_ranks += [draw.randrange(ranks) for _ in range(shards)]
    return PlanRecord.of(space, options, np.array(chosen_ranks), draw.uniform(0, 10))


def assert_same_layout(expected: Plan, actual: Plan) -> None:
    """Equal tables in the same order, shard by shard."""
    for one, other in zip(expected.layout.tables, actual.layout.tables, strict=True):
        assert one._replace(shards=None) == other._replace(shards=None)
        assert np.array_equal(one.shards, other.shards)
        assert other.shards.dtype == np.int64
    assert expected.layout.device == actual.layout.device
    assert expected.layout.ranks_per_host == actual.layout.ranks_per_host
