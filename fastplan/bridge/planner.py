"""The planner: TorchRec's class, with its search done by the native core."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import torch.distributed as dist
from torchrec.distributed.planner import planners
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    Partitioner,
    PerfModel,
    PlanLoader,
    Proposer,
    ShardingOption,
    Stats,
    StorageReservation,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan

from fastplan.bridge import collective, collector, hooks, improving, replay, stats, versions
from fastplan.bridge.caching import CacheUse
from fastplan.bridge.cluster import read_cluster, reserve
from fastplan.bridge.custom import check_rating, install
from fastplan.bridge.enumeration import Enumeration
from fastplan.bridge.fallback import NotNative
from fastplan.bridge.loaded import loaded_plan
from fastplan.bridge.mixed_search import MixedSearch
from fastplan.bridge.native_search import NativeSearch
from fastplan.bridge.outcome import Outcome
from fastplan.bridge.plan_basis import BasisDraft
from fastplan.bridge.replanning import Following, Policy, Replanning
from fastplan.bridge.run import Run
from fastplan.bridge.sharders import AskedSharder
from fastplan.bridge.space import EstimatedSpace, Space
from fastplan.bridge.validate import validate
from fastplan.cache.plan_cache import PlanCache, open_cache
from fastplan.core.objectives import Objectives
from fastplan.core.problem import Problem
from fastplan.core.record import PlanRecord
from fastplan.core.solve import OutOfRange
from fastplan.costs.functions import PlanObjective, ShardCost
from fastplan.spec.request import Cluster

logger = logging.getLogger(__name__)


class EmbeddingShardingPlanner(TorchRecPlanner):
    """TorchRec's EmbeddingShardingPlanner: the same arguments, the same plan, much sooner.

    Args are TorchRec's, in TorchRec's order. In addition:
        deterministic: order a table's options as its sharder lists them, so that the plan does
            not depend on PYTHONHASHSEED (TorchRec 1.8's does when options tie).
        cache: where plans are kept over restarts: a directory, a URL that fsspec knows, or a
            PlanCache; True is the platform's usual directory for caches. None takes FASTPLAN_CACHE
            from the environment, False is no cache.
        cache_timeout: seconds that a cache which hangs may cost; a PlanCache has its own.
        capacity_tolerance: how far a device's memory may be from what a plan was solved for; a
            PlanCache has its own.
        mode: "parity" is TorchRec's plan; "optimize" improves on it, and is never worse than the
            better of TorchRec's plans with shards sorted by storage and by perf.
        time_budget: seconds for planning and improving, or None for no limit. Ctrl-C ends the
            improvement with the best plan so far.
        move_budget: how much to try. With this alone, seed and threads decide the plan.
        seed, threads: of the improvement.
        previous, replan: a plan, file or planner to follow, and the policy; see docs/replan.md.
        objectives: what to minimise within some part of the best rating, and where tables must
            lie; see Objectives. RulesBroken is raised rather than a plan that does not keep them.
        shard_cost: a function with @fastplan.shard_cost: what a shard costs.
        objective: a function with @fastplan.plan_objective: rates plans, not their largest rank.

    After `plan()`, `last_run` tells which engine planned and why, the rating, seconds by phase,
    proposals and plans, and what the cache did; of an optimized plan also `lower_bound`, which no
    plan is rated below, `gap`, `stopped_by` and `start_ratings`, or why it is `not_optimized`; and
    `replan` and `moves` of a plan that follows another, or why it is `not_followed`.
    """

    def __init__(
        self,
        topology: Topology | None = None,
        batch_size: int | None = None,
        enumerator: Enumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: Proposer | list[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        performance_model: PerfModel | None = None,
        stats: Stats | list[Stats] | None = None,
        constraints: dict[str, ParameterConstraints] | None = None,
        debug: bool = True,
        callbacks: list[Callable[[list[ShardingOption]], list[ShardingOption]]] | None = None,
        timeout_seconds: int | None = None,
        plan_loader: PlanLoader | None = None,
        *,
        deterministic: bool = False,
        cache: str | os.PathLike[str] | PlanCache | bool | None = None,
        cache_timeout: float = 5.0,
        capacity_tolerance: float = 0.01,
        mode: Literal["parity", "optimize"] = "parity",
        time_budget: float | None = 1.0,
        move_budget: int | None = None,
        seed: int = 0,
        threads: int = 1,
        previous: Any = None,
        replan: Policy = None,
        objectives: Objectives | None = None,
        shard_cost: ShardCost | None = None,
        objective: PlanObjective | None = None,
    ) -> None:
        check_rating(objective, performance_model, mode)
        self.last_run: Run | None = None
        self._last_record: Callable[[], PlanRecord] | None = None
        self._last_basis: BasisDraft | None = None
        self._deterministic = deterministic
        self._optimization = improving.settings_of(
            mode, time_budget, move_budget, seed, threads, objectives
        )
        self._replanning = Replanning(previous, replan)
        self._cache = open_cache(
            cache, capacity_tolerance=capacity_tolerance, timeout=cache_timeout
        )
        super().__init__(
            topology=topology,
            batch_size=batch_size,
            enumerator=enumerator,
            storage_reservation=storage_reservation,
            proposer=proposer,
            partitioner=partitioner,
            performance_model=performance_model,
            stats=stats,
            constraints=constraints,
            debug=debug,
            callbacks=callbacks,
            timeout_seconds=timeout_seconds,
            plan_loader=plan_loader,
        )
        install(self, shard_cost, objective)

    # TorchRec's users read these; they cost nothing until somebody does.

    @property
    def _best_plan(self) -> list[ShardingOption] | None:
        value = self.__dict__.get("_lazy_best_plan")
        if callable(value):
            value = self.__dict__["_lazy_best_plan"] = value()
        return value

    @_best_plan.setter
    def _best_plan(self, value: Any) -> None:
        self.__dict__["_lazy_best_plan"] = value

    @property
    def _num_plans(self) -> int:
        value = self.__dict__.get("_lazy_num_plans", 0)
        if callable(value):
            value = self.__dict__["_lazy_num_plans"] = value()
        return value  # type: ignore[no-any-return]

    @_num_plans.setter
    def _num_plans(self, value: int | Callable[[], int]) -> None:
        self.__dict__["_lazy_num_plans"] = value

    def __getstate__(self) -> dict[str, Any]:
        """A pickled planner has its results, not the means to compute them."""
        results = {"_lazy_best_plan": self._best_plan, "_lazy_num_plans": self._num_plans}
        return {**self.__dict__, **results, "_last_record": None, "_last_basis": None}

    @hooks.logged
    def plan(self, module: Any, sharders: list[Any]) -> ShardingPlan:
        """The plan that TorchRec's planner returns for this module, sharders and topology.

        Raises what TorchRec raises: PlannerError with its advice when nothing fits, and the
        errors of its enumerator and estimators for input that makes no sense.
        """
        self.last_run = run = Run()
        self._num_proposals = 0
        self._num_plans = 0
        self._last_record = None
        self._last_basis = None
        try:
            with collector.paused():
                return self._plan(run, module, sharders)
        except (NotNative, OutOfRange) as why:
            run.add_reason("torchrec", str(why))
            self._leave_as_it_is(run, f"planned by TorchRec itself: {why}")
            return self._plan_by_torchrec(run, module, sharders)
        finally:
            run.finish()

    @hooks.event_logged
    def collective_plan(
        self, module: Any, sharders: list[Any] | None = None, pg: Any = None
    ) -> ShardingPlan:
        """Plans on rank 0 of the group and gives every rank the plan.

        An error on rank 0 is raised on every rank. Ranks whose models differ raise ModelsDiffer.
        """
        if pg is None:
            if not dist.is_initialized():
                # TorchRec's own words for it.
                return super().collective_plan(module, sharders, pg)
            pg = dist.GroupMember.WORLD
        sharders = get_default_sharders() if sharders is None else sharders
        if pg.size() == 1:
            return self.plan(module, sharders)
        return collective.start(self, module, sharders, pg)

    def _drafted(self, module: Any, sharders: list[Any]) -> EstimatedSpace:
        """Tables and options as they stand; raises NotNative where only Python can tell."""
        asked = [AskedSharder(sharder) for sharder in sharders]
        enumeration = Enumeration(self, Run(), module, asked)
        space = enumeration.described()
        enumeration.leave(space)  # plan() need not read them again
        return space

    def _sendable_record(self) -> bytes | None:
        """The last plan as a few kB, where nothing but the search has shaped it."""
        overridden = type(self).plan is not EmbeddingShardingPlanner.plan
        if self._last_record is None or overridden or self._callbacks:
            return None
        return self._last_record().pack()

    def _plan(self, run: Run, module: Any, sharders: list[Any]) -> ShardingPlan:
        asked = [AskedSharder(sharder) for sharder in sharders]
        with run.phase("reserve"):
            reserved = reserve(self, module, asked)
        technique = hooks.before_enumeration(self, reserved)
        enumeration = Enumeration(self, run, module, asked)
        space = enumeration.draft()
        if space is None:
            return ShardingPlan({})
        cluster = read_cluster(reserved)
        cache = CacheUse(self, self._cache, space)
        run.cache = cache.report
        self._last_basis = BasisDraft(self, space, cluster)
        following = Following(self._replanning, self, run, cache)
        outcome = following.start(space, cluster)
        if outcome is not None:
            enumeration.leave(space)
        else:
            space = enumeration.finish(space)
            outcome = loaded_plan(self, space) or self._search(
                run, space, reserved, cluster, following
            )
            if outcome.loaded:
                self._leave_as_it_is(run, "the plan is the plan loader's")
        with run.phase("cache"):
            following.keep(outcome, cluster)
        self._last_record = outcome.record
        self._num_proposals = run.proposals = outcome.proposals
        run.count_plans(outcome.plans)
        self._num_plans = lambda: run.plans
        if not outcome.found:
            self._raise_no_plan(module, sharders, space, outcome)
        run.rating = None if outcome.loaded else outcome.rating
        run.lower_bound = outcome.lower_bound
        run.evaluated = outcome.evaluated
        with run.phase("build"):
            plan = self._build(outcome)
        stats.log_plan(self, run, plan, sharders)
        with run.phase("validate"):
            trusted = (
                run.engine == "native"
                and not (self._callbacks or outcome.loaded)
                and reserved.world_size <= self._topology.world_size
            )
            validate(self, plan, module, asked, trusted=trusted)
        hooks.after_planning(self, technique, outcome)
        return plan

    def _leave_as_it_is(self, run: Run, reason: str) -> None:
        run.not_followed = reason if self._replanning.asked else None
        if self._optimization is not None:
            improving.leave(run, reason, self._optimization)

    def _raise_no_plan(
        self, module: Any, sharders: list[Any], space: Space, outcome: Outcome
    ) -> NoReturn:
        if versions.IS_1_9:
            # The last proposal's options are marked in the search space that users can ask for.
            for number in outcome.last:
                for shard in self._search_space[number].shards:
                    shard.rank = -1
        some_option = space.chosen_options([0], None)
        replay.raise_no_plan(
            self, module, sharders, outcome.failed(), some_option, outcome.proposals
        )

    def _plan_by_torchrec(self, run: Run, module: Any, sharders: list[Any]) -> ShardingPlan:
        """Everything by TorchRec's own planner."""
        logger.info("fastplan: planned by TorchRec itself: %s", run.reason)
        with run.phase("torchrec"):
            plan = super().plan(module, sharders)
        run.proposals = run.evaluated = self._num_proposals
        run.count_plans(self._num_plans)
        if self._best_plan:
            run.rating = float(self._perf_model.rate(plan=self._best_plan))
        return plan

    def _search(
        self, run: Run, space: Space, reserved: Any, cluster: Cluster, following: Following
    ) -> Outcome:
        problem = Problem(space.columns, cluster)
        with run.phase("search"):
            try:
                search: Any = NativeSearch(self, space, reserved, problem)
            except NotNative as why:
                run.add_reason("mixed", str(why))
                search = MixedSearch(self, space, reserved, cluster)
            outcome: Outcome = search.run()
        outcome.search_seconds = run.seconds["search"]
        if self._optimization is not None:
            with run.phase("optimize"):
                improving.improve(run, search, outcome, self._optimization)
        following.follow(search, outcome)
        return outcome

    def _build(self, outcome: Outcome) -> ShardingPlan:
        if not self._callbacks:
            self._best_plan = outcome.best_plan
            return outcome.sharding_plan(self._topology)
        best_plan = outcome.best_plan()
        with collector.resumed():
            for callback in self._callbacks:
                best_plan = callback(best_plan)
        self._best_plan = best_plan
        return planners.to_sharding_plan(best_plan, self._topology)
