"""A plan loader works as in TorchRec: loading, refusing, and planning when it has nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from torchrec.distributed.planner.types import PlanLoader, ShardingOption

from .compare import outcome
from .instances import Built
from .small import assert_agree, small, small_constraints
from .subject import TorchRecPlanner


class MemoryLoader(PlanLoader):
    """Hands out a plan that was made before."""

    def __init__(self, options: list[ShardingOption] | None, context: str | None) -> None:
        self._options = options
        self._context = context

    def load(self) -> dict[int, ShardingOption] | None:
        if self._options is None:
            return None
        return {option.storage_hash(): option for option in self._options}

    def plan_context_hash(self) -> str | None:
        return self._context

    def get_plan_id(self) -> str:
        return "plan 7"


def made_before() -> tuple[list[ShardingOption], str]:
    """A plan of the small model with its context; ranks unlike those of a fresh plan."""
    built = small(constraints=small_constraints())
    _, planner = outcome(TorchRecPlanner, built)
    for option in planner._best_plan:
        if option.sharding_type in ("table_wise", "column_wise"):
            for shard in option.shards:
                shard.rank = 3
    return planner._best_plan, planner.hash_planner_context_inputs_str()


def with_loader(loader: PlanLoader) -> Built:
    return small(constraints=small_constraints(), plan_loader=loader)


def complete() -> PlanLoader:
    return MemoryLoader(*made_before())


def without_context() -> PlanLoader:
    return MemoryLoader(made_before()[0], None)


def of_another_context() -> PlanLoader:
    return MemoryLoader(made_before()[0], "another context")


def with_nothing() -> PlanLoader:
    return MemoryLoader(None, made_before()[1])


def with_a_foreign_option() -> PlanLoader:
    options, context = made_before()
    options[0].name = "renamed"
    return MemoryLoader(options, context)


def with_part_of_the_plan() -> PlanLoader:
    options, context = made_before()
    return MemoryLoader(options[1:], context)


@pytest.mark.parametrize(
    ("make_loader", "kind"),
    [
        (complete, None),
        (without_context, None),
        (with_nothing, None),
        (with_part_of_the_plan, None),
        (of_another_context, "PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH"),
        (with_a_foreign_option, "PlannerErrorType.PLAN_LOADING_FAILED"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_loader_has_the_same_effect(make_loader: Callable[[], Any], kind: str | None) -> None:
    record, _ = assert_agree(lambda: with_loader(make_loader()))
    error = record["error"]
    assert (None if error is None else error["kind"]) == kind


def test_loaded_plan_is_used_instead_of_a_search() -> None:
    record, _ = assert_agree(lambda: with_loader(complete()))
    assert record["num_proposals"] == 0
    assert record["plan"]["modules"] == [""]
