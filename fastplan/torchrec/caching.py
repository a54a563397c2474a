"""Plans from the cache: the key of a planning request, and the way back from an entry."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.cache.plan_cache import CacheReport, Candidate, PlanCache, StoreError, smaller
from fastplan.cache.stores.base import Deadline
from fastplan.costs.errors import CannotTell
from fastplan.costs.keys import custom_parts
from fastplan.engine.problem import Problem
from fastplan.engine.reachable import FOLLOWING_SLACK, check_reachable
from fastplan.engine.solve import verify_plan
from fastplan.model.record import NO_LOAD_FACTOR, BadRecord, PlanRecord
from fastplan.model.request import Cluster, Partitioner, Search
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.torchrec import versions
from fastplan.torchrec.fallback import NotNative, describe
from fastplan.torchrec.improving import proof_of
from fastplan.torchrec.read import components
from fastplan.torchrec.read.space import Choice, EstimatedSpace, ObjectSpace, Space
from fastplan.torchrec.search.outcome import Outcome

logger = logging.getLogger(__name__)

_CACHED = "fused_uvm_caching"


class CacheUse:
    """One planner's use of its cache for one plan."""

    def __init__(
        self,
        planner: Any,
        cache: PlanCache | None,
        space: Space | None,
        context: dict[str, Any] | None = None,  # what else belongs to the key
        deadline: Deadline | None = None,  # of the lookup that this one is a part of
    ) -> None:
        self._planner = planner
        self._context = context or {}
        self.plans = cache
        self.space = space
        self.report = CacheReport(status="off")
        self.deadline = deadline
        if deadline is None and cache is not None:
            self.deadline = Deadline(cache.timeout)

    def find(self, cluster: Cluster) -> Outcome | None:
        """The cached plan, verified against the devices at hand; None with a reason otherwise."""
        if not self.expect(cluster):
            return None
        assert self.plans is not None
        assert self.report.fingerprint is not None
        try:
            outcome, reason = self.plans.find(
                self.report.fingerprint,
                cluster,
                lambda candidate: self._outcome(candidate, cluster),
                self.deadline,
            )
        except StoreError as problem:
            self._failed(problem)
            return None
        self.report.status, self.report.reason = (
            ("miss", reason) if outcome is None else ("hit", None)
        )
        return outcome

    def expect(self, cluster: Cluster) -> bool:
        """Works out the key without looking it up, so that a plan can be kept; False without."""
        if self.plans is None:
            self.report.reason = "no cache is configured"
            return False
        try:
            self.report.request = self._request(cluster)
        except NotNative as why:
            self.report.reason = str(why)
            return False
        self.report.fingerprint = fingerprint(self.report.request)
        self.report.status, self.report.reason = "miss", "it was not looked up"
        return True

    def keep(self, outcome: Outcome, cluster: Cluster) -> None:
        """Stores a plan that was searched for after a miss."""
        report = self.report
        if self.plans is None or report.status != "miss":
            return
        if not outcome.found or outcome.record is None or outcome.cut_short:
            return
        assert report.fingerprint is not None
        assert report.request is not None
        facts: dict[str, Any] = {
            "torchrec": versions.VERSION,
            "tables": len(outcome.record().table),
            "ranks": len(cluster.rank_hbm),
            "engine": self._planner.last_run.engine,
        }
        plan = outcome.record(), cluster, report.request, facts, outcome.certificate()
        try:
            self.plans.put(report.fingerprint, *plan)
        except StoreError as problem:
            self._failed(problem)

    def _failed(self, problem: StoreError) -> None:
        self.report.status, self.report.reason = "failed", str(problem)
        logger.warning("fastplan: the plan cache failed, planning goes on: %s", problem)

    def _request(self, cluster: Cluster) -> bytes:
        """What decides the plan. Raises NotNative when a part can't be fingerprinted."""
        space, planner = self.space, self._planner
        if not isinstance(space, EstimatedSpace):
            raise NotNative("the search space is enumerated in Python")
        if planner.plan_loader is not None:
            raise NotNative("a plan loader decides the plan")
        space.check_cost()
        search, custom = _describe_search(planner, len(cluster.rank_hbm))
        custom += [_own_fingerprint(part) for part in space.extraction.estimators.custom]
        optimization = planner._fastplan.optimization
        try:
            custom += custom_parts(space.request, search)
        except CannotTell as why:
            raise NotNative(str(why)) from why
        return canonical_request(
            space.request,
            search,
            ranks=len(cluster.rank_hbm),
            context={
                "torchrec": versions.VERSION,
                "deterministic": planner._fastplan.deterministic,
                "local_world_size": cluster.local_world_size,
                "group_size": cluster.group_size,
                "reservation": _describe_reservation(planner._storage_reservation),
                "custom": custom,
                **({} if optimization is None else {"optimize": optimization.describe()}),
                **self._context,
            },
        )

    def _outcome(self, candidate: Candidate, cluster: Cluster) -> Outcome:
        """The stored plan as an outcome; raises when it is not a legal plan here and now."""
        assert isinstance(self.space, EstimatedSpace)
        record = candidate.record
        resizes = any(map(components.listens, self._planner._proposers))
        chosen = rebuild(self.space, record, resizes=resizes)
        custom = self.space.extraction.estimators.custom
        space: Space = chosen
        if custom:
            options = chosen.all_options()
            for estimator in custom:
                estimator.estimate(
                    options, sharder_data_map=self._planner._enumerator._sharder_data_map
                )
            space = ObjectSpace(options)
        numbers = np.arange(len(record.table), dtype=np.int32)
        expected, objective = record.rating, None
        try:
            ranks = len(cluster.rank_hbm)
            objective = components.read_objective(self._planner._perf_model, ranks)
        except NotNative:
            expected = math.nan
        problem = Problem(space.columns, cluster)
        if complaint := verify_plan(problem, numbers, record.ranks, expected, objective):
            raise BadRecord(complaint)
        if math.isnan(expected):
            plan = space.chosen_options(numbers, record.ranks)
            if self._planner._perf_model.rate(plan=plan) != record.rating:
                raise BadRecord("its rating is another one now")
        elif not custom:
            self._check_rating(candidate, cluster)
        outcome = Outcome()
        outcome.take(space, numbers, record.ranks, record.rating)
        outcome.record = lambda: record
        outcome.lower_bound = proof_of(self._planner, self.space, cluster, candidate)
        outcome.certificate = partial(bytes, candidate.certificate)
        return outcome

    def _check_rating(self, candidate: Candidate, cluster: Cluster) -> None:
        """Raises BadRecord for a legal plan that is worse than the search would ever find."""
        assert isinstance(self.space, EstimatedSpace)
        optimization = self._planner._fastplan.optimization
        slack = 0.0 if optimization is None else optimization.objectives.slack
        if "replan" in self._context:
            slack = max(slack, FOLLOWING_SLACK)
        if candidate.trusted or math.isinf(slack):
            return
        try:
            search = stock_search(self._planner, len(cluster.rank_hbm))
        except NotNative:
            return  # nobody else knows where its own partitioner would place a proposal
        problem = Problem(self.space.columns, smaller(cluster, candidate.capacities))
        check_reachable(candidate.record, problem, search, slack=slack)


