"""A planner with custom functions: its cache, its errors, and what it refuses."""

import ctypes
import ctypes.util
import pickle
from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel

import fastplan
from fastplan import CostError, EmbeddingShardingPlanner
from fastplan.torchrec.planning import drafted
from tests.parity.compare import plan_record, quiet
from tests.parity.custom import DelegatingEnumerator, OwnFormulaConfig
from tests.parity.small import small, small_constraints, small_topology

FACTOR = 1.25
root = ctypes.CDLL(ctypes.util.find_library("m")).sqrt
root.argtypes, root.restype = [ctypes.c_double], ctypes.c_double


@fastplan.shard_cost
def slower(shard, out):
    out.fwd_compute = shard.stock.fwd_compute * FACTOR


@fastplan.shard_cost
def by_pointer(shard, out):
    out.fwd_compute = root(1.0 * shard.rows)


@fastplan.shard_cost
def negative(shard, out):
    if shard.table_dim == 16:
        out.bwd_comms = -1.0


@fastplan.plan_objective
def memory(ranks, out):
    out.rating = 1e-9 * ranks.hbm.max() + ranks.total.max()


def planned(**arguments: Any) -> tuple[Any, Any]:
    built = small(**arguments)
    planner = EmbeddingShardingPlanner(**built.planner_kwargs)
    with quiet():
        return planner, planner.plan(built.module, built.sharders)


def test_a_plan_is_kept_under_the_functions_it_was_made_with(tmp_path, monkeypatch):
    functions = {"shard_cost": slower, "objective": memory}
    found = {}
    for name in ("first", "second"):
        planner, plan = planned(cache=tmp_path, **functions)
        found[name] = planner.last_run.cache.status, planner.last_run.rating, plan_record(plan)
    assert (found["first"][0], found["second"][0]) == ("miss", "hit")
    assert found["first"][1:] == found["second"][1:]
    for arguments in ({}, {"shard_cost": slower}, {"objective": memory}):
        assert planned(cache=tmp_path, **arguments)[0].last_run.cache.status == "miss"
    monkeypatch.setitem(slower.__wrapped__.__globals__, "FACTOR", 1.5)
    assert planned(cache=tmp_path, **functions)[0].last_run.cache.status == "miss"


def test_a_plan_by_costs_of_before_is_not_kept_under_the_cost_of_now(tmp_path, monkeypatch):
    built = small(cache=tmp_path, shard_cost=slower)
    planner = EmbeddingShardingPlanner(**built.planner_kwargs)
    with quiet():
        planner.plan(built.module, built.sharders)
        before = planner.last_run.rating
        monkeypatch.setitem(globals(), "FACTOR", 2.5)
        planner.plan(built.module, built.sharders)
    # TorchRec's enumerator remembers its search space, and so does this one.
    assert planner.last_run.rating == before
    assert planner.last_run.cache.status == "off"
    assert "custom cost has changed since" in planner.last_run.cache.reason
    other, _ = planned(cache=tmp_path, shard_cost=slower)
    assert other.last_run.cache.reason == "no entry for this request"


def test_a_stored_plan_is_verified_with_the_functions(tmp_path, monkeypatch):
    functions = {"shard_cost": slower, "objective": memory}
    planned(cache=tmp_path, **functions)
    # As a compiler would that computes something else under the same fingerprint.
    for function in functions.values():
        monkeypatch.setattr(function, "fingerprint", function.fingerprint().__str__)
    monkeypatch.setitem(slower.__wrapped__.__globals__, "FACTOR", 1.5)
    report = planned(cache=tmp_path, **functions)[0].last_run.cache
    assert report.status == "miss" and "the rating is" in report.reason


def test_the_batch_size_is_part_of_the_key(tmp_path):
    # Half the samples with twice the values each: the same products, and another `shard.batch`.
    for batch, pooling in ((512, 4.0), (256, 8.0)):
        rules = small_constraints()
        for rule in rules.values():
            rule.pooling_factors = [pooling]
            rule.num_poolings = [1.0]
        planner, _ = planned(cache=tmp_path, batch_size=batch, constraints=rules, shard_cost=slower)
        assert planner.last_run.cache.status == "miss"


