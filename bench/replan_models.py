"""Models and clusters with changes, for the benchmark of re-planning."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

from bench.models import (
    CRITEO_DIM,
    CRITEO_POOLING,
    CRITEO_ROWS,
    SYNTHETIC_DIMS,
    build,
    synthetic_sizes,
)
from bench.runs import Case, Taker, quiet
from fastplan.engine.problem import Problem
from fastplan.model.request import Cluster, Request, Search


@dataclass(frozen=True, kw_only=True)
class TableSize:
    name: str
    rows: int
    dim: int
    pooling: float


@dataclass(frozen=True, kw_only=True)
class State:
    """A model and its cluster at one point in time."""

    tables: tuple[TableSize, ...]
    hosts: int
    ranks_per_host: int
    batch_size: int
    hbm_gib: int = 80

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The planner's view of a state."""

    request: Request
    cluster: Cluster
    search: Search
    problem: Problem


def case_of(state: State) -> Case:
    """The state as a real module on a topology."""
    module, constraints = build(
        [table.name for table in state.tables],
        [table.rows for table in state.tables],
        [table.dim for table in state.tables],
        [table.pooling for table in state.tables],
    )
    return Case(
        module=module,
        constraints=constraints,
        ranks=state.ranks,
        ranks_per_host=state.ranks_per_host,
        batch_size=state.batch_size,
        hbm_bytes=state.hbm_gib * 2**30,
    )


def ask(state: State) -> Asked:
    """The request of a state, read by fastplan's planner from a real module."""
    case = case_of(state)
    planner = case.planner(Taker)
    with quiet():
        planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    return Asked(
        request=planner.space.request,
        cluster=planner.problem.cluster,
        search=planner.search,
        problem=planner.problem,
    )


def random_state(tables: int, hosts: int, ranks_per_host: int) -> State:
    sizes = synthetic_sizes(tables, seed=0)
    return State(
        tables=tuple(
            TableSize(name=f"table_{i:03}", rows=rows, dim=dim, pooling=pooling)
            for i, (rows, dim, pooling) in enumerate(zip(*sizes, strict=True))
        ),
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        batch_size=512,
    )


def criteo_state(hosts: int, ranks_per_host: int) -> State:
    return State(
        tables=tuple(
            TableSize(name=f"table_{i:03}", rows=rows, dim=CRITEO_DIM, pooling=float(pooling))
            for i, (rows, pooling) in enumerate(zip(CRITEO_ROWS, CRITEO_POOLING, strict=True))
        ),
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        batch_size=4096,
    )


Change = Callable[[State, random.Random], State]


def _new_tables(count: int, rng: random.Random, serial: str) -> tuple[TableSize, ...]:
    return tuple(
        TableSize(
            name=f"new_{serial}_{i:02}",
            rows=int(10 ** rng.uniform(4, 6.5)),
            dim=rng.choice(SYNTHETIC_DIMS),
            pooling=round(rng.uniform(1, 30), 1),
        )
        for i in range(count)
    )


def add(count: int) -> Change:
    def change(state: State, rng: random.Random) -> State:
        serial = f"{rng.randrange(10**6):06}"
        return replace(state, tables=state.tables + _new_tables(count, rng, serial))

    return change


def remove(count: int) -> Change:
    def change(state: State, rng: random.Random) -> State:
        gone = set(rng.sample(range(len(state.tables)), count))
        return replace(
            state, tables=tuple(each for i, each in enumerate(state.tables) if i not in gone)
        )

    return change


def resize(part: float, factor: float) -> Change:
    def change(state: State, rng: random.Random) -> State:
        count = max(1, round(part * len(state.tables)))
        chosen = set(rng.sample(range(len(state.tables)), count))
        return replace(
            state,
            tables=tuple(
                replace(each, rows=max(1, int(each.rows * factor))) if i in chosen else each
                for i, each in enumerate(state.tables)
            ),
        )

    return change


def drift(part: float, low: float, high: float) -> Change:
    def change(state: State, rng: random.Random) -> State:
        count = max(1, round(part * len(state.tables)))
        chosen = set(rng.sample(range(len(state.tables)), count))
        return replace(
            state,
            tables=tuple(
                replace(each, pooling=each.pooling * rng.uniform(low, high))
                if i in chosen
                else each
                for i, each in enumerate(state.tables)
            ),
        )

    return change


def hosts(more: int) -> Change:
    return lambda state, _: replace(state, hosts=state.hosts + more)


def both(*changes: Change) -> Change:
    def change(state: State, rng: random.Random) -> State:
        for each in changes:
            state = each(state, rng)
        return state

    return change


CHANGES: dict[str, Change] = {
    "1 table added": add(1),
    "2 added, 1 removed": both(remove(1), add(2)),
    "3 removed": remove(3),
    "a tenth removed": lambda state, rng: remove(max(1, len(state.tables) // 10))(state, rng),
    "1 table grows by half": resize(0.0, 1.5),
    "a tenth grows by 10 %": resize(0.1, 1.1),
    "all pooling +-10 %": drift(1.0, 0.9, 1.1),
    "pooling of 3 doubles": drift(0.06, 2.0, 2.0),
    "host lost": hosts(-1),
    "host lost, 2 added": both(add(2), hosts(-1)),
    "host added": hosts(1),
}
HOST_LOST = ("host lost", "host lost, 2 added")
