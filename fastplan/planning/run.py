"""A report on the last plan() call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from fastplan.cache.plan_cache import CacheReport
from fastplan.engine.optimize import relative_gap

if TYPE_CHECKING:
    from fastplan.model.step import Step
    from fastplan.planning.moves import Moves
    from fastplan.planning.replan import ReplanReport
    from fastplan.planning.search import Result
    from fastplan.planning.shadow import Shadow

_LABEL = 10  # columns


class Run:
    """The report in `planner.last_run`: engine, reason, rating, seconds, proposals and plans."""

    def __init__(self) -> None:
        self.engine = "native"
        self.reason: str | None = None
        self.rating: float | None = None
        self.stopped_by: str | None = None  # what ended the optimizer
        self.start_ratings: dict[str, float] = {}  # of TorchRec's plans, if one was optimized
        self.objective: float | None = None  # the measure that was minimised instead of the rating
        self.objective_before: float | None = None  # of the plan with the best rating
        self.link_bytes: float | None = None  # of an offload plan, over all host links in a step
        self.not_optimized: str | None = None  # why the plan was not optimized
        self.replan: ReplanReport | None = None  # the report of the re-plan
        self.not_followed: str | None = None  # why the plan does not follow a previous plan
        self.shadow: Shadow | None = None  # the comparison with TorchRec's own plan
        self.proposals = 0
        self.evaluated = 0  # proposals actually placed; fewer than `proposals` when pruned
        self.seconds: dict[str, float] = {}
        self.cache = CacheReport(status="off")
        self.costs = "torchrec"  # the cost model: torchrec or hardware
        self._step: Step | Callable[[], Step | None] | None = None
        self._plans: int | Callable[[], int] = 0
        self._lower_bound: float | Callable[[], float | None] | None = None
        self._start = perf_counter()
        self._inner_seconds = 0.0  # of phases inside the current one

    @property
    def plans(self) -> int:
        """The number of feasible proposals. A pruned search counts them on first access."""
        if not isinstance(self._plans, int):
            self._plans = self._plans()
        return self._plans

    @property
    def lower_bound(self) -> float | None:
        """A proven lower bound on the rating of every plan; None without a proof.

        The proof of a cached plan is checked on first access.
        """
        if callable(self._lower_bound):
            self._lower_bound = self._lower_bound()
        return self._lower_bound

    @property
    def step(self) -> Step | None:
        """The predicted step by phase; None with TorchRec's costs. Computed on first access."""
        if callable(self._step):
            self._step = self._step()
        return self._step

    @property
    def gap(self) -> float | None:
        """How far the rating is above the lower bound, as a share of the bound."""
        if self.rating is None or self.lower_bound is None:
            return None
        return relative_gap(self.lower_bound, self.rating)

    @property
    def moves(self) -> Moves | None:
        """The moves from the previous plan to this one; None without a previous plan."""
        return None if self.replan is None else self.replan.moves

    def count_plans(self, plans: int | Callable[[], int]) -> None:
        """Sets the number of plans, or a function that counts them."""
        self._plans = plans

    def bound_plans(self, bound: float | Callable[[], float | None] | None) -> None:
        """Sets the lower bound, or a function that proves it."""
        self._lower_bound = bound

    def take(self, result: Result) -> None:
        """Copies the fields of a result."""
        self.cache, self.replan = result.cache, result.replan
        self.not_optimized, self.not_followed = result.not_optimized, result.not_followed
        if result.job.request is not None and result.job.request.hardware is not None:
            self.costs, self._step = "hardware", lambda: result.step
        searched, found = result.searched, result.optimized
        if searched is not None:
            self.proposals = searched.proposals
            self.count_plans(searched.plans)
        if found is not None:
            self.stopped_by = found.stopped_by
            self.start_ratings = dict(found.start_ratings)
            self.objective, self.objective_before = found.objective, found.objective_before
            self.link_bytes = found.link_bytes
        if result.placement is not None:
            loaded = searched is not None and searched.loaded
            self.rating = None if loaded else result.placement.rating
            self.evaluated = 0 if searched is None else searched.evaluated
            if result.bound is not None:
                # The proof of a stored plan is checked when the bound is first read.
                proven = searched is not None
                self.bound_plans(result.lower_bound if proven else lambda: result.lower_bound)

    def take_counts(self, proposals: int, plans: int, rating: float | None) -> None:
        """Copies the counts of TorchRec's own planner."""
        self.proposals = self.evaluated = proposals
        self.count_plans(plans)
        self.rating = rating

    def add_reason(self, engine: str, reason: str) -> None:
        """Records a reason why not everything is native."""
        self.engine = engine
        self.reason = f"{self.reason}; {reason}" if self.reason else reason

    def __getstate__(self) -> dict[str, object]:
        known = {"_plans": self.plans, "_lower_bound": self.lower_bound, "_step": self.step}
        return {**self.__dict__, **known}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of a block to the seconds of phase `name`.

        The time of a nested phase counts only for that phase.
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
        """Records the time since the beginning as `total`, and time outside phases as `other`.

        The phases add up to the total.
        """
        for name in ("other", "total"):
            self.seconds.pop(name, None)  # so that they stay last
        total = perf_counter() - self._start
        self.seconds["other"] = total - sum(self.seconds.values())
        self.seconds["total"] = total

    def __repr__(self) -> str:
        """A line each on engine, rating, time, cache and, if there was one, the re-plan.

        Nothing is computed for it: a bound that is not proven yet is left out.
        """
        return "\n".join(f"{label:<{_LABEL}}{text}" for label, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "engine", f"{self.engine}: {self.reason}" if self.reason else self.engine
        yield "rating", self._rating_text()
        if self.objective is not None:
            before = (
                "" if self.objective_before is None else f", before {self.objective_before:.6g}"
            )
            yield "objective", f"{self.objective:.6g}{before}"
        if self.not_optimized is not None:
            yield "optimizer", f"not used: {self.not_optimized}"
        yield "time", self._time_text()
        why = self.cache.reason
        yield "cache", f"{self.cache.status}: {why}" if why else self.cache.status
        if self.replan is not None:
            yield "replan", str(self.replan)
        if self.not_followed is not None:
            yield "replan", f"not followed: {self.not_followed}"
        if self.shadow is not None:
            yield "shadow", str(self.shadow)

    def _rating_text(self) -> str:
        text = "none" if self.rating is None else f"{self.rating:.6g} ms"
        if self.costs != "torchrec":
            text += f" by {self.costs} costs"
        if self.proposals:
            text += f", {self.proposals:,} proposals, {self.evaluated:,} placed"
        known = None if callable(self._lower_bound) else self.gap
        if known is not None:
            text += f", gap {known:.4%}"
        return text + (f", stopped by {self.stopped_by}" if self.stopped_by else "")

    def _time_text(self) -> str:
        phases = dict(self.seconds)
        total = phases.pop("total", None)
        if not phases:
            return "not planned yet"
        shown = _rounded(phases, sum(phases.values()) if total is None else total)
        parts = " + ".join(f"{name} {hundredths / 100:.2f}" for name, hundredths in shown.items())
        if total is None:
            return f"{parts} ms so far"
        return f"{sum(shown.values()) / 100:.2f} ms = {parts}"


def _rounded(seconds: dict[str, float], total: float) -> dict[str, int]:
    """Returns hundredths of milliseconds that add up to the total, as the seconds do."""
    exact = {name: 1e5 * spent for name, spent in seconds.items()}
    found = {name: math.floor(spent) for name, spent in exact.items()}
    left = round(1e5 * total) - sum(found.values())
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: max(0, left)]:
        found[name] += 1
    return found
