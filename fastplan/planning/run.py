"""What the last plan() did, for people and scripts to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from fastplan.cache.plan_cache import CacheReport
from fastplan.engine.optimize import relative_gap
from fastplan.engine.solve import PlanCount
from fastplan.planning.moves import Moves
from fastplan.planning.replan import ReplanReport

if TYPE_CHECKING:
    from fastplan.planning.result import Result

# Placing one proposal takes about 1/300 of planning: statistics may count that much further.
_FEW_PLACEMENTS = 64


class CountLowerBound(int):
    """A number that may be larger, and says so in a text."""

    def __str__(self) -> str:
        return f"at least {int(self)}"


class Run:
    """A planner's `last_run`: engine, reason, rating, seconds by phase, proposals and plans."""

    def __init__(self) -> None:
        self.engine = "native"
        self.reason: str | None = None
        self.rating: float | None = None
        self.stopped_by: str | None = None  # what ended the improvement of TorchRec's plan
        self.start_ratings: dict[str, float] = {}  # of TorchRec's plans, where one was improved
        self.objective: float | None = None  # what was minimised in place of the rating
        self.objective_before: float | None = None  # of the plan with the best rating
        self.not_optimized: str | None = None  # why a plan that was to be improved was not
        self.replan: ReplanReport | None = None  # what came of an older plan
        self.not_followed: str | None = None  # why the plan does not follow it
        self.proposals = 0
        self.evaluated = 0  # proposals actually placed; fewer than `proposals` when pruned
        self.seconds: dict[str, float] = {}
        self.cache = CacheReport(status="off")
        self._plans: int | Callable[[], int] = 0
        self._some_plans: Callable[[int], PlanCount] | None = None
        self._lower_bound: float | Callable[[], float | None] | None = None
        self._start = perf_counter()
        self._inner_seconds = 0.0  # of phases inside the present one

    @property
    def plans(self) -> int:
        """Feasible proposals. A pruned search counts them when first asked."""
        if not isinstance(self._plans, int):
            self._plans = self._plans()
        return self._plans

    def logged_plans(self) -> int:
        """The number of plans for a table that is logged at once.

        Counting may take longer than planning, where many proposals just fit or just don't. If more
        of them had to be placed than the search has placed, and a few more, none is: the number is
        then CountLowerBound. `plans` is exact all the same.
        """
        if isinstance(self._plans, int) or self._some_plans is None:
            return self.plans
        count = self._some_plans(_FEW_PLACEMENTS + self.evaluated)
        if count.undecided:
            return CountLowerBound(count.plans)
        self._plans = count.plans
        return count.plans

    @property
    def lower_bound(self) -> float | None:
        """No plan is rated below; None where that is not proven.

        Of a plan from a cache the proof is checked when first asked for.
        """
        if callable(self._lower_bound):
            self._lower_bound = self._lower_bound()
        return self._lower_bound

    @property
    def gap(self) -> float | None:
        """How far the rating is above the lower bound, as a part of the bound."""
        if self.rating is None or self.lower_bound is None:
            return None
        return relative_gap(self.lower_bound, self.rating)

    @property
    def moves(self) -> Moves | None:
        """What moves from the older plan to this one; None where there is no older one."""
        return None if self.replan is None else self.replan.moves

    def count_plans(
        self,
        plans: int | Callable[[], int],
        some_plans: Callable[[int], PlanCount] | None = None,
    ) -> None:
        """The number of plans, or how to find out; and how to if placing so many is enough."""
        self._plans, self._some_plans = plans, some_plans

    def bound_plans(self, bound: float | Callable[[], float | None] | None) -> None:
        """The lower bound, or how to prove it."""
        self._lower_bound = bound

    def take(self, result: Result) -> None:
        """Takes over what a result says."""
        self.cache, self.replan = result.cache, result.replan
        self.not_optimized, self.not_followed = result.not_optimized, result.not_followed
        searched, found = result.searched, result.optimized
        if searched is not None:
            self.proposals = searched.proposals
            self.count_plans(searched.plans, searched.some_plans)
        if found is not None:
            self.stopped_by = found.stopped_by
            self.start_ratings = dict(found.start_ratings)
            self.objective, self.objective_before = found.objective, found.objective_before
        if result.placement is not None:
            loaded = searched is not None and searched.loaded
            self.rating = None if loaded else result.placement.rating
            self.evaluated = 0 if searched is None else searched.evaluated
            if result.bound is not None:
                # The proof of a stored plan is checked when someone asks for the bound.
                proven = searched is not None
                self.bound_plans(result.lower_bound if proven else lambda: result.lower_bound)

    def take_counts(self, proposals: int, plans: int, rating: float | None) -> None:
        """Takes over what TorchRec's own planner has counted."""
        self.proposals = self.evaluated = proposals
        self.count_plans(plans)
        self.rating = rating

    def add_reason(self, engine: str, reason: str) -> None:
        """Notes why not everything is native."""
        self.engine = engine
        self.reason = f"{self.reason}; {reason}" if self.reason else reason

    def __getstate__(self) -> dict[str, object]:
        known = {"_plans": self.plans, "_some_plans": None, "_lower_bound": self.lower_bound}
        return {**self.__dict__, **known}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of a block to the seconds of phase `name`.

        The time of a phase inside the block is that phase's alone.
        """
        start, outside = perf_counter(), self._inner_seconds
        self._inner_seconds = 0.0
        try:
            yield
        finally:
            spent = perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._inner_seconds
            self._inner_seconds = outside + spent

    def finish(self) -> None:
        """Notes the time since the beginning as `total`, and what no phase has as `other`.

        The phases add up to the total.
        """
        for name in ("other", "total"):
            self.seconds.pop(name, None)  # so that they stay the last ones
        total = perf_counter() - self._start
        self.seconds["other"] = total - sum(self.seconds.values())
        self.seconds["total"] = total

    def __repr__(self) -> str:
        took = ", ".join(f"{name} {1000 * s:.2f} ms" for name, s in self.seconds.items())
        why = f" ({self.reason})" if self.reason else ""
        known = None if callable(self._lower_bound) else self.gap
        gap = "" if known is None else f"gap={known:.4%}, stopped_by={self.stopped_by!r}, "
        return (
            f"Run(engine={self.engine!r}{why}, rating={self.rating}, {gap}"
            f"proposals={self.proposals}, cache={self.cache.status!r}, {took})"
        )
