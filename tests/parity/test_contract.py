"""What code around a planner relies on: the class, its attributes, the plan object."""

import copy
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel, NoopStorageModel
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from .compare import assert_same, options_record, plan_record, run, topology_record
from .models import make_sharder
from .small import (
    assert_agree,
    assert_engine,
    cramped,
    dense_model,
    small,
    small_constraints,
    small_model,
    small_topology,
)
from .subject import SELF_CHECK, TORCHREC_VERSION, FastPlanner, TorchRecPlanner

PLANNERS = pytest.mark.parametrize(
    "planner_class", [TorchRecPlanner, FastPlanner], ids=["torchrec", "fastplan"]
)
ONLY_FASTPLAN = pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner has no last_run")
FROM_1_9 = pytest.mark.skipif(TORCHREC_VERSION < (1, 9), reason="new in TorchRec 1.9")


def planned() -> Any:
    """fastplan's planner after a run on the small model."""
    built = small(constraints=small_constraints())
    planner = FastPlanner(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    return planner


def test_class_is_torchrecs_under_the_same_name() -> None:
    assert issubclass(FastPlanner, TorchRecPlanner)
    assert FastPlanner.__name__ == TorchRecPlanner.__name__


def test_constructor_has_torchrecs_parameters_and_only_keywords_beyond() -> None:
    expected = list(inspect.signature(TorchRecPlanner).parameters.values())
    actual = list(inspect.signature(FastPlanner).parameters.values())
    head = [(p.name, p.kind, p.default) for p in actual[: len(expected)]]
    assert head == [(p.name, p.kind, p.default) for p in expected]
    beyond = {p.kind for p in actual[len(expected) :]}
    assert beyond <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_positional_arguments_mean_the_same() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        topology, constraints = small_topology(), small_constraints()
        planner = planner_class(
            topology,
            64,
            EmbeddingEnumerator(topology, 64, constraints),
            FixedPercentageStorageReservation(0.2),
            [UniformProposer(), GreedyProposer()],
            GreedyPerfPartitioner(),
            NoopPerfModel(topology),
            [],
            constraints,
            False,
            [lambda options: options],
            500,
            None,
        )
        records.append(run(planner, small_model(), [make_sharder("bag", None, None)]))
    assert_same(*records)


@pytest.mark.parametrize("seconds", [0, -3])
@PLANNERS
def test_timeout_must_be_positive(planner_class: type, seconds: int) -> None:
    with pytest.raises(AssertionError, match="Timeout must be positive"):
        planner_class(topology=small_topology(), timeout_seconds=seconds)


def test_nothing_is_planned_before_plan() -> None:
    planner = FastPlanner(topology=small_topology())
    assert planner._best_plan is None
    assert (planner._num_proposals, planner._num_plans) == (0, 0)
    assert planner._enumerator.last_stored_search_space is None
    assert planner._storage_reservation.last_reserved_topology is None


def test_subclass_may_replace_the_topology_and_call_super_plan() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):

        class Wrapping(planner_class):
            def plan(self, module: nn.Module, sharders: list[Any]) -> ShardingPlan:
                self._topology = small_topology(hbm=24 * 1024**2)
                return super().plan(module, sharders)

        built = small()
        records.append(run(Wrapping(**built.planner_kwargs), built.module, built.sharders))
    assert_same(*records)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("_topology", lambda: small_topology(hbm=24 * 1024**2)),
        ("_topology", lambda: small_topology(hbm=1024**2)),
        ("_proposers", lambda: [UniformProposer()]),
        ("_partitioner", lambda: GreedyPerfPartitioner(balance_modules=True)),
        ("_perf_model", lambda: NoopStorageModel(small_topology())),
        ("_batch_size", lambda: 9999),
        ("_constraints", lambda: small_constraints(sharding_types=["table_wise"])),
        ("_storage_reservation", lambda: FixedPercentageStorageReservation(0.9)),
    ],
)
def test_attribute_replaced_before_plan_counts(name: str, make: Any) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small()
        planner = planner_class(**built.planner_kwargs)
        setattr(planner, name, make())
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)


