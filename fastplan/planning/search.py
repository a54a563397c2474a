"""The search of a job, and its result.

Here the native core does everything. TorchRec's planner has a separate backend.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """A search space. The `torchrec` package also creates TorchRec objects for its options."""

    @property
    def columns(self) -> SearchSpace: ...


@dataclass(frozen=True, slots=True)
class Columns:
    """A search space that has only columns."""

    columns: SearchSpace


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan as a search result: options of a space, and the ranks of their shards."""

    space: Space
    options: Options  # by plan position: numbers of the space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    rating: float
    stored: PlanRecord | None = None  # the record that it was made from, if any

    @property
    def chosen(self) -> tuple[Options, Options, float]:
        return self.options, self.ranks, self.rating

    @property
    def record(self) -> PlanRecord | None:
        """The plan as plain data; None if a record can't represent it."""
        if self.stored is not None:
            return self.stored
        return PlanRecord.of(self.space.columns, self.options, self.ranks, self.rating)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The result of a search. Plans are counted on demand, because counting takes time.

    Attributes:
        space: the search space; `problem` adds the cluster. None without a search.
        search: the search settings.
        solution: the core's solution; None if Python searched.
        placement: the best plan; None if nothing fits.
        proposals: distinct proposals.
        evaluated: proposals that were placed; fewer than `proposals` if the search skipped some.
        fixed: why the plan can be neither optimized nor compared; empty if it can.
        loaded: whether the plan comes from a plan loader.
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
        """The number of feasible proposals, if `placements` are enough to count them."""
        assert self.problem is not None
        assert self.solution is not None
        known = self.solution.plans
        if known is not None:
            return PlanCount(known)
        return count_some_plans(self.problem, self.search, placements)

    def reports(self) -> tuple[ProposerReport, ...]:
        """A report for each proposer."""
        assert self.problem is not None
        assert self.solution is not None
        if self.solution.exhaustive:
            return self.solution.reports
        # The search was done within its time-out, so the reports are those of a whole search.
        whole = replace(self.search, timeout_seconds=0.0)
        return solve(self.problem, whole, exhaustive=True).reports


class SearchBackend:
    """The search of a job whose parts are all native.

    TorchRec's planner has a separate backend, which can run proposers, partitioners, estimators
    and perf models in Python.
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
        """Whether the core rates plans; otherwise `python_rating` does."""
        return True

    @property
    def bounds_are_native(self) -> bool:
        """Whether the search space contains every plan that the search may choose."""
        return True

    @property
    def comparable(self) -> Search | None:
        """The search, if the core can rate its proposals; else None."""
        return self.job.search

    def space_of(self, columns: SearchSpace) -> Space:
        """Returns a space of the job's tables with other columns."""
        return Columns(columns)

    def chosen(self, record: PlanRecord) -> Space:
        """Returns the space of a record's options. Raises BadRecord if one is not allowed."""
        assert self.job.request is not None
        return Columns(estimate(narrowed(self.job.request, record)))

    def python_rating(self, placement: Placement) -> float:
        """Returns the rating of a plan by a perf model in Python."""
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
