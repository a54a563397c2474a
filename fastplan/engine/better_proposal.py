"""Proposals of a search that are better than a plan from elsewhere."""

from __future__ import annotations

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Measure, explained, search_settings
from fastplan.engine.step import step_goal, step_settings
from fastplan.model.request import Search

_ROUNDING = 1e-9
# A plan that follows another trades rating for few moves; none is twice as bad.
FOLLOWING_SLACK = 1.0


def better_proposal(
    problem: Problem, search: Search, value: float, *, by: Measure = "rating", slack: float = 0.0
) -> float | None:
    """Looks for a proposal that is better than a plan, without a whole search.

    TorchRec's plan is the best of its proposals, so a plan that is worse than one of them is not
    TorchRec's. Proposals of dynamic programming, and of greedy proposers with a threshold, are left
    out. With a custom objective only some proposals are tried.

    Args:
        problem: the problem of the search.
        search: the search.
        value: the plan's rating, or its step in ms.
        by: what the search compares plans by.
        slack: the share by which the plan may be worse than a proposal.

    Returns:
        Rating or step of a proposal that is better; None if none is, or if the search may end
        before it has tried all proposals.

    Raises:
        OutOfRange, CostError: as a search.
    """
    if search.timeout_seconds > 0:
        return None
    settings, scale = search_settings(search), 1.0
    if by == "step":
        settings |= step_settings(problem)
        scale = step_goal(problem.space).scale
    limit = scale * value / (1 + slack + _ROUNDING)
    with explained(search.objective):
        found = _native.better_proposal(problem.handle, settings, limit)
    return None if found is None else found / scale
