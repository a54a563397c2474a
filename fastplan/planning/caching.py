"""Looks plans up in a cache, verifies them and stores new ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastplan.cache.plan_cache import Cache, CacheReport, Candidate, StoreError
from fastplan.cache.stores.base import Deadline
from fastplan.engine.better_proposal import FOLLOWING_SLACK, better_proposal
from fastplan.engine.optimize import Optimize
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Measure, OutOfRange, measure_of, verify_plan
from fastplan.engine.step import step_of
from fastplan.model.job import Job
from fastplan.model.log import escaped_logger
from fastplan.model.plan import BadRecord
from fastplan.model.request import Search
from fastplan.planning.policy import Key, Replan, key_of
from fastplan.planning.search import Placement, Result, SearchBackend, table_names

logger = escaped_logger(__name__)

# Where memory is short, a plan that was solved for slightly less can be a little worse than the
# search's. Without a margin, too, many proposals would have to be placed to show that none is
# better.
_HIT_SLACK = 0.05


class CacheSession:
    """The use of a cache by one job, under one key.

    Args:
        backend: the job's search.
        cache: where plans are stored; None for no cache.
        optimize: the settings of the optimizer; None for TorchRec's plan.
        policy: the re-planning policy; None for a plan from scratch.
        deadline: the deadline of an enclosing lookup.
        previous: computes the digest of the previous plan that the user gives, if any.
    """

    def __init__(
        self,
        backend: SearchBackend,
        cache: Cache | None,
        optimize: Optimize | None,
        policy: Replan | None = None,
        deadline: Deadline | None = None,
        previous: Callable[[], str] | None = None,
    ) -> None:
        self.job: Job = backend.job
        self.cache = cache
        self.report = CacheReport(status="off")
        self._backend = backend
        self._optimize = optimize
        self._policy = policy
        self._previous = previous
        self.deadline = deadline
        if deadline is None and cache is not None:
            self.deadline = Deadline(cache.timeout)

    @cached_property
    def key(self) -> Key:
        previous = None if self._previous is None else self._previous()
        return key_of(self.job, self._optimize, self._policy, previous)

    def expect(self) -> bool:
        """Returns whether a plan can be stored: it needs a cache and a usable key."""
        if self.cache is None:
            self.report = CacheReport(status="off", reason="no cache is configured")
            return False
        unusable = self.job.uncacheable or self.key.unusable
        if unusable is not None:
            self.report = CacheReport(status="off", reason=unusable)
            return False
        self.report = CacheReport(
            status="miss",
            reason="the cache was not searched",
            fingerprint=self.key.fingerprint,
            request=self.key.request,
        )
        return True

    def find(self) -> Result | None:
        """Returns the stored plan, verified for the current devices; None if there is none.

        `report` has the result of the lookup.
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
        if found is None:
            self.report = replace(self.report, status="miss", reason=reason)
        else:
            self.report = found.cache
        return found

    def keep(self, result: Result) -> None:
        """Stores a plan that was found after a cache miss."""
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
        facts |= self._names()
        plan = record, self.job.cluster, self.key.request, facts, result.certificate
        try:
            self.cache.put(self.key.fingerprint, *plan)
        except StoreError as problem:
            self._failed(problem)
        except ValueError as problem:  # a rating that an entry can't hold, such as -inf
            self._failed(StoreError(f"the plan can't be stored: {problem}"))

    def _names(self) -> dict[str, str]:
        """Returns what tells entries apart in a list: model, hardware, precision and costs."""
        job = self.job
        assert job.request is not None
        found = {"model": job.name, "sku": job.hardware}
        sizes = {table.element_size for table in job.request.tables}
        found["precision"] = f"{8 * sizes.pop()}-bit" if len(sizes) == 1 else "mixed"
        found["costs"] = "hardware" if job.request.hardware is not None else "torchrec"
        if job.request.pricing is not None:
            found["costs"] = job.request.pricing.function.name
        return {name: value for name, value in found.items() if value}

    def _failed(self, problem: StoreError) -> None:
        self.report = replace(self.report, status="failed", reason=str(problem))
        logger.warning("fastplan: the plan cache failed, planning continues: %s", problem)

    def _result(self, candidate: Candidate) -> Result:
        """Rebuilds a stored plan. Raises BadRecord and others if it is not legal here."""
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
            self._compare(candidate, problem)
        elif self._backend.python_rating(placement) != record.rating:
            raise BadRecord("its rating has changed")
        return Result(
            job=self.job,
            make_key=lambda: self.key,
            cache=replace(self.report, status="hit", reason=None),
            placement=placement,
            bound=self._bound(candidate),
            proof=partial(bytes, candidate.certificate),
        )

    def _compare(self, candidate: Candidate, chosen: Problem) -> None:
        """Raises BadRecord for a legal plan that is worse than a proposal of the search.

        Args:
            candidate: the stored plan.
            chosen: the plan's own options.
        """
        search = self._backend.comparable
        if candidate.trusted or search is None:
            return
        by, slack = self._compared(chosen, search)
        if math.isinf(slack):
            return
        record = candidate.record
        value = record.rating
        if by == "step":
            value = step_of(chosen, np.arange(len(record.table), dtype=np.int32), record.ranks).ms
        better = better_proposal(self._backend.problem, search, value, by=by, slack=slack)
        if better is not None:
            what = "it is rated" if by == "rating" else "its step takes"
            raise BadRecord(f"{what} {value:.6g}, but TorchRec's own proposals reach {better:.6g}")

    def _compared(self, chosen: Problem, search: Search) -> tuple[Measure, float]:
        """Returns what plans under this key are compared by, and how much worse one may be."""
        by, slack = measure_of(chosen, search), _HIT_SLACK
        if self._optimize is not None:
            objectives = self._optimize.objectives
            if objectives.measure != "step" or objectives.rules:
                by, slack = "rating", max(objectives.slack, _HIT_SLACK)
        return by, slack if self._policy is None else max(slack, FOLLOWING_SLACK)

    def _bound(self, candidate: Candidate) -> Any:
        """Returns a function that proves a bound on all plans; None without a proof.

        The proof needs an estimate of every option, which a cached plan does not need.
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
