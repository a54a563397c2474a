"""A stored plan is what the planner returns, TorchRec's own and fastplan's, without a search."""

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType
from torchrec.distributed.types import ShardingPlan

from fastplan.torchrec.loader import CONTEXT_NOTE, StoredPlanLoader
from fastplan.torchrec.plan_files import PlanFileError, PlanMismatch, save_plan
from tests.parity.compare import plan_record, quiet
from tests.parity.instances import Built, make_instance
from tests.parity.small import small, small_constraints, small_model
from tests.parity.subject import FastPlanner, TorchRecPlanner

from .plans import SEEDS, made, one_table

PLANNERS = pytest.mark.parametrize(
    "planner_class", [TorchRecPlanner, FastPlanner], ids=["torchrec", "fastplan"]
)
# TorchRec orders a loaded plan by its search space; these proposers do not.
REORDERED = ("dynamic",)
# A loaded plan has the load factors of the constraints; these proposers change them.
RESCALED = ("scaleup", "scaleup_failing")
# The plan of this model has no place for one of its tables: TorchRec would skip that table.
INCOMPLETE = (63,)


def family(seed: int) -> str:
    return make_instance(seed).family


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def planned(planner_class: Any, built: Built, loader: Any) -> tuple[ShardingPlan, Any]:
    with quiet():
        planner = planner_class(**built.planner_kwargs, plan_loader=loader)
        return planner.plan(built.module, built.sharders), planner


def loader_of(source: Any, built: Built) -> StoredPlanLoader:
    """The loader for a model with its sharders."""
    return StoredPlanLoader(source, built.module, sharders=built.sharders)


def by_table(plan: ShardingPlan) -> dict[str, Any]:
    """The plan's record regardless of the order of tables."""
    record = plan_record(plan)
    for tables in record.values():
        if isinstance(tables, dict):
            tables["tables"].sort()
    return record


def moved(built: Built) -> ShardingPlan:
    """A plan unlike a fresh one: tables that lie on one rank all lie on the last."""
    plan = FastPlanner(**built.planner_kwargs).plan(built.module, built.sharders)
    last = built.planner_kwargs["topology"].world_size - 1
    tables = [table for tables in plan.plan.values() for table in tables.values()]
    placement = next(
        shard.placement
        for table in tables
        if table.sharding_type == "row_wise"
        for shard in table.sharding_spec.shards
        if shard.placement.rank() == last
    )
    single = [table for table in tables if len(table.ranks) == 1]
    assert single
    for table in single:
        table.ranks = [last]
        table.sharding_spec.shards[0].placement = placement
    return plan


def mixed() -> Built:
    """Four tables, two of which must be row-wise and two table-wise."""
    constraints = small_constraints()
    for i, rule in enumerate(constraints.values()):
        rule.sharding_types = ["row_wise" if i % 2 else "table_wise"]
    return small(constraints=constraints)


@PLANNERS
@pytest.mark.parametrize("seed", [s for s in SEEDS[:60] if family(s) not in RESCALED])
def test_the_stored_plan_is_returned(planner_class: Any, seed: int, file: Path) -> None:
    instance = make_instance(seed)
    plan, _ = made(seed)
    save_plan(plan, file)
    again = instance.build()
    if seed in INCOMPLETE:
        with pytest.raises(PlanMismatch, match="not in the plan: table_0_1"):
            loader_of(file, again).load()
        return
    loaded, planner = planned(planner_class, again, loader_of(file, again))
    record = by_table if instance.family in REORDERED else plan_record
    assert record(loaded) == record(plan)
    assert planner._num_proposals == 0


@PLANNERS
def test_the_plan_is_not_searched_for(planner_class: Any, file: Path) -> None:
    plan = moved(mixed())
    save_plan(plan, file)
    built = mixed()
    loaded, planner = planned(planner_class, built, StoredPlanLoader(file, built.module))
    assert plan_record(loaded) == plan_record(plan)
    fresh, _ = planned(planner_class, mixed(), None)
    assert plan_record(fresh) != plan_record(plan)
    assert planner._num_proposals == 0