def test_what_has_no_fingerprint_is_planned_without_a_cache(tmp_path):
    planner, _ = planned(cache=tmp_path, shard_cost=by_pointer)
    report = planner.last_run.cache
    assert planner.last_run.engine == "native" and report.status == "off"
    assert "test_custom:by_pointer can't be fingerprinted: `root` is a _FuncPtr" in report.reason


def test_a_failing_cost_fails_the_plan_and_no_other_engine_takes_over():
    with pytest.raises(CostError, match=r"negative set `bwd_comms` to -1.0.*table table_2 as"):
        planned(shard_cost=negative)


def test_a_failing_cost_is_told_alike_where_python_enumerates():
    def enumerator() -> Any:
        topology = small_topology()
        estimators = fastplan.cost_estimators(negative, topology)
        return DelegatingEnumerator(topology, 512, None, estimators)

    with pytest.raises(CostError, match=r"negative set `bwd_comms` to -1.0.*table table_2 as"):
        planned(enumerator=enumerator())


def test_optimized_plans_are_rated_by_the_cost():
    budget = {"optimize": fastplan.Optimize(time_budget=None, move_budget=500)}
    ratings = [
        planned(shard_cost=cost, **settings)[0].last_run.rating
        for cost, settings in ((None, budget), (slower, budget), (slower, {}))
    ]
    assert ratings[0] < ratings[1] <= ratings[2]
    with pytest.raises(ValueError, match="minimises the largest rank: remove `objective`"):
        planned(objective=memory, mode="optimize")


def test_one_part_rates_plans():
    with pytest.raises(ValueError, match="`objective` and `performance_model` both rate plans"):
        planned(objective=memory, performance_model=NoopPerfModel(small_topology()))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"shard_cost": memory}, "`shard_cost` must be a function with @fastplan.shard_cost"),
        ({"objective": slower}, "must be a function with @fastplan.plan_objective"),
        (
            {"shard_cost": lambda shard, out: None},
            "`shard_cost` must be a function with @fastplan.shard_cost",
        ),
    ],
)
def test_functions_without_the_right_decorator_are_refused(arguments, text):
    with pytest.raises(TypeError, match=text):
        planned(**arguments)


def test_an_enumerator_keeps_its_one_cost():
    topology = small_topology()
    enumerator = EmbeddingEnumerator(topology, 512)
    for _ in range(2):
        planned(topology=topology, enumerator=enumerator, shard_cost=slower)
    assert len(enumerator._estimators) == 3
    with pytest.raises(ValueError, match=r"already has a cost, .*:slower"):
        planned(topology=topology, enumerator=enumerator, shard_cost=negative)


def test_an_enumerator_without_estimators_is_refused():
    with pytest.raises(TypeError, match="needs an enumerator with estimators"):
        planned(enumerator=DelegatingEnumerator(small_topology()), shard_cost=slower)


def test_formulas_in_python_and_a_cost_are_refused_with_the_reason():
    from torchrec.distributed.planner.estimator import EmbeddingPerfEstimatorFactory
    from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

    topology = small_topology()
    perf = EmbeddingPerfEstimatorFactory.create_with_config(OwnFormulaConfig(), topology=topology)
    estimators = [perf, EmbeddingStorageEstimator(topology)]
    enumerator = EmbeddingEnumerator(topology, 512, None, estimators)
    with pytest.raises(CostError, match="OwnFormulaConfig has its own `forward`"):
        planned(topology=topology, enumerator=enumerator, shard_cost=slower)


def test_a_cost_that_comes_too_early_is_told_so():
    topology = small_topology()
    perf, storage, cost = fastplan.cost_estimators(slower, topology)
    enumerator = EmbeddingEnumerator(topology, 512, None, [perf, cost, storage])
    with pytest.raises(CostError, match="a CostEstimator comes last"):
        planned(topology=topology, enumerator=enumerator)


def test_other_ranks_of_a_collective_start_compile_nothing():
    built = small(shard_cost=slower)
    planner = EmbeddingShardingPlanner(**built.planner_kwargs)
    with quiet():
        space = drafted(planner, built.module, built.sharders)
    assert space.request.pricing.function is slower
    assert space.unpriced().request.pricing is None


def test_planners_with_functions_are_pickled():
    planner, _ = planned(shard_cost=slower, objective=memory)
    again = pickle.loads(pickle.dumps(planner))
    assert again._perf_model.objective is memory
    assert again._enumerator._estimators[-1].cost is slower
