"""What frameworks do to planners: subclass them with names of their own, patch what they call,
change things for one plan and put them back."""

from typing import Any

import numpy as np
import pytest
from torchrec.distributed.planner import partitioners, planners, proposers, shard_estimators
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingPlannerBase
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import ShardingPlan
from torchrec.distributed.types import CacheParams

from .compare import assert_same, options_record, plan_record, run
from .small import MIB, assert_engine, small, small_constraints, small_topology
from .subject import SELF_CHECK, FastPlanner, TorchRecPlanner


def both(record: Any) -> Any:
    """Whether `record(planner class)` is the same of both; returns fastplan's."""
    expected, actual = record(TorchRecPlanner), record(FastPlanner)
    assert_same(expected, actual)
    return actual


def named(planner_class: type) -> dict[str, Any]:
    class Framework(planner_class):  # type: ignore[misc,valid-type]
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self._plan, self._cache, self._state, self._run = None, {}, "mine", 1

        def _search(self) -> None: ...

        def _build(self) -> None: ...

        def plan(self, module: Any, sharders: Any) -> ShardingPlan:
            self._plan = super().plan(module, sharders)
            return self._plan

    built = small()
    planner = Framework(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    return run(planner, built.module, built.sharders)


def test_subclasses_name_their_attributes_as_they_like() -> None:
    both(named)


def test_a_subclass_may_leave_out_the_constructor() -> None:
    def record(planner_class: type) -> dict[str, Any]:
        class Bare(planner_class):  # type: ignore[misc,valid-type]
            def __init__(self, **arguments: Any) -> None:
                other = TorchRecPlanner(**arguments)
                EmbeddingPlannerBase.__init__(self, topology=arguments["topology"])
                self.__dict__.update(vars(other))

        built = small()
        return run(Bare(**built.planner_kwargs), built.module, built.sharders)

    both(record)


def replaced(name: str) -> Any:
    """A function of somebody else's for a name, and where it goes."""
    if name == "build":
        stock = planners.to_sharding_plan

        def build(options: Any, topology: Any) -> ShardingPlan:
            plan = stock(options, topology)
            for tables in plan.plan.values():
                for sharding in tables.values():
                    sharding.compute_kernel = "customized_kernel"
            return plan

        return planners, "to_sharding_plan", build
    if name == "storage":
        storages = shard_estimators.calculate_shard_storages
        return (
            shard_estimators,
            "calculate_shard_storages",
            lambda *args, **kwargs: storages(*args, **kwargs)[::-1],
        )
    holder, method = {
        "enumerate": (EmbeddingEnumerator, "enumerate"),
        "partition": (partitioners.GreedyPerfPartitioner, "partition"),
        "feedback": (proposers.GreedyProposer, "feedback"),
        "estimate": (shard_estimators.EmbeddingStorageEstimator, "estimate"),
        "rate": (NoopPerfModel, "rate"),
    }[name]
    called = vars(holder)[method]

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        counted.calls += 1  # type: ignore[attr-defined]
        return called(self, *args, **kwargs)

    counted.calls = 0  # type: ignore[attr-defined]
    return holder, method, counted


@pytest.mark.parametrize("name", ["build", "storage"])
def test_functions_in_torchrecs_place_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*replaced(name))

    def record(planner_class: type) -> dict[str, Any]:
        built = small()
        planner = planner_class(**built.planner_kwargs)
        plan = planner.plan(built.module, built.sharders)
        return {"plan": plan_record(plan), "best": options_record(planner._best_plan)}

    both(record)


@pytest.mark.parametrize("name", ["enumerate", "partition", "feedback", "estimate", "rate"])
@pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner has no last_run")
def test_methods_in_torchrecs_place_are_called_and_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, method, counted = replaced(name)
    monkeypatch.setattr(holder, method, counted)
    built = small()
    planner = FastPlanner(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    assert counted.calls > 0
    assert_engine(planner, "mixed")


def test_the_table_of_statistics_is_of_the_topology_that_was_planned_for() -> None:
    def record(planner_class: type) -> list[str]:
        class Half(planner_class):  # type: ignore[misc,valid-type]
            def plan(self, module: Any, sharders: Any) -> ShardingPlan:
                whole, self._topology = self._topology, small_topology(hbm=64 * MIB)
                try:
                    return super().plan(module, sharders)
                finally:
                    self._topology = whole

        built = small(stats=EmbeddingStats())
        planner = Half(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        return [line for line in planner._stats[0]._stats_table if "ran for" not in line]

    both(record)


@pytest.mark.parametrize("again", [False, True], ids=["read", "planned again"])
def test_options_and_plans_are_of_the_constraints_that_were_planned_for(again: bool) -> None:
    def record(planner_class: type) -> Any:
        rules = small_constraints(cache_params=CacheParams(load_factor=0.3), enforce_hbm=True)
        built = small(constraints=rules)
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        for rule in rules.values():
            rule.cache_params.load_factor, rule.enforce_hbm = 0.9, False
            rule.pooling_factors[0] = 99.0
        planner._enumerator._batch_size = 7
        if again:
            return run(planner, built.module, built.sharders)
        space = planner._enumerator.last_stored_search_space
        return [options_record(planner._best_plan), options_record(space)]

    both(record)


def test_numbers_that_round_otherwise_are_left_to_torchrec() -> None:
    def record(planner_class: type) -> dict[str, Any]:
        rules = small_constraints()
        for rule in rules.values():
            rule.pooling_factors = [np.float32(1.1)]
        built = small(constraints=rules)
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        return {"rating": float(planner._perf_model.rate(plan=planner._best_plan)).hex()}

    both(record)


def test_a_list_of_sharders_that_grows_is_the_one_torchrec_remembers() -> None:
    def record(planner_class: type) -> dict[str, Any]:
        built = small()
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        built.sharders.append(built.sharders[0])
        return run(planner, built.module, built.sharders)

    both(record)
