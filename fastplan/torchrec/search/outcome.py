"""The result of a search, whoever ran it, as the planner goes on with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from fastplan.model.record import PlanRecord
from fastplan.model.solution import Options, PlanCount, ProposerReport
from fastplan.torchrec.read.space import ChosenOptions, Space


def _no_plan(topology: Any) -> NoReturn:
    raise AssertionError("there is no plan")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A plan, or the proposals that TorchRec's error message is about.

    Callables cost time and are only called when somebody wants to know.
    """

    found: bool = False
    rating: float = math.nan
    best_plan: Callable[[], list[Any]] = list  # the chosen options with ranks, as objects
    sharding_plan: Callable[[Any], Any] = _no_plan  # the plan on a topology
    failed: Callable[[], list[list[Any]]] = list  # smallest and last proposal, when none fits
    error: Any = None  # of the last proposal, where Python has raised one
    lowest: Any = None  # storage of the smallest proposal, where `failed` is the last one alone
    reserved: Any = None  # the topology that was searched
    last: Any = ()  # numbers of the last failed proposal's options, if they are the space's own
    proposals: int = 0
    evaluated: int = 0
    plans: Callable[[], int] = int  # feasible proposals
    some_plans: Callable[[int], PlanCount] | None = None  # the same, if placing so many is enough
    reports: Callable[[], tuple[ProposerReport, ...]] = tuple  # what each proposer did
    record: Callable[[], PlanRecord] | None = None  # the plan as plain data, where it can be
    search_seconds: float = 0.0
    loaded: bool = False
    lower_bound: float | Callable[[], float | None] | None = None  # where that was proven
    certificate: Callable[[], bytes] = bytes  # what proves it, packed, as a cache keeps it
    cut_short: bool = False  # by an interrupt: good to use, not to keep

    def take(self, space: Space, options: Options, ranks: Any, rating: float) -> None:
        """Goes on with this plan, given as options of the space and the ranks of their shards."""
        self.found, self.rating = True, rating
        self.best_plan = ChosenOptions(space, options, ranks)
        self.sharding_plan = lambda topology: space.sharding_plan(options, ranks, topology)
        self.record = lambda: PlanRecord.of(space.columns, options, ranks, rating)