@PLANNERS
def test_a_plan_serves_as_well_as_a_file(planner_class: Any) -> None:
    plan = moved(mixed())
    built = mixed()
    loaded, _ = planned(planner_class, built, loader_of(plan, built))
    assert plan_record(loaded) == plan_record(plan)


def test_options_share_nothing_with_the_plan() -> None:
    plan = moved(mixed())
    before = copy.deepcopy(plan)
    for option in StoredPlanLoader(plan, mixed().module).load().values():
        for shard in option.shards:
            shard.size[0] += 1
            shard.offset[0] += 1
            shard.rank += 1
    assert plan_record(plan) == plan_record(before)


@PLANNERS
def test_the_default_statistics_work_on_a_loaded_plan(planner_class: Any, file: Path) -> None:
    save_plan(moved(mixed()), file)
    built = mixed()
    del built.planner_kwargs["stats"]
    planned(planner_class, built, loader_of(file, built))


@PLANNERS
def test_the_context_of_a_plan_must_be_the_planners(planner_class: Any, file: Path) -> None:
    plan, planner = planned(TorchRecPlanner, mixed(), None)
    context = planner.hash_planner_context_inputs_str()
    save_plan(plan, file, notes={CONTEXT_NOTE: context})
    built = mixed()
    loader = loader_of(file, built)
    assert loader.plan_context_hash() == context
    loaded, _ = planned(planner_class, built, loader)
    assert plan_record(loaded) == plan_record(plan)
    save_plan(plan, file, notes={CONTEXT_NOTE: "another"})
    with pytest.raises(PlannerError, match=r"plan\.json") as caught:
        planned(planner_class, built, loader_of(file, built))
    assert caught.value.error_type == PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH


@PLANNERS
def test_options_that_the_planner_does_not_have_are_refused(planner_class: Any, file: Path) -> None:
    save_plan(moved(mixed()), file)
    other = mixed()
    for rule in other.planner_kwargs["constraints"].values():
        rule.sharding_types = ["column_wise"]
    with pytest.raises(PlannerError) as caught:
        planned(planner_class, other, loader_of(file, other))
    assert caught.value.error_type == PlannerErrorType.PLAN_LOADING_FAILED


def test_a_module_with_other_tables_is_refused(file: Path) -> None:
    save_plan(moved(mixed()), file)
    loader = StoredPlanLoader(file, small_model(5))
    with pytest.raises(PlanMismatch, match=r"plan\.json .* not in the plan: table_4"):
        loader.load()


def test_options_hold_the_modules_tables_when_there_is_one() -> None:
    built = mixed()
    loader = StoredPlanLoader(moved(built), built.module)
    options = {option.name: option for option in loader.load().values()}
    assert list(options) == [f"table_{i}" for i in range(4)]
    for name, option in options.items():
        assert option.tensor is built.module.embedding_bags[name].weight
        assert option.module == ("", built.module)


def test_the_file_is_read_each_time(file: Path) -> None:
    built = mixed()
    loader = loader_of(file, built)
    plan = moved(built)
    save_plan(plan, file)
    assert {option.name for option in loader.load().values()} == set(plan.plan[""])
    file.write_text("")
    with pytest.raises(PlanFileError):
        loader.load()


def test_messages_name_the_file(file: Path) -> None:
    module = small_model(1)
    assert StoredPlanLoader(file, module).get_plan_id() == str(file)
    assert StoredPlanLoader(one_table(), module).get_plan_id() == "a stored plan"


def test_without_a_model_it_does_not_guess(file: Path) -> None:
    with pytest.raises(ValueError, match="pass it as the second argument, `module`"):
        StoredPlanLoader(file)


def test_a_plan_without_ranks_is_refused() -> None:
    built = mixed()
    plan = moved(built)
    plan.plan[""]["table_1"].ranks = None
    with pytest.raises(ValueError, match=r"table_1: .* a rank for each shard"):
        loader_of(plan, built).load()
