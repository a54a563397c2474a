"""Other code may replace any function or constant of TorchRec's planner: the plan follows.

Every replacement is tried alone, with both planners in this process.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from torchrec.distributed.planner.types import Topology

from . import replaced
from .compare import outcome
from .instances import Built
from .replaced import Place, bound, changed, tripled
from .small import assert_engine, small, small_constraints, small_model
from .subject import SELF_CHECK, FastPlanner, TorchRecPlanner

SHARES = 6  # of all places, for parallel workers
# They belong to the class, not to its `plan()`: fastplan's planner has its own.
OWN = ("planners.EmbeddingShardingPlanner.plan",)

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner falls back to nothing")


def build() -> Built:
    constraints = small_constraints(2)
    constraints["table_0"].compute_kernels = ["fused", "fused_uvm_caching", "dense"]
    topology = Topology(world_size=2, local_world_size=2, compute_device="cuda")
    return small(small_model(2), constraints=constraints, topology=topology)


def plan_by_torchrec() -> None:
    built = build()
    TorchRecPlanner(**built.planner_kwargs).plan(built.module, built.sharders)


@pytest.fixture(scope="module")
def functions() -> list[Place]:
    FastPlanner(**build().planner_kwargs).plan(build().module, build().sharders)
    found = replaced.called_functions(plan_by_torchrec)
    return [place for place in found if not place.title.endswith(OWN)]


@pytest.fixture(autouse=True)
def everything_is_restored() -> Iterator[None]:
    yield
    _, planner = outcome(FastPlanner, build())
    assert_engine(planner, "native")


def problem(place: Place, value: Any, calls: list[int]) -> str | None:
    """Says what is wrong with fastplan's plan while a name is bound to another value.

    Args:
        place: the name.
        value: the value that is bound to it.
        calls: gets an item whenever the value is called.
    """
    with bound(place, value):
        expected, _ = outcome(TorchRecPlanner, build())
        is_used = bool(calls)  # TorchRec may call it by another name only
        calls.clear()
        actual, planner = outcome(FastPlanner, build())
    if expected != actual:
        return f"{place.title}: another plan, by {planner.last_run.engine}"
    if is_used and not calls and planner.last_run.engine == "native":
        return f"{place.title}: neither called nor noticed"
    return None


def test_planning_calls_many_functions(functions: list[Place]) -> None:
    assert len(functions) > 250
    assert len(replaced.constants()) > 50


@pytest.mark.parametrize("share", range(SHARES))
def test_plan_follows_a_function_that_returns_something_else(
    functions: list[Place], share: int
) -> None:
    found = []
    for place in functions[share::SHARES]:
        calls: list[int] = []
        value = changed(place, lambda result, calls=calls: calls.append(1) or tripled(result))
        found.append(problem(place, value, calls))
    assert [each for each in found if each] == []


def test_plan_follows_a_constant_that_is_three_times_as_large() -> None:
    places = replaced.constants()
    found = [problem(place, 3 * vars(place.owner)[place.name], []) for place in places]
    assert [each for each in found if each] == []
