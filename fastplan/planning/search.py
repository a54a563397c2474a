"""How a job is searched, and what a search finds.

Here the core does everything. TorchRec's planner brings a backend of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from fastplan.engine.layout import narrowed
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import (
    Options,
    PlanCount,
    ProposerReport,
    Solution,
    count_plans,
    count_some_plans,
    estimate,
    solve,
)
from fastplan.model.job import Job
from fastplan.model.record import PlanRecord
from fastplan.model.request import Search
from fastplan.planning.run import Run


class Space(Protocol):
    """A search space. TorchRec's side also makes objects of its options."""

    @property
    def columns(self) -> SearchSpace: ...


@dataclass(frozen=True, slots=True)
class Columns:
    """A search space that is nothing but its columns."""

    columns: SearchSpace


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan as the search has it: options of a space, and the ranks of their shards."""

    space: Space
    options: Options  # by plan position: numbers of the space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    rating: float
    stored: PlanRecord | None = None  # the record it was made from, where it was

    @property
    def chosen(self) -> tuple[Options, Options, float]:
        return self.options, self.ranks, self.rating

    @property
    def record(self) -> PlanRecord | None:
        """The plan as plain data; None where a record can't hold it."""
        if self.stored is not None:
            return self.stored
        return PlanRecord.of(self.space.columns, self.options, self.ranks, self.rating)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What a search found. Counting plans takes time, so it is done when someone asks.

    Attributes:
        space: what was searched, and on which ranks: `problem`. None where there was no search.
        search: how it was searched.
        solution: what the core found; None where Python searched.
        placement: the best plan; None where nothing fits.
        proposals: distinct proposals.
        evaluated: proposals that were placed; fewer where the search could leave some out.
        fixed: why the plan can be neither improved nor compared; empty where it can.
        loaded: whether a plan loader brought the plan.
    """

    space: Space | None
    problem: Problem | None
    search: Search
    solution: Solution | None
    placement: Placement | None
    proposals: int = 0
    evaluated: int = 0
    fixed: str = ""
    loaded: bool = False

    def plans(self) -> int:
        """The number of feasible proposals."""
        assert self.problem is not None
        assert self.solution is not None
        known = self.solution.plans
        return sum(count_plans(self.problem, self.search)) if known is None else known

    def some_plans(self, placements: int) -> PlanCount:
        """The same, if placing so many proposals is enough to know."""
        assert self.problem is not None
        assert self.solution is not None
        known = self.solution.plans
        if known is not None:
            return PlanCount(known)
        return count_some_plans(self.problem, self.search, placements)

    def reports(self) -> tuple[ProposerReport, ...]:
        """What each proposer did."""
        assert self.problem is not None
        assert self.solution is not None
        if self.solution.exhaustive:
            return self.solution.reports
        return solve(self.problem, self.search, exhaustive=True).reports


class SearchBackend:
    """The search of a job whose parts are all native.

    TorchRec's planner has a backend of its own, which can run proposers, partitioners, estimators
    and perf models that are Python.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def problem(self) -> Problem:
        """The job's whole search space and its cluster, estimated once.

        Raises:
            OutOfRange: exact arithmetic would need larger numbers than the core has.
            CostError: a custom cost fails.
        """
        assert self.job.request is not None
        return Problem(estimate(self.job.request), self.job.cluster)

    @property
    def estimates_natively(self) -> bool:
        """Whether the core estimates every cost."""
        return True

    @property
    def rates_natively(self) -> bool:
        """Whether the core rates plans; `python_rating` does where it can't."""
        return True

    @property
    def bounds_are_native(self) -> bool:
        """Whether the search space holds every plan that the search may choose."""
        return True

    @property
    def comparable(self) -> Search | None:
        """The search, if the core can tell what its proposals are worth; else None."""
        return self.job.search

    def space_of(self, columns: SearchSpace) -> Space:
        """The job's tables with other columns than the whole search space has."""
        return Columns(columns)

    def chosen(self, record: PlanRecord) -> Space:
        """The space of a record's options alone. Raises BadRecord where they are not allowed."""
        assert self.job.request is not None
        return Columns(estimate(narrowed(self.job.request, record)))

    def python_rating(self, placement: Placement) -> float:
        """What the job's perf model rates a plan, where that is Python."""
        raise NotImplementedError

    def search(self, run: Run) -> Searched:
        """Searches as TorchRec's planner does.

        Raises:
            OutOfRange, CostError: as `problem` does.
        """
        with run.phase("estimate"):
            problem = self.problem
        with run.phase("search"):
            solution = solve(problem, self.job.search)
        space, placement = Columns(problem.space), None
        if solution.found:
            placement = Placement(space, solution.options, solution.ranks, solution.rating)
        return Searched(
            space=space,
            problem=problem,
            search=self.job.search,
            solution=solution,
            placement=placement,
            proposals=solution.proposals,
            evaluated=solution.evaluated,
        )
