"""Finds the previous plan of a job, and the plan that follows it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from fastplan.cache.nearest import nearest_plan
from fastplan.cache.plan_cache import StoreError
from fastplan.engine.better_proposal import FOLLOWING_SLACK, better_proposal
from fastplan.engine.optimize import Optimize
from fastplan.model.job import Job
from fastplan.model.plan import Plan, TableColumns
from fastplan.planning.caching import CacheSession
from fastplan.planning.policy import Key, Replan, key_of
from fastplan.planning.replan import ReplanAttempt, Scratch
from fastplan.planning.run import Run
from fastplan.planning.search import Placement, Result, SearchBackend, Searched


class ReplanSession:
    """The attempt to follow a previous plan: the given one, or the nearest in the cache.

    Args:
        backend: the job's search.
        use: the cache session for plans from scratch.
        previous: the previous plan; None for the nearest one in the cache.
        policy: what may move; None for the default policy.
        optimize: the settings of the optimizer; None for TorchRec's plan.
        run: records the phases.
    """

    def __init__(
        self,
        backend: SearchBackend,
        use: CacheSession,
        previous: Plan | None,
        policy: Replan | None,
        optimize: Optimize | None,
        run: Run,
    ) -> None:
        self._backend = backend
        self._job = backend.job
        self._given = previous
        self._policy = policy or Replan()
        self._optimize = optimize
        self._run = run
        self._scratch_use = use
        digest = None if previous is None else partial(_digest, previous, self._policy, self._job)
        self._use = CacheSession(backend, use.cache, optimize, self._policy, use.deadline, digest)
        self._attempt: ReplanAttempt | None = None
        self._not_followed: str | None = None

    def begin(self) -> Result | None:
        """Returns a plan without a search: a stored one, or one from the quick check."""
        if self._job.request is None:
            return None  # follow() says why
        with self._run.phase("replan"):
            previous = self._given
            if previous is None:
                result = self._use.find()
                if result is not None:
                    return result
                previous = self._nearest()
            if previous is None:
                self._not_followed = self._nothing_near()
                return None
            return self._begun(previous)

    def follow(self, result: Result, searched: Searched) -> Result:
        """Returns the plan that follows the previous one, or else the plan from scratch."""
        if why := self._why_unsupported(result, searched):
            return replace(result, not_followed=why)
        if self._attempt is None:
            return replace(result, not_followed=self._not_followed)
        problem, scratch = searched.problem, result.placement
        assert problem is not None
        assert searched.space is not None
        with self._run.phase("replan"):
            plan = None if scratch is None else Scratch(*scratch.chosen)
            found = self._attempt.after(problem, plan)
        if isinstance(found, str):
            return replace(result, not_followed=found)
        point, report = found
        if not report.followed:
            return replace(result, replan=report, not_followed=report.reason)
        # A bound that the optimizer has proven is also valid for this plan.
        placement = Placement(searched.space, point.options, point.ranks, point.rating)
        return replace(result, replan=report, placement=placement)

    def use_for(self, result: Result) -> CacheSession:
        """Returns the cache session of a plan: plans that follow others have their own key."""
        followed = result.replan is not None and result.replan.followed
        use = self._use if followed else self._scratch_use
        if use.report.status == "off":
            use.expect()
        return use

    def _request_key(self) -> Key:
        """Returns the key without the previous plan, which plan files have of the request."""
        if self._given is None:
            return self._use.key
        return key_of(self._job, self._optimize, self._policy)

    def _nearest(self) -> Plan | None:
        use = self._scratch_use
        if use.cache is None or use.report.status != "miss":
            return None
        assert use.deadline is not None
        try:
            return nearest_plan(use.cache, use.key.request, use.deadline)
        except (StoreError, ValueError):
            return None  # the lookup has reported it; tables without names match no stored plan

    def _nothing_near(self) -> str:
        report = self._scratch_use.report
        if report.status == "miss":
            return "the cache has no plan with half of these tables"
        return f"the cache could not be searched for a previous plan: {report.reason}"

    def _begun(self, previous: Plan) -> Result | None:
        assert self._job.request is not None
        try:
            self._attempt = ReplanAttempt(
                self._job.request, self._job.cluster, previous, self._policy
            )
            return self._quick()
        except Exception as why:
            if self._given is not None:
                raise
            # A cached plan may come from another user.
            self._attempt = None
            self._not_followed = f"{previous.name} from the cache can't be followed: {why}"
            return None

    def _quick(self) -> Result | None:
        """Returns a plan that needs no comparison with one from scratch; None if there is none."""
        assert self._attempt is not None
        backend = self._backend
        if not (backend.estimates_natively and backend.rates_natively):
            return None
        if self._job.search.objective is not None or self._optimize is not None:
            return None
        found = self._attempt.quick_plan()
        if found is None:
            return None
        problem, point, report = found
        if not self._may_skip_reference(point.rating):
            return None
        space = backend.space_of(problem.space)
        return Result(
            job=self._job,
            engine=self._run.engine,
            reason=self._run.reason,
            make_key=self._request_key,
            cache=self._use.report,
            placement=Placement(space, point.options, point.ranks, point.rating),
            replan=report,
        )

    def _may_skip_reference(self, rating: float) -> bool:
        """Whether a plan may be used without a comparison with a plan from scratch.

        A plan that follows the user's own plan may, if the costs of that plan are known. A cached
        plan could be a bad one, and the costs behind a plan without a basis may have changed: no
        proposal of the search may then be twice as good.
        """
        assert self._attempt is not None
        if self._given is not None and self._attempt.difference.compared:
            return True
        search = self._backend.comparable
        if search is None:
            return False
        problem = self._backend.problem
        problem.handle  # noqa: B018  raises OutOfRange, as a search would
        return better_proposal(problem, search, rating, slack=FOLLOWING_SLACK) is None

    def _why_unsupported(self, result: Result, searched: Searched) -> str:
        """Why this search can't follow a previous plan; empty if it can."""
        if searched.fixed:
            return searched.fixed
        if self._job.request is None:
            return f"a part of the search is Python: {result.reason}"
        if searched.search.objective is not None:
            return "a custom objective rates plans"
        if self._optimize is not None and not self._optimize.objectives.follows:
            return "`objectives` are set"
        if self._optimize is not None and self._optimize.offload:
            return "`offload` is set"
        return ""


def _digest(previous: Plan, policy: Replan, job: Job) -> str:
    """Returns the digest of all that decides a plan after `previous`, besides the request.

    The order in which options are listed is part of it. A request's key leaves it out, but the
    search after a previous plan may end at another plan.
    """
    assert job.request is not None
    tables, basis = TableColumns.of(previous.layout.tables), previous.basis
    digest = hashlib.blake2b(digest_size=20)
    for part in (
        *(tables.keys, tables.sharding_types, tables.kernels, tables.shapes),
        *(tables.begin.tolist(), tables.shards.tolist()),
        *((basis.request, basis.cluster, basis.record.rating) if basis else ()),
        *(policy.rank_map, job.request.menus, [table.menu for table in job.request.tables]),
    ):
        digest.update(repr(part).encode(errors="surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()
