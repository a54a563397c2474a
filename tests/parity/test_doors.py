"""The planner and the command line plan alike: one request has one plan, whoever asks.

Models are drawn. One side is the planner with a real module, the other a spec that was exported
from it. They must agree in plan, rating, key, moved bytes, bound and reasons, and find each other's
plans in a cache.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import PlannerError

from fastplan import Cache, EmbeddingShardingPlanner, Objectives, Replan
from fastplan.cache.stores import MemoryStore
from fastplan.engine.layout import layout_of
from fastplan.engine.optimize import Optimize
from fastplan.model.plan import Plan
from fastplan.planning.plan import plan
from fastplan.spec.lower import lower
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.state import basis_of_planner

from .compare import quiet
from .subject import SELF_CHECK

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec has one door")

GIB = 1 << 30
SHARDERS = [EmbeddingBagCollectionSharder()]
MOVES = Optimize(time_budget=None, move_budget=1_500)
POLICIES = tuple(
    Replan(move_budget=2_000, **settings)
    for settings in (
        {},
        {"max_moved": 1.0, "slack": 0.2},
        {"max_changed": 0.0},
        {"max_moved": 0.0, "slack": 0.0},
        {"reference": "scratch"},
    )
)
# More seeds draw more of the same: `make test-long` runs those.
SEEDS = range(100)
SOME = [pytest.param(seed, marks=[pytest.mark.long] if seed >= 40 else []) for seed in SEEDS]


@dataclass(frozen=True)
class Model:
    """A drawn model and cluster."""

    rows: tuple[int, ...]
    dims: tuple[int, ...]
    pooling: tuple[float, ...]
    ranks: int
    hbm: int
    ddr: int = 128 * GIB

    def module(self) -> EmbeddingBagCollection:
        return EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(
                    name=f"t{i}", embedding_dim=dim, num_embeddings=rows, feature_names=[f"f{i}"]
                )
                for i, (rows, dim) in enumerate(zip(self.rows, self.dims, strict=True))
            ],
        )

    def planner(self, **arguments: Any) -> EmbeddingShardingPlanner:
        rules = {
            f"t{i}": ParameterConstraints(pooling_factors=[factor])
            for i, factor in enumerate(self.pooling)
        }
        topology = Topology(
            world_size=self.ranks,
            local_world_size=min(4, self.ranks),
            compute_device="cuda",
            hbm_cap=self.hbm,
            ddr_cap=self.ddr,
        )
        return EmbeddingShardingPlanner(
            topology=topology,
            batch_size=256,
            constraints=rules,
            stats=[],
            deterministic=True,
            **arguments,
        )


def draw_model(draw: random.Random) -> Model:
    count = draw.randint(10, 20)
    rows = tuple(int(10 ** draw.uniform(2, 6.7)) for _ in range(count))
    dims = tuple(draw.choice([16, 64, 128, 256]) for _ in range(count))
    size = sum(r * d * 4 for r, d in zip(rows, dims, strict=True))
    ranks = draw.choice([2, 4, 8])
    room = draw.choice([1.4, 2.5, 20.0])
    return Model(
        rows=rows,
        dims=dims,
        pooling=tuple(draw.uniform(1, 40) for _ in range(count)),
        ranks=ranks,
        hbm=int(size * room / ranks) + 2 * GIB,
    )


def changed(model: Model, draw: random.Random) -> Model:
    """The same model a while later."""
    what = draw.choice(["pooling", "pooling", "rows", "ranks", "nothing", "much"])
    if what == "ranks":
        return replace(model, ranks={2: 4, 4: 8, 8: 4}[model.ranks])
    if what == "nothing":
        return model
    few = range(len(model.rows)) if what == "much" else [draw.randrange(len(model.rows))]
    if what == "rows":
        rows = tuple(n + n // 3 if i in few else n for i, n in enumerate(model.rows))
        return replace(model, rows=rows)
    pooling = tuple(f * 1.5 if i in few else f for i, f in enumerate(model.pooling))
    return replace(model, pooling=pooling)


def by_planner(model: Model, **arguments: Any) -> dict[str, Any]:
    planner = model.planner(**arguments)
    found = True
    try:
        with quiet():
            planner.plan(model.module(), SHARDERS)
    except PlannerError:
        found = False
    run = planner.last_run
    record = planner._fastplan.result.record if found else None
    return compared_facts(record, run.cache, run.replan, run.lower_bound)


def by_spec(model: Model, previous: Plan | None = None, **arguments: Any) -> dict[str, Any]:
    with quiet():
        spec = export_spec(model.planner(), model.module(), SHARDERS)
    job = lower(spec)
    cache = arguments.get("cache")
    optimization = arguments.get("optimize")
    if previous is None:
        planned = plan(job, cache=cache, optimize=optimization)
    else:
        planned = plan(
            job, cache=cache, optimize=optimization, previous=previous, replan=arguments["replan"]
        )
    return compared_facts(planned.record, planned.cache, planned.replan, planned.lower_bound)


def compared_facts(record: Any, cache: Any, replan: Any, bound: float | None) -> dict[str, Any]:
    """What both doors must agree in."""
    facts: dict[str, Any] = {"status": cache.status, "key": cache.fingerprint, "bound": bound}
    if record is not None:
        facts["rating"] = record.rating.hex()
        for name in ("table", "sharding_type", "kernel", "ranks"):
            facts[name] = getattr(record, name).tolist()
        assert np.isnan(record.load_factor).all()
    if replan is not None:
        facts |= {
            "followed": replan.followed,
            "moved": (replan.moved, replan.least, replan.held),
            "scratch": replan.scratch_rating,
            "reason": replan.reason,
        }
    return facts


def previous_plan(model: Model) -> Plan | None:
    planner = model.planner()
    try:
        with quiet():
            planner.plan(model.module(), SHARDERS)
    except PlannerError:
        return None
    basis = basis_of_planner(planner)
    layout = layout_of(basis.request, basis.cluster, basis.record)
    return Plan(name="previous plan", layout=layout, basis=basis)


def both(model: Model, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both doors, each with an empty cache."""
    return tuple(
        door(model, cache=Cache(MemoryStore()), **arguments) for door in (by_planner, by_spec)
    )


