"""The result of planning a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastplan.cache.plan_cache import CacheReport
from fastplan.engine.optimize import OptimizeResult, relative_gap
from fastplan.model.job import Job
from fastplan.model.plan import Plan
from fastplan.model.record import PlanRecord
from fastplan.planning.key import Key
from fastplan.planning.replan import ReplanReport
from fastplan.planning.search import Placement, Searched

if TYPE_CHECKING:
    from fastplan.planning.describe import Shortage


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
    bound: Callable[[], float | None] | None = field(default=None, repr=False)
    proof: Callable[[], bytes] = field(default=bytes, repr=False)

    @cached_property
    def key(self) -> Key:
        """The cache key of the plan, for a job with a request."""
        return self.make_key()

    @property
    def record(self) -> PlanRecord | None:
        """The plan as plain data; None without a plan, or if a record can't represent it."""
        return None if self.placement is None else self.placement.record

    @property
    def rating(self) -> float | None:
        """The plan's cost in TorchRec's unit; None if nothing fits."""
        return None if self.placement is None else self.placement.rating

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


def table_names(job: Job) -> list[tuple[str, str]]:
    """Returns path and name of each table, for `pins` and `together`."""
    request: Any = job.request
    return [(table.path, table.name) for table in request.tables]
