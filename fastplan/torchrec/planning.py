"""The way from a planner's call to its plan: read, plan, write."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from torchrec.distributed.planner import planners
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.model.objectives import RulesBroken
from fastplan.planning.plan import plan
from fastplan.planning.result import Placement, Result
from fastplan.planning.run import Run
from fastplan.torchrec import collector, versions
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.components import Parts
from fastplan.torchrec.read.enumeration import Enumeration
from fastplan.torchrec.read.job import read_job
from fastplan.torchrec.read.sharders import CachedSharder
from fastplan.torchrec.read.space import ChosenOptions, EstimatedSpace, ObjectSpace, Space
from fastplan.torchrec.search.backend import PlannerBackend
from fastplan.torchrec.state import state_of
from fastplan.torchrec.stock import is_stock
from fastplan.torchrec.write import hooks, replay, stats
from fastplan.torchrec.write.validate import validate

logger = logging.getLogger(__name__)


class Planning:
    """One plan() of a planner."""

    def __init__(self, planner: Any, run: Run, module: Any, sharders: list[Any]) -> None:
        self._planner = planner
        self._run = run
        self._module = module
        self._sharders = sharders
        self._state = state_of(planner)
        self._draft, self._state.draft = self._state.draft, None
        self._state.result = None
        planner._num_proposals = 0
        planner._num_plans = 0

    def plan(self) -> ShardingPlan:
        """The plan.

        Raises:
            NotNative, OutOfRange: TorchRec itself has to plan.
        """
        planner, run, state = self._planner, self._run, self._state
        cached = [CachedSharder(sharder) for sharder in self._sharders]
        with run.phase("reserve"):
            reserved = reserve(planner, self._module, cached)
        technique = hooks.before_enumeration(planner, reserved)
        enumeration = Enumeration(planner, run, self._module, self._sharders, cached)
        space = self._draft or enumeration.draft()
        if space is None:
            return ShardingPlan({})
        cluster = read_cluster(reserved)
        parts = Parts.of(planner, len(cluster.rank_hbm))
        job = read_job(planner, space, cluster, parts)
        with run.phase("replan"):
            previous = state.previous.plan()
        result = plan(
            job,
            cache=state.cache,
            optimize=state.optimize,
            previous=previous,
            replan=state.previous.policy,
            backend=PlannerBackend(planner, job, parts, space, enumeration, reserved),
            run=run,
        )
        if result.searched is None:
            enumeration.leave(space)
        self._note(result)
        if result.placement is None:
            self._raise_no_plan(result)
        with run.phase("build"):
            sharding_plan = self._build(result.placement)
        stats.log_plan(planner, run, sharding_plan, self._sharders)
        with run.phase("validate"):
            loaded = result.searched is not None and result.searched.loaded
            trusted = (
                run.engine == "native"
                and not (planner._callbacks or loaded)
                and reserved.world_size <= planner._topology.world_size
            )
            validate(planner, sharding_plan, self._module, cached, trusted=trusted)
        hooks.after_planning(planner, technique, result, run)
        return sharding_plan

    def plan_by_torchrec(self, why: Exception) -> ShardingPlan:
        """Everything by TorchRec's own planner.

        Raises:
            RulesBroken: TorchRec's plan may not keep the pins and the tables together.
        """
        planner, run, state = self._planner, self._run, self._state
        run.add_reason("torchrec", str(why))
        reason = f"planned by TorchRec itself: {why}"
        if state.previous.policy is not None:
            run.not_followed = reason
        if state.optimize is not None:
            if state.optimize.objectives.rules:
                needs = "pins and tables to keep together need the native search"
                raise RulesBroken(f"{needs}: {reason}")
            run.not_optimized = reason
        logger.info("fastplan: planned by TorchRec itself: %s", run.reason)
        with run.phase("torchrec"):
            sharding_plan = TorchRecPlanner.plan(planner, self._module, self._sharders)
        best = planner._best_plan
        rating = float(planner._perf_model.rate(plan=best)) if best else None
        run.take_counts(planner._num_proposals, planner._num_plans, rating)
        return sharding_plan

    def _note(self, result: Result) -> None:
        """What users and scripts read of a plan."""
        planner, run = self._planner, self._run
        run.take(result)
        self._state.result = result
        planner._num_proposals = run.proposals
        planner._num_plans = lambda: run.plans

    def _build(self, placement: Placement) -> ShardingPlan:
        planner, space = self._planner, placement.space
        options = ChosenOptions(space, placement.options, placement.ranks)  # type: ignore[arg-type]
        if not planner._callbacks and is_stock(planners.to_sharding_plan):
            planner._best_plan = options
            return space.sharding_plan(placement.options, placement.ranks, planner._topology)  # type: ignore[attr-defined]
        best_plan = options()
        with collector.resumed():
            for callback in planner._callbacks or ():
                best_plan = callback(best_plan)
            planner._best_plan = best_plan
            return planners.to_sharding_plan(best_plan, planner._topology)

    def _raise_no_plan(self, result: Result) -> NoReturn:
        searched: Any = result.searched
        some_option = searched.space.chosen_options([0], None)
        facts = hooks.search_facts(self._planner, result, self._run)
        try:
            replay.raise_no_plan(
                self._planner, self._module, self._sharders, searched, facts, some_option
            )
        finally:
            self._mark_last(searched.space, searched.last)

    def _mark_last(self, space: Space, last: Any) -> None:
        """As TorchRec does, once the proposals of its message have been copied."""
        if versions.IS_1_9:
            shown = self._planner._search_space
        else:
            shown = space.all_options() if isinstance(space, ObjectSpace) else []
        for number in last if shown else ():
            for shard in shown[number].shards:
                shard.rank = -1


def drafted(planner: Any, module: Any, sharders: list[Any]) -> EstimatedSpace:
    """Tables and options as they stand; raises NotNative where only Python can tell."""
    state_of(planner)
    cached = [CachedSharder(sharder) for sharder in sharders]
    return Enumeration(planner, Run(), module, sharders, cached).described()
