"""The planner's optimize mode: better plans, as TorchRec rates and loads them, and what is told."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer, GreedyProposer
from torchrec.distributed.planner.stats import _calculate_critical_path
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlanLoader, PlannerError
from torchrec.distributed.types import CacheParams

from fastplan import (
    Cache,
    ConstraintError,
    EmbeddingShardingPlanner,
    ObjectiveModel,
    Objectives,
    Optimize,
    explain_miss,
    load_plan,
    save_plan,
)
from fastplan.cache.stores import MemoryStore
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.planning import plan as planning
from fastplan.plans.file import read_plan
from fastplan.torchrec.search.backend import PlannerBackend
from tests.costs.samples import critical_path

MIB = 1 << 20
SHARDERS = [EmbeddingBagCollectionSharder()]
MOVES = Optimize(time_budget=None, move_budget=20_000)


def model(count: int = 9, rows: int = 9_000) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=64, num_embeddings=rows * (i + 3), feature_names=[f"f{i}"]
        )
        for i in range(count)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def arguments(memory: int = 1 << 34, **more: Any) -> dict[str, Any]:
    constraints = {f"t{i}": ParameterConstraints(pooling_factors=[1.5 + i]) for i in range(40)}
    cluster = Topology(
        world_size=4, compute_device="cuda", hbm_cap=memory, ddr_cap=0, local_world_size=2
    )
    return {"topology": cluster, "constraints": constraints, "stats": [], **more}


def planned(module: Any = None, **more: Any) -> tuple[Any, Any]:
    planner = EmbeddingShardingPlanner(**arguments(**more))
    return planner.plan(module or model(), SHARDERS), planner


def torchrec_rating(sort_by: SortBy) -> float:
    partitioner = GreedyPerfPartitioner(sort_by=sort_by)
    planner = TorchRecPlanner(**arguments(partitioner=partitioner))
    planner.plan(model(), SHARDERS)
    return planner._perf_model.rate(plan=planner._best_plan)


def test_the_plan_is_better_than_both_of_torchrecs_and_rated_by_torchrec_to_the_bit():
    plan, planner = planned(optimize=MOVES)
    run = planner.last_run
    ratings = {
        "default": torchrec_rating(SortBy.STORAGE),
        "perf_sorted": torchrec_rating(SortBy.PERF),
    }
    assert run.start_ratings == ratings
    assert run.rating < min(ratings.values())
    assert NoopPerfModel(planner._topology).rate(plan=planner._best_plan) == run.rating
    assert 0 < run.lower_bound <= run.rating
    assert run.gap == pytest.approx(run.rating / run.lower_bound - 1)
    assert (run.engine, run.not_optimized) == ("native", None)
    assert run.stopped_by in ("moves", "optimal")
    assert ", gap " in repr(run)
    assert {"search", "optimize"} <= set(run.seconds)
    assert len(plan.plan[""]) == 9


def test_the_plan_is_saved_and_loaded(tmp_path):
    plan, planner = planned(optimize=MOVES)
    save_plan(plan, tmp_path / "plan.json", planner=planner)
    assert load_plan(tmp_path / "plan.json", model()) == plan
    written = read_plan(tmp_path / "plan.json")
    assert float(written.notes["lower_bound"]) == planner.last_run.lower_bound


def test_a_saved_plan_has_its_certificate_whether_it_was_searched_or_cached(tmp_path):
    cache = Cache(MemoryStore())
    for status in ("miss", "hit"):
        plan, planner = planned(cache=cache, optimize=MOVES)
        assert planner.last_run.cache.status == status
        save_plan(plan, tmp_path / "plan.json", planner=planner)
        basis = read_plan(tmp_path / "plan.json").basis
        problem = Problem(estimate(basis.request), basis.cluster)
        bound = proven_bound(basis.certificate, basis.record.rating, problem, Objectives(), ())
        assert bound == planner.last_run.lower_bound


@pytest.mark.parametrize("threads", [1, 2])
def test_moves_seed_and_threads_decide_the_plan(threads):
    first, one = planned(optimize=replace(MOVES, threads=threads, seed=3))
    second, other = planned(optimize=replace(MOVES, threads=threads, seed=3))
    assert first == second
    assert one.last_run.rating == other.last_run.rating


def test_parity_is_the_default_and_tells_nothing_of_bounds():
    _, planner = planned()
    run = planner.last_run
    assert run.rating == torchrec_rating(SortBy.STORAGE)
    assert (run.lower_bound, run.gap, run.stopped_by, run.not_optimized) == (None,) * 4
    assert run.start_ratings == {}


def full(table_sizes: tuple[int, ...], sharding_type: str = "table_wise") -> dict[str, Any]:
    """Two ranks of 10 MiB for tables of so many MiB."""
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=64, num_embeddings=size * 4096, feature_names=[f"f{i}"]
        )
        for i, size in enumerate(table_sizes)
    ]
    rule = ParameterConstraints(sharding_types=[sharding_type], compute_kernels=["fused"])
    return {
        "module": EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
        "topology": Topology(
            world_size=2, compute_device="cuda", hbm_cap=10 * MIB + MIB // 2, ddr_cap=0
        ),
        "constraints": {f"t{i}": rule for i in range(len(tables))},
        "storage_reservation": FixedPercentageStorageReservation(0.0),
        "batch_size": 1,
    }


def test_a_plan_is_found_where_torchrec_finds_none():
    # Largest first, 5 + 4 and 5 + 3 leave no room for the last 3; 5 + 5 and 4 + 3 + 3 do.
    case = full((5, 5, 4, 3, 3))
    module = case.pop("module")
    with pytest.raises(PlannerError):
        planned(module, **case)
    _, planner = planned(module, **case, optimize=MOVES)
    run = planner.last_run
    assert run.start_ratings == {"default": math.inf, "perf_sorted": math.inf}
    assert NoopPerfModel(planner._topology).rate(plan=planner._best_plan) == run.rating


def test_without_any_plan_the_error_is_torchrecs():
    case = full((5, 5, 5, 5, 5))
    module = case.pop("module")
    with pytest.raises(PlannerError) as theirs:
        TorchRecPlanner(**arguments(**case)).plan(module, SHARDERS)
    with pytest.raises(PlannerError) as ours:
        planned(module, **case, optimize=MOVES)
    assert ours.value.error_type == theirs.value.error_type
    assert str(ours.value) == str(theirs.value)


def test_a_cache_keeps_modes_and_settings_apart():
    cache = Cache(MemoryStore())
    _, parity = planned(cache=cache)
    _, better = planned(cache=cache, optimize=MOVES)
    assert better.last_run.cache.status == "miss"
    assert better.last_run.rating < parity.last_run.rating
    assert "optimize" in str(explain_miss(better.last_run.cache, cache))
    _, again = planned(cache=cache)
    assert again.last_run.cache.status == "hit"
    assert again.last_run.rating == parity.last_run.rating
    _, other_seed = planned(cache=cache, optimize=replace(MOVES, seed=1))
    assert other_seed.last_run.cache.status == "miss"


def test_a_plan_that_an_interrupt_cut_short_is_not_kept(monkeypatch):
    found = planning.improve
    monkeypatch.setattr(
        planning,
        "improve",
        lambda *args, **more: replace(found(*args, **more), stopped_by="interrupted"),
    )
    cache = Cache(MemoryStore())
    for _ in range(2):
        _, planner = planned(cache=cache, optimize=MOVES)
        assert planner.last_run.stopped_by == "interrupted"
        assert planner.last_run.cache.status == "miss"


class Halving(NoopPerfModel):
    def rate(self, plan: Any) -> float:
        return super().rate(plan) / 2


class Fingerprinted(Halving):
    def fingerprint(self) -> str:
        return "halves"


class Loader(PlanLoader):
    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def load(self) -> Any:
        return {option.storage_hash(): option for option in self._plan}

    def plan_context_hash(self) -> None:
        return None


def test_python_parts_are_named_as_the_reason():
    cluster = arguments()["topology"]
    _, planner = planned(performance_model=Halving(cluster), optimize=MOVES)
    run = planner.last_run
    assert run.engine == "mixed"
    assert run.not_optimized == f"a part of the search is Python: {run.reason}"
    assert "Halving" in run.not_optimized


def test_another_objective_is_named_as_the_reason():
    cluster = arguments()["topology"]
    _, planner = planned(performance_model=ObjectiveModel(critical_path, cluster), optimize=MOVES)
    assert "critical_path" in planner.last_run.not_optimized


def test_the_scale_up_proposer_is_named_as_the_reason():
    offloaded = ParameterConstraints(
        sharding_types=["table_wise"],
        compute_kernels=["fused_uvm_caching"],
        cache_params=CacheParams(load_factor=0.1),
    )
    _, planner = planned(
        model(2),
        proposer=[GreedyProposer(), EmbeddingOffloadScaleupProposer()],
        constraints={"t0": offloaded, "t1": offloaded},
        topology=Topology(world_size=2, compute_device="cuda"),
        optimize=MOVES,
    )
    assert "scale-up" in planner.last_run.not_optimized


def test_a_plan_by_torchrec_itself_is_named_as_the_reason(monkeypatch):
    from fastplan.torchrec.compat import NotNative

    def refuse(*_: Any) -> None:
        raise NotNative("this test says so")

    monkeypatch.setattr(PlannerBackend, "search", refuse)
    _, planner = planned(model(2), optimize=MOVES)
    assert planner.last_run.engine == "torchrec"
    assert planner.last_run.not_optimized == "TorchRec's own code planned: this test says so"


def test_a_loaded_plan_is_named_as_the_reason():
    _, first = planned()
    _, planner = planned(plan_loader=Loader(first._best_plan), optimize=MOVES)
    assert planner.last_run.not_optimized == "the plan comes from the plan loader"


def test_a_memory_balanced_planner_is_improved_too():
    _, planner = planned(partitioner=MemoryBalancedPartitioner(), optimize=MOVES)
    run = planner.last_run
    assert run.rating <= min(run.start_ratings.values())


def test_the_critical_path_is_the_one_of_torchrecs_statistics():
    wanted = Objectives(minimize="critical_path", within=0.2)
    _, planner = planned(optimize=replace(MOVES, objectives=wanted))
    run = planner.last_run
    path = _calculate_critical_path(planner._best_plan).total()
    assert run.objective == pytest.approx(path, rel=1e-12)
    assert run.objective <= run.objective_before
    assert NoopPerfModel(planner._topology).rate(plan=planner._best_plan) == run.rating


def test_pins_are_kept_to_the_rank():
    wanted = Objectives(pins={"t3": 2, "t5": 2}, together=[["t0", "t1"]])
    plan, planner = planned(optimize=replace(MOVES, objectives=wanted))
    ranks = {name: table.ranks for name, table in plan.plan[""].items()}
    assert set(ranks["t3"]) == set(ranks["t5"]) == {2}
    assert ranks["t0"] == ranks["t1"]
    assert planner.last_run.lower_bound <= planner.last_run.rating


def test_pins_that_nobody_can_keep_are_an_error():
    with pytest.raises(ConstraintError, match="no table nobody"):
        planned(optimize=replace(MOVES, objectives=Objectives(pins={"nobody": 0})))
    with pytest.raises(ConstraintError, match="Halving"):
        cluster = arguments()["topology"]
        rules = Objectives(pins={"t0": 0})
        planned(performance_model=Halving(cluster), optimize=replace(MOVES, objectives=rules))


def test_objectives_are_part_of_the_cache_key():
    cache = Cache(MemoryStore())
    planned(cache=cache, optimize=MOVES)
    _, pinned = planned(cache=cache, optimize=replace(MOVES, objectives=Objectives(pins={"t0": 1})))
    assert pinned.last_run.cache.status == "miss"


def test_an_unsound_plan_is_not_taken(monkeypatch):
    found = planning.improve
    monkeypatch.setattr(
        planning, "improve", lambda *args, **more: replace(found(*args, **more), rating=1.0)
    )
    _, planner = planned(optimize=MOVES)
    assert "failed verification" in planner.last_run.not_optimized
    assert planner.last_run.rating == torchrec_rating(SortBy.STORAGE)


def test_an_unknown_mode_is_refused_by_name():
    with pytest.raises(ValueError, match='`mode` must be "parity" or "optimize"'):
        EmbeddingShardingPlanner(**arguments(), mode="best")


def test_settings_of_another_type_are_refused_by_name():
    with pytest.raises(TypeError, match=r"`optimize` must be a fastplan\.Optimize or None, not Tr"):
        EmbeddingShardingPlanner(**arguments(), optimize=True)