def rebuild(space: EstimatedSpace, record: PlanRecord, *, resizes: bool) -> EstimatedSpace:
    """The space with just a record's options. Raises BadRecord when they are not allowed.

    `resizes` says whether a proposer of the search may give tables other caches.
    """
    tables = space.request.tables
    if len(record.table) != len(tables):
        raise BadRecord(f"it has {len(record.table)} tables, the model {len(tables)}")
    allowed = [{(item.sharding_type, item.kernel) for item in menu} for menu in space.request.menus]
    choices = []
    for table, kind, kernel_number, factor in zip(
        record.table.tolist(),
        record.sharding_type.tolist(),
        record.kernel.tolist(),
        record.load_factor.tolist(),
        strict=True,
    ):
        sharding_type, kernel = SHARDING_TYPES[kind], KERNELS[kernel_number]
        menu = allowed[tables[table].menu]
        rule = space.origins[table].constraint
        cache = rule.cache_params if rule is not None else None
        choice = sharding_type, kernel
        if not math.isnan(factor):
            cache = _resized(tables[table].name, kernel, factor, cache if resizes else None)
            # The scale-up proposer takes tables that outgrow their cache to the device.
            choice = sharding_type, _CACHED
        if choice not in menu and (sharding_type, kernel) not in menu:
            raise BadRecord(
                f"table {tables[table].name} may not be ({sharding_type}, {kernel}) any more"
            )
        choices.append(Choice(table, sharding_type, kernel, cache))
    return space.narrowed(choices)


