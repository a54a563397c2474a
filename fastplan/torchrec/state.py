"""What a planner is told beyond TorchRec's arguments, and what its last plan leaves behind.

It is one attribute of the planner, so that subclasses may name theirs as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fastplan.cache.plan_cache import PlanCache
from fastplan.engine.optimize import OptimizeSettings
from fastplan.model.record import PlanRecord
from fastplan.torchrec.plan_basis import BasisDraft
from fastplan.torchrec.read.space import EstimatedSpace
from fastplan.torchrec.replanning import Replanning


@dataclass(slots=True, kw_only=True)
class State:
    """Settings of a planner, and its last plan as plain data."""

    deterministic: bool = False
    optimization: OptimizeSettings | None = None
    replanning: Replanning = field(default_factory=Replanning)
    cache: PlanCache | None = None
    draft: EstimatedSpace | None = None  # of a collective start, for the plan that follows
    record: Callable[[], PlanRecord] | None = None  # the last plan, where it can be one
    certificate: Callable[[], bytes] = bytes  # what proves the bound on others, packed
    basis: BasisDraft | None = None  # what it was made from
    best_plan: Any = None  # its options, or how to make them
    plans: Any = 0  # how many were feasible, or how to count them

    def settled(self) -> State:
        """The same with results that are at hand, and without the means to compute others."""
        known = {name: _value(getattr(self, name)) for name in ("best_plan", "plans")}
        return replace(self, **known, record=None, certificate=bytes, basis=None, draft=None)


def _value(result: Any) -> Any:
    return result() if callable(result) else result


def state_of(planner: Any) -> State:
    """A planner's state; of one whose constructor was left out, the one of a plain planner."""
    if "_fastplan" not in vars(planner):
        planner._fastplan = State()
    state: State = planner._fastplan
    return state