def test_search_space_is_a_list_of_options() -> None:
    search_space = planned()._enumerator.last_stored_search_space
    assert isinstance(search_space, list)
    assert all(isinstance(option, ShardingOption) for option in search_space)
    assert len(search_space) == len(list(search_space)) > 0
    assert search_space[-1] is search_space[len(search_space) - 1]
    assert search_space[1:3] == [search_space[1], search_space[2]]


def test_copied_search_space_is_independent() -> None:
    search_space = planned()._enumerator.last_stored_search_space
    before = options_record(search_space)
    copied = copy.deepcopy(search_space)
    assert_same(before, options_record(copied))
    copied[0].shards[0].perf.fwd_compute += 1.0
    copied[0].shards[0].size[0] += 1
    assert_same(before, options_record(search_space))


def test_search_space_and_best_plan_share_no_shard() -> None:
    planner = planned()
    before = options_record(planner._enumerator.last_stored_search_space)
    for option in planner._best_plan:
        for shard in option.shards:
            shard.rank = 77
            shard.storage.hbm = -1
    assert_same(before, options_record(planner._enumerator.last_stored_search_space))


@PLANNERS
def test_options_refer_to_the_models_own_tensors_and_modules(planner_class: type) -> None:
    built = small()
    planner = planner_class(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    parameters = built.sharders[0].shardable_parameters(built.module)
    for option in [*planner._best_plan, *planner._enumerator.last_stored_search_space]:
        assert option.tensor is parameters[option.name]
        assert option.module[1] is built.module


def test_enumerator_returns_the_stored_search_space_for_the_same_model() -> None:
    built = small()
    planner = FastPlanner(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    again = planner._enumerator.enumerate(built.module, built.sharders)
    stored = planner._enumerator.last_stored_search_space
    assert_same(options_record(stored), options_record(again))
    assert not {id(option) for option in again} & {id(option) for option in stored}


def test_reserved_topology_is_torchrecs() -> None:
    expected = TorchRecPlanner(**small().planner_kwargs)
    expected.plan(small_model(), [make_sharder("bag", None, None)])
    actual = FastPlanner(**small().planner_kwargs)
    actual.plan(small_model(), [make_sharder("bag", None, None)])
    reserved = [p._storage_reservation.last_reserved_topology for p in (expected, actual)]
    assert topology_record(reserved[0]) == topology_record(reserved[1])
    assert repr(reserved[0]) == repr(reserved[1])


def test_plan_is_torchrecs_type_and_equal_to_torchrecs_plan() -> None:
    plans = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small()
        planner = planner_class(**built.planner_kwargs)
        plans.append(planner.plan(built.module, built.sharders))
    assert type(plans[1]) is ShardingPlan
    assert type(plans[1].plan[""]) is EmbeddingModuleShardingPlan
    assert plans[0] == plans[1]
    assert str(plans[0]) == str(plans[1])


def test_plan_survives_pickling() -> None:
    built = small()
    plan = FastPlanner(**built.planner_kwargs).plan(built.module, built.sharders)
    restored = pickle.loads(pickle.dumps(plan))
    assert restored == plan
    assert_same(plan_record(plan), plan_record(restored))


def test_plan_may_be_edited_and_leaves_the_planner_alone() -> None:
    planner = planned()
    before = options_record(planner._best_plan)
    built = small(constraints=small_constraints())
    plan = planner.plan(built.module, built.sharders)
    tables = plan.plan[""]
    tables["table_0"].compute_kernel = "fused_uvm"
    tables["table_0"].ranks[0] = 3
    del tables["table_1"]
    plan.plan["elsewhere"] = EmbeddingModuleShardingPlan()
    assert list(plan.plan) == ["", "elsewhere"]
    assert_same(before, options_record(planner._best_plan))


@pytest.mark.parametrize(
    "arguments",
    [
        dict,
        lambda: {"proposer": GreedyProposer(threshold=2)},
        lambda: {"proposer": [DynamicProgrammingProposer(10), UniformProposer()]},
        lambda: {"proposer": DynamicProgrammingProposer(10)},
        cramped,
    ],
    ids=["default", "threshold", "dynamic-and-uniform", "dynamic", "infeasible"],
)
def test_planning_again_does_what_torchrec_does(arguments: Any) -> None:
    """Proposers keep state across runs, and the enumerator keeps the last search space."""
    classes = (TorchRecPlanner, FastPlanner)
    planners = [planner(**small(**arguments()).planner_kwargs) for planner in classes]
    sharders = [make_sharder("bag", None, None)]
    for module in [small_model(), small_model(2), dense_model()]:
        for _ in range(2):
            assert_same(*[run(planner, module, sharders) for planner in planners])


def test_context_hashes_are_torchrecs() -> None:
    planners = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(constraints=small_constraints())
        planners.append(planner_class(**built.planner_kwargs))
        planners[-1].plan(built.module, built.sharders)
    expected, actual = planners
    assert actual.hash_planner_context_inputs() == expected.hash_planner_context_inputs()
    assert actual.hash_planner_context_inputs_str() == expected.hash_planner_context_inputs_str()


@PLANNERS
def test_context_hash_needs_a_search_space(planner_class: type) -> None:
    planner = planner_class(topology=small_topology())
    with pytest.raises(AssertionError, match="precomputed search space"):
        planner.hash_planner_context_inputs()


def test_another_objective_is_rated_in_python_around_native_parts() -> None:
    _, planner = assert_agree(lambda: small(performance_model=NoopStorageModel(small_topology())))
    assert_engine(planner, "mixed")


@ONLY_FASTPLAN
def test_last_run_repeats_the_counters_and_the_rating() -> None:
    planner = planned()
    last_run = planner.last_run
    assert_engine(planner, "native")
    assert last_run.rating == planner._perf_model.rate(planner._best_plan)
    assert (last_run.proposals, last_run.plans) == (planner._num_proposals, planner._num_plans)
    assert sum(last_run.seconds.values()) == pytest.approx(2 * last_run.seconds["total"])


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_collective_plan_and_default_topology_work_in_a_process_group() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        planner = planner_class(stats=[])
        plan = planner.collective_plan(small_model(), [make_sharder("bag", None, None)])
        records.append(plan_record(plan))
    assert_same(*records)


@PLANNERS
def test_collective_plan_needs_a_process_group(planner_class: type) -> None:
    planner = planner_class(topology=small_topology())
    with pytest.raises(AssertionError, match="default process group is not yet initialized"):
        planner.collective_plan(small_model(), [])


@FROM_1_9
def test_selected_options_and_search_space_are_empty_before_plan() -> None:
    planner = FastPlanner(topology=small_topology())
    assert planner.get_selected_options() == []
    assert planner.get_search_space() is None


@FROM_1_9
@pytest.mark.parametrize("arguments", [dict, cramped], ids=["feasible", "infeasible"])
def test_selected_options_and_search_space_are_torchrecs(arguments: Any) -> None:
    planners = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(**arguments())
        planners.append(planner_class(**built.planner_kwargs))
        run(planners[-1], built.module, built.sharders)
    expected, actual = planners
    for read in ("get_selected_options", "get_search_space"):
        assert_same(
            options_record(getattr(expected, read)()), options_record(getattr(actual, read)())
        )
    assert actual._search_space is actual.get_search_space()


@FROM_1_9
def test_search_space_of_a_model_without_tables_is_empty() -> None:
    planner = FastPlanner(topology=small_topology())
    planner.plan(dense_model(), [make_sharder("bag", None, None)])
    assert planner.get_search_space() == []
