"""Plans from a cache: looked up, verified, kept."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastplan.cache.plan_cache import CacheReport, Candidate, PlanCache, StoreError, smaller
from fastplan.cache.stores.base import Deadline
from fastplan.engine.optimize import Optimize
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.reachable import FOLLOWING_SLACK, check_reachable
from fastplan.engine.solve import OutOfRange, verify_plan
from fastplan.model.job import Job
from fastplan.model.record import BadRecord
from fastplan.planning.key import Key, key_of
from fastplan.planning.policy import Replan
from fastplan.planning.result import Result, table_names
from fastplan.planning.search import Placement, SearchBackend

logger = logging.getLogger(__name__)


class CacheSession:
    """One job's use of a cache, under one key.

    Args:
        backend: the job's search.
        cache: where plans are kept; None for no cache.
        optimize: how TorchRec's plan is improved, if it is.
        policy: how the plan follows an older one, if it does.
        deadline: of the lookup that this one is a part of.
    """

    def __init__(
        self,
        backend: SearchBackend,
        cache: PlanCache | None,
        optimize: Optimize | None,
        policy: Replan | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.job: Job = backend.job
        self.cache = cache
        self.report = CacheReport(status="off")
        self._backend = backend
        self._optimize = optimize
        self._policy = policy
        self.deadline = deadline
        if deadline is None and cache is not None:
            self.deadline = Deadline(cache.timeout)

    @cached_property
    def key(self) -> Key:
        return key_of(self.job, self._optimize, self._policy)

    def expect(self) -> bool:
        """Whether a plan can be kept: there is a cache, and a key that decides the plan."""
        if self.cache is None:
            self.report = CacheReport(status="off", reason="no cache is configured")
            return False
        unusable = self.job.uncacheable or self.key.unusable
        if unusable is not None:
            self.report = CacheReport(status="off", reason=unusable)
            return False
        self.report = CacheReport(
            status="miss",
            reason="it was not looked up",
            fingerprint=self.key.fingerprint,
            request=self.key.request,
        )
        return True

    def find(self) -> Result | None:
        """The stored plan, verified against the devices at hand; None where there is none.

        `report` says what came of the lookup.
        """
        if not self.expect():
            return None
        assert self.cache is not None
        try:
            found, reason = self.cache.find(
                self.key.fingerprint, self.job.cluster, self._result, self.deadline
            )
        except StoreError as problem:
            self._failed(problem)
            return None
        status = "hit" if found is not None else "miss"
        self.report = replace(self.report, status=status, reason=reason or None)
        return None if found is None else replace(found, cache=self.report)

    def keep(self, result: Result) -> None:
        """Stores a plan that was searched for after a miss."""
        if self.cache is None or self.report.status != "miss":
            return
        record = result.record
        if record is None or result.interrupted:
            return
        facts: dict[str, Any] = {
            "torchrec": self.job.context["torchrec"],
            "tables": len(record.table),
            "ranks": len(self.job.cluster.rank_hbm),
            "engine": result.engine,
        }
        if self.job.name:
            facts["model"] = self.job.name
        plan = record, self.job.cluster, self.key.request, facts, result.certificate
        try:
            self.cache.put(self.key.fingerprint, *plan)
        except StoreError as problem:
            self._failed(problem)

    def _failed(self, problem: StoreError) -> None:
        self.report = replace(self.report, status="failed", reason=str(problem))
        logger.warning("fastplan: the plan cache failed, planning goes on: %s", problem)

    def _result(self, candidate: Candidate) -> Result:
        """The stored plan. Raises BadRecord and others where it is no legal plan here and now."""
        record, cluster = candidate.record, self.job.cluster
        space = self._backend.chosen(record)
        numbers = np.arange(len(record.table), dtype=np.int32)
        placement = Placement(space, numbers, record.ranks, record.rating, record)
        problem = Problem(space.columns, cluster)
        native, objective = self._backend.rates_natively, self.job.search.objective
        expected = record.rating if native else math.nan
        if complaint := verify_plan(problem, numbers, record.ranks, expected, objective):
            raise BadRecord(complaint)
        if native:
            self._check_reachable(candidate)
        elif self._backend.python_rating(placement) != record.rating:
            raise BadRecord("its rating is another one now")
        return Result(
            job=self.job,
            make_key=lambda: self.key,
            cache=self.report,
            placement=placement,
            bound=self._bound(candidate),
            proof=partial(bytes, candidate.certificate),
        )

    def _check_reachable(self, candidate: Candidate) -> None:
        """Raises BadRecord for a legal plan that is worse than the search would ever find."""
        slack = 0.0 if self._optimize is None else self._optimize.objectives.slack
        if self._policy is not None:
            slack = max(slack, FOLLOWING_SLACK)
        search = self._backend.comparable
        if candidate.trusted or math.isinf(slack) or search is None:
            return
        space = self._backend.problem.space
        problem = Problem(space, smaller(self.job.cluster, candidate.capacities))
        check_reachable(candidate.record, problem, search, slack=slack)

    def _bound(self, candidate: Candidate) -> Any:
        """How to prove a bound on all plans; None where nothing can be proven.

        That takes an estimate of every option, which a plan from a cache does not need.
        """
        optimize, backend = self._optimize, self._backend
        if optimize is None or not candidate.certificate or not backend.bounds_are_native:
            return None
        if self.job.search.objective is not None:
            return None

        def prove() -> float | None:
            try:
                problem = backend.problem
            except OutOfRange:
                return None
            packed, rating = candidate.certificate, candidate.record.rating
            names = table_names(self.job)
            return proven_bound(packed, rating, problem, optimize.objectives, names)

        return prove
