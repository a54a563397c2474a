"""A planner's settings and its last result; which plan it is to follow."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.plan_cache import Cache
from fastplan.engine.optimize import Optimize
from fastplan.model.plan import Basis, Plan
from fastplan.planning.describe import basis_of, plan_to_follow
from fastplan.planning.policy import Replan
from fastplan.planning.search import Result

Policy = Replan | Literal["auto"] | None


class Previous:
    """A planner's `previous` and `replan` arguments.

    Raises:
        ValueError: `replan` is neither a policy nor "auto".
    """

    def __init__(self, previous: Any = None, policy: Policy = None) -> None:
        if policy is not None and policy != "auto" and not isinstance(policy, Replan):
            raise ValueError(f'`replan` must be a Replan or "auto", not {policy!r}')
        self._previous = previous
        self.policy: Replan | None = None  # None if no plan is to be followed
        if policy is not None or previous is not None:
            self.policy = policy if isinstance(policy, Replan) else Replan()

    def plan(self) -> Plan | None:
        """Returns the plan to follow; None without `previous`.

        Raises:
            PlanFileError, OSError: the plan file can't be read.
            TypeError: `previous` is not a plan.
            ValueError: `previous` is a planner without a plan.
        """
        given = self._previous
        if given is None:
            return None
        if isinstance(given, str | os.PathLike):
            from fastplan.plans.file import read_plan

            given = read_plan(given)
        elif isinstance(given, ShardingPlan):
            given = _plan_of(given)
        elif isinstance(given, TorchRecPlanner):
            given = _last_plan(given)
        if not isinstance(given, Plan):
            raise TypeError(
                "`previous` must be a plan, the path of a plan file, or a planner that has "
                f"planned, not {type(given).__name__}"
            )
        # A file is read only once, because the new plan may be written to the same file.
        self._previous = given
        return given


@dataclass(slots=True, kw_only=True)
class State:
    """A planner's settings and its last result.

    Attributes:
        draft: the search space of a collective start, for the plan that follows.
        result: of the last plan; None if TorchRec's own code planned.
        best_plan: its options, or a function that creates them.
        plans: the number of feasible proposals, or a function that counts them.
        shadow: the planner whose plan is used if each is compared with the other's.
        hardware: the hardware costs (PlannerHardware); None for TorchRec's.
        plans_for_group: whether the next plan is one for all ranks of a group.
    """

    deterministic: bool = False
    optimize: Optimize | None = None
    previous: Previous = field(default_factory=Previous)
    cache: Cache | None = None
    draft: Any = None
    result: Result | None = None
    best_plan: Any = None
    plans: Any = 0
    shadow: str | None = None
    plans_for_group: bool = False
    hardware: Any = None

    def settled(self) -> State:
        """Returns a picklable copy: results are computed, and functions are dropped."""
        known = {name: _value(getattr(self, name)) for name in ("best_plan", "plans")}
        return replace(self, **known, result=None, draft=None)


def _value(result: Any) -> Any:
    return result() if callable(result) else result


def state_of(planner: Any) -> State:
    """Returns a planner's state; the default one if its constructor was not called."""
    if "_fastplan" not in vars(planner):
        planner._fastplan = State()
    state: State = planner._fastplan
    return state


def basis_of_planner(planner: Any) -> Basis | str:
    """Returns the basis of the planner's last plan, or the reason why it has none."""
    result = _last_result(planner)
    return result if isinstance(result, str) else basis_of(result)


def _last_result(planner: Any) -> Result | str:
    result: Result | None = getattr(getattr(planner, "_fastplan", None), "result", None)
    if result is None or result.record is None:
        run = getattr(planner, "last_run", None)
        return (run and run.reason) or "the planner has not searched for a plan"
    return "callbacks have changed the plan" if planner._callbacks else result


def _plan_of(plan: ShardingPlan) -> Plan:
    from fastplan.torchrec.compat import paused
    from fastplan.torchrec.plan_files import describe_plan
    from fastplan.torchrec.plan_json import plan_layout

    with paused():
        layout = plan_layout(plan)
    if layout is None:
        return describe_plan(plan, "previous plan")
    return Plan(name="previous plan", layout=layout)


def _plan_to_follow(result: Result) -> Plan | str:
    from fastplan.torchrec.read.space import EstimatedSpace

    request, space = result.job.request, result.placement and result.placement.space
    estimated = (
        isinstance(space, EstimatedSpace)
        and request is not None
        and request.pricing is None
        and space.request is request
    )
    return plan_to_follow(result, estimated=estimated)


def _last_plan(planner: Any) -> Plan:
    result = _last_result(planner)
    plan = result if isinstance(result, str) else _plan_to_follow(result)
    if isinstance(plan, str):
        raise ValueError(f"`previous` has no plan to start from: {plan}")
    return plan
