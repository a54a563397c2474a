"""The result of a search, whoever ran it, as the planner goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastplan.core.solution import ProposerReport


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A plan, or the proposals that TorchRec's error message is about."""

    found: bool
    rating: float
    best_plan: Callable[[], list[Any]]  # the chosen options with ranks, as objects
    sharding_plan: Callable[[Any], Any]  # the plan on a topology
    failed: Callable[[], list[list[Any]]]  # smallest and last proposal, when none could be placed
    last: Any = ()  # numbers of the last failed proposal's options, if they are the space's own
    proposals: int
    evaluated: int
    count_reports: Callable[[], tuple[ProposerReport, ...]]
    plans: int | None  # None: not counted
    search_seconds: float = 0.0
    loaded: bool = False
    _reports: tuple[ProposerReport, ...] | None = field(default=None)

    @property
    def reports(self) -> tuple[ProposerReport, ...]:
        """What each proposer did, with its number of plans. May take an exhaustive search."""
        if self._reports is None:
            self._reports = self.count_reports()
        return self._reports

    def count_plans(self) -> int:
        if self.plans is None:
            self.plans = sum(report.plans for report in self.reports)
        return self.plans