@pytest.mark.parametrize("seed", SOME)
def test_both_doors_find_one_plan(seed: int) -> None:
    draw = random.Random(f"doors {seed}")
    model = draw_model(draw)
    one, other = both(model)
    assert one == other
    shared = Cache(MemoryStore())
    for door, status in ((by_spec, "miss"), (by_planner, "hit"), (by_spec, "hit")):
        found = door(model, cache=shared)
        assert found == {**one, "status": status if "rating" in one else "miss"}


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_both_doors_improve_a_plan_alike(seed: int) -> None:
    draw = random.Random(f"optimize {seed}")
    model = draw_model(draw)
    pins = Objectives(pins={"t0": 1, "t1": 0}) if seed % 2 else Objectives()
    one, other = both(model, optimize=replace(MOVES, objectives=pins))
    assert one == other


@pytest.mark.parametrize("seed", SOME)
def test_both_doors_follow_a_plan_alike(seed: int) -> None:
    draw = random.Random(f"follow {seed}")
    before = draw_model(draw)
    previous = previous_plan(before)
    if previous is None:
        return
    policy = POLICIES[seed % len(POLICIES)]
    one, other = both(changed(before, draw), previous=previous, replan=policy)
    assert one == other


@pytest.mark.parametrize("seed", SEEDS[::10])
def test_neither_door_has_a_plan_where_nothing_fits(seed: int) -> None:
    drawn = draw_model(random.Random(f"tight {seed}"))
    rows = (20_000_000,) * len(drawn.rows)
    model = replace(drawn, rows=rows, hbm=GIB, ddr=GIB)
    one, other = both(model)
    assert one == other
    assert "rating" not in one


def test_the_drawn_plans_are_followed_left_and_out_of_reach() -> None:
    outcomes = set()
    for seed in SEEDS[:40]:
        draw = random.Random(f"follow {seed}")
        before = draw_model(draw)
        previous = previous_plan(before)
        if previous is not None:
            policy = POLICIES[seed % len(POLICIES)]
            found = by_planner(changed(before, draw), previous=previous, replan=policy)
            outcomes.add((found.get("followed"), found.get("scratch") is None))
    assert {(True, True), (True, False), (False, False)} <= outcomes
