"""Plans that follow an older one: where the planner finds it, and what it makes of it."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.nearest import nearest_plan
from fastplan.cache.plan_cache import StoreError
from fastplan.engine.layout import layout_of
from fastplan.engine.problem import Problem
from fastplan.engine.reachable import FOLLOWING_SLACK, reachable_rating
from fastplan.model.objectives import Objectives
from fastplan.model.plan import Plan
from fastplan.model.record import PlanRecord
from fastplan.model.request import Cluster
from fastplan.model.solution import Options
from fastplan.planning.policy import ReplanPolicy
from fastplan.planning.replan import Replan, Scratch
from fastplan.plans.file import read_plan
from fastplan.torchrec.caching import CacheUse, stock_search
from fastplan.torchrec.fallback import NotNative
from fastplan.torchrec.plan_basis import basis_of
from fastplan.torchrec.plan_files import describe_plan
from fastplan.torchrec.read import components
from fastplan.torchrec.read.space import EstimatedSpace, Space
from fastplan.torchrec.run import Run
from fastplan.torchrec.search.native import NativeSearch
from fastplan.torchrec.search.outcome import Outcome

Policy = ReplanPolicy | Literal["auto"] | None


class Replanning:
    """What a planner was told about older plans. Frozen: each plan makes a `Following` of it."""

    def __init__(self, previous: Any = None, policy: Policy = None) -> None:
        if policy is not None and policy != "auto" and not isinstance(policy, ReplanPolicy):
            raise ValueError(f'`replan` must be a ReplanPolicy or "auto", not {policy!r}')
        self._previous = previous
        self._searches_cache = previous is None and policy is not None
        self.policy = policy if isinstance(policy, ReplanPolicy) else ReplanPolicy()

    @property
    def asked(self) -> bool:
        return self._previous is not None or self._searches_cache

    @property
    def given(self) -> bool:
        """Whether the older plan was given, so that a cached one is not asked for."""
        return self._previous is not None

    def previous(self, cache: CacheUse) -> Plan | None:
        """The older plan; None where a cache is to be searched and has none that is close.

        Raises PlanFileError, OSError, or TypeError for something that is no plan.
        """
        if not self.given:
            return _nearest(cache)
        if isinstance(self._previous, str | os.PathLike):
            # A file is read once: the planner that made it may be the next to write it.
            self._previous = read_plan(self._previous)
        elif isinstance(self._previous, ShardingPlan):
            self._previous = describe_plan(self._previous, "previous plan")
        elif isinstance(self._previous, TorchRecPlanner):
            self._previous = _last_plan(self._previous)
        if not isinstance(self._previous, Plan):
            raise TypeError(
                "`previous` must be a plan, the path of a plan file, or a planner that has "
                f"planned, not {type(self._previous).__name__}"
            )
        return self._previous


def _last_plan(planner: Any) -> Plan:
    basis, why = basis_of(planner)
    if basis is None:
        raise ValueError(f"`previous` has no plan to start from: {why}")
    layout = layout_of(basis.request, basis.cluster, basis.record)
    return Plan(name="previous plan", layout=layout, basis=basis)


def _nearest(cache: CacheUse) -> Plan | None:
    if cache.plans is None or cache.report.status != "miss" or cache.report.request is None:
        return None
    try:
        assert cache.deadline is not None
        return nearest_plan(cache.plans, cache.report.request, cache.deadline)
    except (StoreError, ValueError):
        return None  # the lookup has told already; and of tables without names none is near


class Following:
    """One plan that is to follow an older one."""

    def __init__(self, replanning: Replanning, planner: Any, run: Run, cache: CacheUse) -> None:
        self._replanning = replanning
        self._planner = planner
        self._run = run
        self._found = CacheUse(
            planner,
            cache.plans,
            cache.space,
            {"replan": replanning.policy.describe()},
            cache.deadline,
        )
        self._parity = cache
        self._replan: Replan | None = None

    def start(self, space: Space, cluster: Cluster) -> Outcome | None:
        """A plan that is known or quickly found; None where the whole search space is needed."""
        if not self._replanning.given:
            with self._run.phase("cache"):
                outcome = self._parity.find(cluster)
            if outcome is not None:
                return outcome
        if not self._replanning.asked:
            return None
        if not isinstance(space, EstimatedSpace):
            self._run.not_followed = f"a part of the search is Python: {self._run.reason}"
            return None
        with self._run.phase("replan"):
            if not self._replanning.given:
                outcome = self._found.find(cluster)
                if outcome is not None:
                    self._run.cache = self._found.report
                    return outcome
            previous = self._replanning.previous(self._parity)
            if previous is None:
                self._run.not_followed = self._nothing_near()
                return None
            return self._begin(previous, space, cluster)

    def _begin(self, previous: Plan, space: EstimatedSpace, cluster: Cluster) -> Outcome | None:
        policy = self._replanning.policy
        try:
            self._replan = Replan(space.request, cluster, previous, policy)
            return self._quick(space, cluster)
        except Exception as why:
            if self._replanning.given:
                raise
            # Anybody may have written the plan that the cache has.
            self._replan = None
            self._run.not_followed = f"{previous.name} of the cache can't be followed: {why}"
            return None

    def _nothing_near(self) -> str:
        report = self._parity.report
        if report.status == "miss":
            return "the cache has no plan of most of these tables"
        return f"no older plan could be looked for: {report.reason}"

    def _quick(self, space: EstimatedSpace, cluster: Cluster) -> Outcome | None:
        assert self._replan is not None
        planner = self._planner
        try:
            rated = components.read_objective(planner._perf_model, len(cluster.rank_hbm)) is None
        except NotNative:
            rated = False
        improved = planner._fastplan.optimization is not None
        if space.extraction.estimators.custom or not rated or improved:
            return None
        found = self._replan.quick_plan()
        if found is None or not self._good_enough(found[1].rating, space, cluster):
            return None
        problem, point, self._run.replan = found
        partial = EstimatedSpace(space.request, space.extraction, space.enumerator)
        partial.columns = problem.space
        outcome = Outcome()
        outcome.take(partial, point.options, point.ranks, point.rating)
        return outcome

    def _good_enough(self, rating: float, space: EstimatedSpace, cluster: Cluster) -> bool:
        """Whether a plan may be used that was compared with none from scratch.

        One that follows the user's own plan may; the cache's could be anybody's bad one.
        """
        if self._replanning.given:
            return True
        try:
            search = stock_search(self._planner, len(cluster.rank_hbm))
        except NotNative:
            return False
        reached = reachable_rating(Problem(space.columns, cluster), search)
        return rating <= reached * (1 + FOLLOWING_SLACK)

    def follow(self, search: Any, outcome: Outcome) -> None:
        """Replaces the outcome's plan by one that follows the older; the run tells why not."""
        if self._replan is None:
            return
        if why := self._unable(search):
            self._run.not_followed = why
            return
        problem = search.problem
        scratch = None
        if outcome.found and outcome.record is not None:
            record = outcome.record()
            options = _numbers(problem, record)
            scratch = Scratch(options, record.ranks, outcome.rating)
        with self._run.phase("replan"):
            found = self._replan.after(problem, scratch)
        if isinstance(found, str):
            self._run.not_followed = found
            return
        point, report = found
        self._run.replan = report
        self._run.not_followed = None if report.followed else report.reason
        if report.followed:
            # A bound that optimizing has proven is one on this plan's rating, too.
            outcome.take(search.space, point.options, point.ranks, point.rating)

    def _unable(self, search: Any) -> str:
        """Why older plans can't be followed in this search; empty where they can."""
        if not isinstance(search, NativeSearch):
            return f"a part of the search is Python: {self._run.reason}"
        if search.listening:
            return "the scale-up proposer resizes caches, which an older plan does not tell"
        if search.search.objective is not None:
            return "an objective of your own rates plans"
        optimization = self._planner._fastplan.optimization
        if optimization is not None and optimization.objectives != Objectives():
            return "plans have other objectives and rules to keep"
        return ""

    def keep(self, outcome: Outcome, cluster: Cluster) -> None:
        """Stores a plan that follows another one under a key of its own."""
        report = self._run.replan
        if self._run.cache.status == "hit":
            return
        use = self._found if report is not None and report.followed else self._parity
        if self._replanning.asked and use.report.status == "off":
            use.expect(cluster)
        use.keep(outcome, cluster)
        self._run.cache = use.report


def _numbers(problem: Problem, record: PlanRecord) -> Options:
    """The numbers of a record's options in the problem."""
    space = problem.space
    tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
    columns = (tables, space.option_type, space.option_kernel)
    kinds = [*zip(*(column.tolist() for column in columns), strict=True)]
    number = {kind: i for i, kind in reversed([*enumerate(kinds)])}
    recorded = (record.table, record.sharding_type, record.kernel)
    chosen = zip(*(column.tolist() for column in recorded), strict=True)
    return np.array([number[kind] for kind in chosen], np.int32)
