"""A planner's settings beyond TorchRec's arguments, and what its last plan leaves behind.

It is one attribute of the planner, so that subclasses may name theirs as they like.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastplan.cache.plan_cache import PlanCache
from fastplan.engine.optimize import OptimizeSettings
from fastplan.model.plan import Basis
from fastplan.planning.describe import basis_of
from fastplan.planning.result import Result
from fastplan.torchrec.previous import Previous
from fastplan.torchrec.read.space import EstimatedSpace


@dataclass(slots=True, kw_only=True)
class State:
    """Settings of a planner, and its last result.

    Attributes:
        draft: the search space of a collective start, for the plan that follows.
        result: of the last plan; None where TorchRec itself has planned.
        best_plan: its options, or how to make them.
        plans: how many proposals were feasible, or how to count them.
    """

    deterministic: bool = False
    optimize: OptimizeSettings | None = None
    previous: Previous = field(default_factory=Previous)
    cache: PlanCache | None = None
    draft: EstimatedSpace | None = None
    result: Result | None = None
    best_plan: Any = None
    plans: Any = 0

    def settled(self) -> State:
        """The same with results that are at hand, and without the means to compute others."""
        known = {name: _value(getattr(self, name)) for name in ("best_plan", "plans")}
        return replace(self, **known, result=None, draft=None)


def _value(result: Any) -> Any:
    return result() if callable(result) else result


def state_of(planner: Any) -> State:
    """A planner's state; of one whose constructor was left out, the one of a plain planner."""
    if "_fastplan" not in vars(planner):
        planner._fastplan = State()
    state: State = planner._fastplan
    return state


def basis_of_planner(planner: Any) -> Basis | str:
    """What the planner's last plan was made from; or why that is not known."""
    result = getattr(getattr(planner, "_fastplan", None), "result", None)
    if result is None or result.record is None:
        run = getattr(planner, "last_run", None)
        return (run and run.reason) or "the planner has not searched for a plan"
    if planner._callbacks:
        return "callbacks have shaped the plan"
    return basis_of(result)
