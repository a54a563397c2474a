"""What a search is sure to reach, which plans from elsewhere are held to."""

from __future__ import annotations

import math

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Measure, explained, search_settings
from fastplan.engine.step import step_goal, step_settings
from fastplan.model.plan import BadRecord
from fastplan.model.request import Search

_ROUNDING = 1e-9
# A plan that follows another trades rating for few moves; none is twice as bad.
FOLLOWING_SLACK = 1.0


def check_reachable(
    value: float, problem: Problem, search: Search, *, by: Measure = "rating", slack: float = 0.0
) -> None:
    """Checks that a plan is not worse than proposals that the search itself tries.

    TorchRec's plan is the best of its proposals, so a plan that is worse than one of them is not
    TorchRec's.

    Args:
        value: the plan's rating, or its step in ms.
        problem: the problem of the search.
        search: the search.
        by: what the search compares plans by.
        slack: the share by which other plans may be worse.

    Raises:
        BadRecord: the plan is worse.
    """
    reached = reachable(problem, search, by)
    if value > reached * (1 + slack + _ROUNDING):
        what = "it is rated" if by == "rating" else "its step takes"
        raise BadRecord(f"{what} {value:.6g}, but TorchRec's own proposals reach {reached:.6g}")


def reachable(problem: Problem, search: Search, by: Measure = "rating") -> float:
    """Returns rating or step of a proposal of the search; infinite if few tries find none."""
    if search.timeout_seconds > 0:
        return math.inf  # the search may have ended before
    settings, scale = search_settings(search), 1.0
    if by == "step":
        settings |= step_settings(problem)
        scale = step_goal(problem.space).scale
    with explained(search.objective):
        return _native.reachable_rating(problem.handle, settings) / scale
