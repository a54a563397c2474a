"""The plan that a planner is to follow, in any of the forms that users have it in."""

from __future__ import annotations

import os
from typing import Any, Literal

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.engine.layout import layout_of
from fastplan.model.plan import Plan
from fastplan.planning.policy import ReplanPolicy

Policy = ReplanPolicy | Literal["auto"] | None


class Previous:
    """A planner's `previous` and `replan` arguments.

    Raises:
        ValueError: `replan` is neither a policy nor "auto".
    """

    def __init__(self, previous: Any = None, policy: Policy = None) -> None:
        if policy is not None and policy != "auto" and not isinstance(policy, ReplanPolicy):
            raise ValueError(f'`replan` must be a ReplanPolicy or "auto", not {policy!r}')
        self._previous = previous
        self._policy = ReplanPolicy() if policy == "auto" else policy

    @property
    def policy(self) -> ReplanPolicy | None:
        """How to follow an older plan; None where no plan is to be followed."""
        if self._policy is None and self._previous is not None:
            return ReplanPolicy()
        return self._policy

    def plan(self) -> Plan | None:
        """The plan to follow; None where none was given.

        Raises:
            PlanFileError, OSError: the plan file can't be read.
            TypeError: what was given is no plan.
            ValueError: the planner that was given has no plan.
        """
        given = self._previous
        if given is None:
            return None
        if isinstance(given, str | os.PathLike):
            from fastplan.plans.file import read_plan

            given = read_plan(given)
        elif isinstance(given, ShardingPlan):
            from fastplan.torchrec.plan_files import describe_plan

            given = describe_plan(given, "previous plan")
        elif isinstance(given, TorchRecPlanner):
            given = _last_plan(given)
        if not isinstance(given, Plan):
            raise TypeError(
                "`previous` must be a plan, the path of a plan file, or a planner that has "
                f"planned, not {type(given).__name__}"
            )
        # A file is read once: the planner that made it may be the next to write it.
        self._previous = given
        return given


def _last_plan(planner: Any) -> Plan:
    from fastplan.torchrec.state import basis_of_planner

    basis = basis_of_planner(planner)
    if isinstance(basis, str):
        raise ValueError(f"`previous` has no plan to start from: {basis}")
    layout = layout_of(basis.request, basis.cluster, basis.record)
    return Plan(name="previous plan", layout=layout, basis=basis)