def _resized(name: str, kernel: str, factor: float, cache: Any) -> Any:
    """The cache parameters that the scale-up proposer leaves; raises BadRecord for any other."""
    if cache is None:
        raise BadRecord(f"table {name} has another cache, and nothing here resizes caches")
    if kernel == "fused" and factor == NO_LOAD_FACTOR:
        return replace(cache, load_factor=None)
    if kernel == _CACHED and 0 < factor < 1:
        return replace(cache, load_factor=factor)
    raise BadRecord(f"table {name} may not be {kernel} with a cache load factor of {factor:g}")


def stock_search(planner: Any, ranks: int) -> Search:
    """The search as far as its proposers are stock. Raises NotNative where a custom part decides
    what a proposal is worth, or can't be fingerprinted."""
    components.read_partitioner(planner._partitioner)
    components.read_objective(planner._perf_model, ranks)
    search, _ = _describe_search(planner, ranks)
    return search


def _describe_search(planner: Any, ranks: int) -> tuple[Search, list[Any]]:
    """Stock parts as settings, custom ones by their own fingerprints."""
    custom: list[Any] = []
    stock = []
    for index, proposer in enumerate(planner._proposers):
        if components.listens(proposer):
            custom.append(["scaleup", index, bool(proposer.use_depth), proposer.search is not None])
            continue
        try:
            stock.append(components.read_proposer(proposer))
        except NotNative:
            custom.append([index, _own_fingerprint(proposer)])
    try:
        partitioner = components.read_partitioner(planner._partitioner)
    except NotNative:
        partitioner = Partitioner()
        custom.append(_own_fingerprint(planner._partitioner))
    objective = None
    try:
        objective = components.read_objective(planner._perf_model, ranks)
    except NotNative:
        custom.append(_own_fingerprint(planner._perf_model))
    search = Search(
        proposers=tuple(stock),
        partitioner=partitioner,
        timeout_seconds=float(planner._timeout_seconds or 0),
        objective=objective,
    )
    return search, custom


def _own_fingerprint(part: Any) -> list[str]:
    give = getattr(part, "fingerprint", None)
    if not callable(give):
        raise NotNative(f"{describe(part)} has no `fingerprint()`")
    return [describe(part), str(give())]


def _describe_reservation(reservation: Any) -> dict[str, Any]:
    """Policy and result. What it leaves of the devices is compared with a tolerance."""
    parts: dict[str, Any] = {}
    for name in ("_percentage", "_hbm_reserved_bytes", "_margin_bytes", "_model_base_bytes"):
        value = getattr(reservation, name, None)
        if isinstance(value, int | float):
            parts[name.strip("_")] = value
    for name in ("_dense_storage", "_kjt_storage"):
        storage = getattr(reservation, name, None)
        if storage is not None:
            parts[name.strip("_")] = asdict(storage)
    return {"policy": describe(reservation), **parts}
