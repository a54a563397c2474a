"""The result of a search, whoever ran it, as the planner goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastplan.core.record import PlanRecord
from fastplan.core.solution import ProposerReport


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A plan, or the proposals that TorchRec's error message is about.

    Callables cost time and are only called when somebody wants to know.
    """

    found: bool
    rating: float
    best_plan: Callable[[], list[Any]]  # the chosen options with ranks, as objects
    sharding_plan: Callable[[Any], Any]  # the plan on a topology
    failed: Callable[[], list[list[Any]]]  # smallest and last proposal, when none could be placed
    last: Any = ()  # numbers of the last failed proposal's options, if they are the space's own
    proposals: int
    evaluated: int
    plans: Callable[[], int]  # feasible proposals
    reports: Callable[[], tuple[ProposerReport, ...]]  # what each proposer did
    record: Callable[[], PlanRecord] | None = None  # the plan as plain data, where it can be
    search_seconds: float = 0.0
    loaded: bool = False
    lower_bound: float | None = None  # no plan is rated below, where that was proven
    cut_short: bool = False  # by an interrupt: good to use, not to keep
