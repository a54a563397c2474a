"""The rating that a search surely reaches: a stored plan that is worse is not its plan."""

from __future__ import annotations

import math

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import explained, search_settings
from fastplan.model.plan import BadRecord, PlanRecord
from fastplan.model.request import Search

_ROUNDING = 1e-9
# A plan that follows another trades rating for few moves; none is twice as bad.
FOLLOWING_SLACK = 1.0


def check_reachable(
    record: PlanRecord, problem: Problem, search: Search, *, slack: float = 0.0
) -> None:
    """Checks that a plan is not rated worse than proposals that the search itself tries.

    TorchRec's plan is the best of its proposals, so a plan that is worse than one of them is not
    TorchRec's. `slack` is the share by which other plans may be worse.

    Raises:
        BadRecord: the plan is worse.
    """
    reached = reachable_rating(problem, search)
    if record.rating > reached * (1 + slack + _ROUNDING):
        raise BadRecord(
            f"it is rated {record.rating:.6g}, but TorchRec's own proposals reach {reached:.6g}"
        )


def reachable_rating(problem: Problem, search: Search) -> float:
    """Returns the rating of a proposal of the search; infinite if few tries find none."""
    if search.timeout_seconds > 0:
        return math.inf  # the search may have ended before
    with explained(search.objective):
        return _native.reachable_rating(problem.handle, search_settings(search))
