"""What planning a job returns."""

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
    """What came of planning a job.

    Attributes:
        job: what was planned.
        engine: native, mixed or torchrec; `reason` says why it is not native.
        make_key: works out what a cache keeps the plan under.
        cache: what the cache did.
        placement: the plan; None where nothing fits.
        searched: what the search found; None for a plan from a cache.
        optimized: what improving TorchRec's plan found; `not_optimized` says why it was not tried.
        replan: what came of a previous plan; `not_followed` says why the plan does not follow it.
        bound: proves a lower bound on all ratings, or None where nothing is proven.
        proof: what proves the bound, packed.
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
        """What a cache keeps the plan under, for a job with a request."""
        return self.make_key()

    @property
    def record(self) -> PlanRecord | None:
        """The plan as plain data; None where there is none, or a record can't hold it."""
        return None if self.placement is None else self.placement.record

    @property
    def rating(self) -> float | None:
        """The plan's cost in TorchRec's unit; None where nothing fits."""
        return None if self.placement is None else self.placement.rating

    @cached_property
    def lower_bound(self) -> float | None:
        """No plan is rated below; None where that is not proven.

        The proof of a plan from a cache is checked when someone first asks.
        """
        return None if self.bound is None or self.placement is None else self.bound()

    @property
    def gap(self) -> float | None:
        """How far the rating is above the lower bound, as a part of the bound."""
        if self.rating is None or self.lower_bound is None:
            return None
        return relative_gap(self.lower_bound, self.rating)

    @cached_property
    def certificate(self) -> bytes:
        """What proves the lower bound, packed; empty where nothing is proven."""
        return self.proof()

    @property
    def proposals(self) -> int:
        """Distinct proposals of the search; 0 for a plan from a cache."""
        return 0 if self.searched is None else self.searched.proposals

    @property
    def shortage(self) -> Shortage:
        """What a job lacks of which nothing fits."""
        from fastplan.planning.describe import shortage_of

        return shortage_of(self)

    def plan(self, notes: dict[str, str] | None = None) -> Plan:
        """The plan of a spec's job as files hold it and reports show it.

        Args:
            notes: more notes for the plan.

        Raises:
            CannotPlan: nothing fits.
        """
        from fastplan.planning.describe import described

        return described(self, notes)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search for a better plan."""
        return self.optimized is not None and self.optimized.stopped_by == "interrupted"


def table_names(job: Job) -> list[tuple[str, str]]:
    """Path and name of each table, as pins and the like name them."""
    request: Any = job.request
    return [(table.path, table.name) for table in request.tables]
