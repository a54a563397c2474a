"""The search of a job, and the result of planning it.

Here the native core does everything. TorchRec's planner has a separate backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastplan.cache.plan_cache import CacheReport
from fastplan.engine.layout import chosen_space, narrowed
from fastplan.engine.optimize import OptimizeResult, relative_gap
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import (
    Options,
    ProposerReport,
    Solution,
    count_plans,
    estimate,
    solve,
)
from fastplan.engine.step import step_of
from fastplan.model.job import Job
from fastplan.model.plan import BadRecord, Plan, PlanRecord
from fastplan.model.request import Cluster, Request, Search
from fastplan.model.step import Step
from fastplan.planning.policy import Key
from fastplan.planning.run import Run

if TYPE_CHECKING:
    from fastplan.planning.describe import Shortage
    from fastplan.planning.replan import ReplanReport
    from fastplan.planning.replicas import Replication


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


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of planning a job.

    Attributes:
        job: the planned job.
        engine: native, mixed or torchrec; `reason` says why it is not native.
        make_key: computes the cache key of the plan.
        cache: the report of the cache lookup.
        placement: the plan; None if nothing fits.
        searched: the result of the search; None for a plan from a cache.
        optimized: the result of the optimizer; `not_optimized` says why it did not run.
        replan: the report of the re-plan; `not_followed` says why no previous plan is followed.
        replication: the replica groups that the plan is for, and the cost of their sync.
        bound: proves a lower bound on all ratings; None without a proof.
        proof: the packed certificate of the bound.
    """

    job: Job
    make_key: Callable[[], Key] = field(repr=False)
    cache: CacheReport
    placement: Placement | None
    engine: str = "native"
    reason: str | None = None
    searched: Searched | None = None
    optimized: OptimizeResult | None = None
    not_optimized: str | None = None
    replan: ReplanReport | None = None
    not_followed: str | None = None
    replication: Replication | None = None
    bound: Callable[[], float | None] | None = field(default=None, repr=False)
    proof: Callable[[], bytes] = field(default=bytes, repr=False)

    @cached_property
    def key(self) -> Key:
        """The cache key of the plan, for a job with a request."""
        return self.make_key()

    @cached_property
    def record(self) -> PlanRecord | None:
        """The plan as plain data; None without a plan, or if a record can't represent it."""
        return None if self.placement is None else self.placement.record

    @property
    def rating(self) -> float | None:
        """The plan's cost in TorchRec's unit; None if nothing fits."""
        return None if self.placement is None else self.placement.rating

    @cached_property
    def step(self) -> Step | None:
        """The predicted step of the plan; None with TorchRec's costs, or if nothing fits."""
        placement, request = self.placement, self.job.request
        if placement is None or request is None or request.hardware is None:
            return None
        step = plan_step(request, self.job.cluster, placement)
        return replace(step, constants=self.job.figures)

    @cached_property
    def lower_bound(self) -> float | None:
        """A proven lower bound on the rating of every plan; None without a proof.

        The proof of a cached plan is checked on first access.
        """
        return None if self.bound is None or self.placement is None else self.bound()

    @property
    def gap(self) -> float | None:
        """How far the rating is above the lower bound, as a share of the bound."""
        if self.rating is None or self.lower_bound is None:
            return None
        return relative_gap(self.lower_bound, self.rating)

    @cached_property
    def certificate(self) -> bytes:
        """The packed certificate of the lower bound; empty without a proof."""
        return self.proof()

    @property
    def proposals(self) -> int:
        """Distinct proposals of the search; 0 for a plan from a cache."""
        return 0 if self.searched is None else self.searched.proposals

    @property
    def shortage(self) -> Shortage:
        """The missing memory of a job that does not fit."""
        from fastplan.planning.describe import shortage_of

        return shortage_of(self)

    def plan(self, notes: dict[str, str] | None = None) -> Plan:
        """Returns the plan of a spec's job, for files and reports.

        Args:
            notes: more notes for the plan.

        Raises:
            CannotPlan: nothing fits.
        """
        from fastplan.planning.describe import described

        return described(self, notes)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the optimizer."""
        return self.optimized is not None and self.optimized.stopped_by == "interrupted"


def plan_step(request: Request, cluster: Cluster, placement: Placement) -> Step:
    """Returns the predicted step of a plan.

    It is computed from the plan's own options, so that it is the same to the last bit for a plan
    that was searched for, read from a file or found in a cache.
    """
    try:
        assert placement.record is not None
        _, space = chosen_space(request, placement.record)
    except BadRecord:  # the search has resized caches
        return step_of(
            Problem(placement.space.columns, cluster), placement.options, placement.ranks
        )
    numbers = np.arange(space.options, dtype=np.int32)
    return step_of(Problem(space, cluster), numbers, placement.ranks)


def table_names(job: Job) -> list[tuple[str, str]]:
    """Returns path and name of each table, for `pins` and `together`."""
    request: Any = job.request
    return [(table.path, table.name) for table in request.tables]
