"""How a job is searched, and how a stored plan of it is read: by the core alone."""

from __future__ import annotations

from functools import cached_property

from fastplan.engine.narrow import narrowed
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import estimate, solve
from fastplan.model.job import Job
from fastplan.model.record import PlanRecord
from fastplan.model.request import Search
from fastplan.planning.result import Columns, Placement, Searched, Space
from fastplan.planning.run import Run


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
