"""Plans for tests of reports, planned by the core without torch."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.engine.layout import layout_of
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from fastplan.model.cuts import copy_shards
from fastplan.model.plan import RANK, Basis, Plan, PlanRecord
from fastplan.model.request import Cluster, Partitioner, Request, Search, Table
from tests.problems import ALL_TYPES, DEFAULT_PROPOSERS, GIB, menu_of, request, table

NOTES = {"engine": "native", "cache": "miss", "created": "2026-03-01T12:00:00Z"}


def cluster_of(ranks: int, group: int, hbm: int = 32 * GIB, ddr: int = 128 * GIB) -> Cluster:
    return Cluster(
        rank_hbm=(hbm,) * ranks,
        rank_ddr=(ddr,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )


def plan_of(
    asked: Request,
    cluster: Cluster,
    *,
    name: str = "dlrm",
    notes: dict[str, str] | None = None,
    context: dict[str, Any] | None = None,
    search: Search | None = None,
) -> Plan:
    """The plan the core finds for a request, as it comes out of a plan file."""
    search = search or Search(proposers=DEFAULT_PROPOSERS, partitioner=Partitioner())
    space = estimate(asked)
    solution = solve(Problem(space, cluster), search)
    assert solution.found
    record = PlanRecord.of(space, solution.options, solution.ranks, solution.rating)
    context = {"torchrec": "1.8.0", "reservation": {"percentage": 0.15}, **(context or {})}
    context |= {"local_world_size": cluster.local_world_size, "group_size": cluster.group_size}
    canonical = canonical_request(asked, search, ranks=len(cluster.rank_hbm), context=context)
    return Plan(
        name=name,
        layout=layout_of(asked, cluster, record),
        fingerprint=fingerprint(canonical),
        notes={**NOTES, **(notes or {})},
        basis=Basis(canonical=canonical, request=asked, cluster=cluster, record=record),
    )


def bare(plan: Plan) -> Plan:
    """Only the layout, as from a plan that somebody else made."""
    tables = [
        made._replace(shape=None, shards=copy_shards(None, made.shards[:, RANK]))
        if made.sharding_type == "data_parallel"
        else made
        for made in plan.layout.tables
    ]
    return Plan(name=plan.name, layout=replace(plan.layout, tables=tuple(tables)))


# Rows of the tables of the Criteo 1TB set, in millions.
_CRITEO = (40, 0.04, 0.017, 0.007, 0.02, 0.0003, 0.007, 0.0014, 0.06, 40, 30, 25, 0.0005, 0.0022)
_CRITEO += (0.012, 0.0001, 0.0009, 0.0003, 0.001, 40, 40, 40, 0.59, 0.013, 0.0001, 0.001)


def criteo_tables(pooling: float = 1.0) -> list[Table]:
    rng = random.Random(7)
    return [
        table(f"t_cat_{i}", int(rows * 1e6), 128, pooling=pooling * rng.choice((1, 1, 3, 8, 20)))
        for i, rows in enumerate(_CRITEO)
    ]


def mixed_request(tables: list[Table], ranks: int, group: int) -> Request:
    """Tables that may be sharded in different ways, as constraints have it in real models."""
    menus = [menu_of(types) for types in _MENUS]
    tables = [made._replace(menu=_menu(i, made)) for i, made in enumerate(tables)]
    return replace(request(tables, ranks, group, ALL_TYPES), menus=tuple(menus))


_MENUS = (
    ("table_wise", "column_wise"),
    ("row_wise",),
    ("data_parallel",),
    ("table_wise", "table_row_wise"),
    ("table_column_wise", "column_wise"),
    ("grid_shard",),
)


def _menu(number: int, made: Table) -> int:
    if made.rows < 10_000:
        return 2
    if made.rows > 30_000_000:
        return 1 + 2 * (number % 2)
    return (0, 0, 4, 0, 3, 0, 0, 5)[number % 8]


def criteo(**changes: Any) -> Plan:
    """26 tables on 8 ranks of one host, sharded in several ways."""
    asked = mixed_request(criteo_tables(), 8, 8)
    return plan_of(asked, cluster_of(8, 8), **{"name": "dlrm-criteo", **changes})


def criteo_table_wise(**changes: Any) -> Plan:
    """The same model and cluster, where only whole tables may be placed."""
    asked = request(criteo_tables(), 8, 8, ("table_wise", "data_parallel"))
    return plan_of(asked, cluster_of(8, 8), **{"name": "dlrm-criteo", **changes})


def criteo_row_wise(**changes: Any) -> Plan:
    """The same again, where all ranks share every table."""
    asked = request(criteo_tables(), 8, 8, ("row_wise",))
    return plan_of(asked, cluster_of(8, 8), **{"name": "dlrm-criteo", **changes})


def small(**changes: Any) -> Plan:
    """Six tables on eight ranks of two hosts."""
    tables = [table(f"t{i}", 10_000 * (i + 1), 64, pooling=2.0 + i) for i in range(6)]
    return plan_of(request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4, GIB, 8 * GIB), **changes)


@cache
def large(tables: int = 1000, ranks: int = 1024, seed: int = 1) -> Plan:
    """Many tables of all sizes on many ranks."""
    rng = random.Random(seed)
    made = []
    for i in range(tables):
        rows = int(10 ** rng.uniform(3, 8))
        own = table(f"feature_{i}_embedding", rows, rng.choice((32, 64, 128, 256)))
        inputs = own.perf_inputs * rng.uniform(0.2, 60)
        made.append(
            own._replace(
                perf_inputs=inputs, storage_inputs=inputs, path=f"sparse.ebc_{rng.randint(0, 7)}"
            )
        )
    asked = mixed_request(made, ranks, 8)
    return plan_of(asked, cluster_of(ranks, 8, 64 * GIB), name="ranking-v7")


def with_names(names: list[str]) -> Plan:
    """Six tables with names of the caller's choice."""
    tables = [table(name, 10_000 * (i + 1), 64) for i, name in enumerate(names)]
    return plan_of(request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4, GIB, 8 * GIB), name=names[0])


def rated(plan: Plan, rating: float) -> Plan:
    """The plan with another rating than its own."""
    assert plan.basis is not None
    record = replace(plan.basis.record, rating=rating)
    return replace(plan, basis=replace(plan.basis, record=record))
