"""The way from a planner's call to its plan."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from torchrec.distributed.planner import planners
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.engine.problem import Problem
from fastplan.model.request import Cluster
from fastplan.torchrec import collector, improving, versions
from fastplan.torchrec.caching import CacheUse
from fastplan.torchrec.fallback import NotNative
from fastplan.torchrec.loaded import loaded_plan
from fastplan.torchrec.plan_basis import BasisDraft
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.enumeration import Enumeration
from fastplan.torchrec.read.sharders import AskedSharder
from fastplan.torchrec.read.space import EstimatedSpace, ObjectSpace, Space
from fastplan.torchrec.replanning import Following
from fastplan.torchrec.run import Run
from fastplan.torchrec.search.mixed import MixedSearch
from fastplan.torchrec.search.native import NativeSearch
from fastplan.torchrec.search.outcome import Outcome
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
        self._state.record = None
        self._state.basis = None
        planner._num_proposals = 0
        planner._num_plans = 0

    def plan(self) -> ShardingPlan:
        """The plan. Raises NotNative or OutOfRange where TorchRec itself has to plan."""
        planner, run, state = self._planner, self._run, self._state
        asked = [AskedSharder(sharder) for sharder in self._sharders]
        with run.phase("reserve"):
            reserved = reserve(planner, self._module, asked)
        technique = hooks.before_enumeration(planner, reserved)
        enumeration = Enumeration(planner, run, self._module, self._sharders, asked)
        space = self._draft or enumeration.draft()
        if space is None:
            return ShardingPlan({})
        cluster = read_cluster(reserved)
        cache = CacheUse(planner, state.cache, space)
        run.cache = cache.report
        state.basis = BasisDraft(planner, space, cluster)
        following = Following(state.replanning, planner, run, cache)
        outcome = following.start(space, cluster)
        if outcome is not None:
            enumeration.leave(space)
        else:
            space = enumeration.finish(space)
            outcome = loaded_plan(planner, space) or self._search(
                space, reserved, cluster, following
            )
            if outcome.loaded:
                self._leave_as_it_is("the plan is the plan loader's")
        with run.phase("cache"):
            following.keep(outcome, cluster)
        self._note(outcome)
        if not outcome.found:
            self._raise_no_plan(space, outcome)
        with run.phase("build"):
            plan = self._build(outcome)
        stats.log_plan(planner, run, plan, self._sharders)
        with run.phase("validate"):
            trusted = (
                run.engine == "native"
                and not (planner._callbacks or outcome.loaded)
                and reserved.world_size <= planner._topology.world_size
            )
            validate(planner, plan, self._module, asked, trusted=trusted)
        hooks.after_planning(planner, technique, outcome)
        return plan

    def plan_by_torchrec(self, why: Exception) -> ShardingPlan:
        """Everything by TorchRec's own planner."""
        planner, run = self._planner, self._run
        run.add_reason("torchrec", str(why))
        self._leave_as_it_is(f"planned by TorchRec itself: {why}")
        logger.info("fastplan: planned by TorchRec itself: %s", run.reason)
        with run.phase("torchrec"):
            plan = TorchRecPlanner.plan(planner, self._module, self._sharders)
        run.proposals = run.evaluated = planner._num_proposals
        run.count_plans(planner._num_plans)
        if planner._best_plan:
            run.rating = float(planner._perf_model.rate(plan=planner._best_plan))
        return plan

    def _search(
        self, space: Space, reserved: Any, cluster: Cluster, following: Following
    ) -> Outcome:
        planner, run, optimization = self._planner, self._run, self._state.optimization
        problem = Problem(space.columns, cluster)
        with run.phase("search"):
            try:
                search: Any = NativeSearch(planner, space, reserved, problem)
            except NotNative as why:
                run.add_reason("mixed", str(why))
                search = MixedSearch(planner, space, reserved, cluster)
            outcome: Outcome = search.run()
        outcome.search_seconds = run.seconds["search"]
        if optimization is not None:
            with run.phase("optimize"):
                improving.improve(run, search, outcome, optimization)
        following.follow(search, outcome)
        return outcome

    def _note(self, outcome: Outcome) -> None:
        """What users and scripts read of a search."""
        planner, run = self._planner, self._run
        self._state.record = outcome.record
        self._state.certificate = outcome.certificate
        planner._num_proposals = run.proposals = outcome.proposals
        run.count_plans(outcome.plans, outcome.some_plans)
        planner._num_plans = lambda: run.plans
        if outcome.found:
            run.rating = None if outcome.loaded else outcome.rating
            run.bound_plans(outcome.lower_bound)
            run.evaluated = outcome.evaluated

    def _build(self, outcome: Outcome) -> ShardingPlan:
        planner = self._planner
        if not planner._callbacks and is_stock(planners.to_sharding_plan):
            planner._best_plan = outcome.best_plan
            return outcome.sharding_plan(planner._topology)
        best_plan = outcome.best_plan()
        with collector.resumed():
            for callback in planner._callbacks or ():
                best_plan = callback(best_plan)
            planner._best_plan = best_plan
            return planners.to_sharding_plan(best_plan, planner._topology)

    def _leave_as_it_is(self, reason: str) -> None:
        run, state = self._run, self._state
        run.not_followed = reason if state.replanning.asked else None
        if state.optimization is not None:
            improving.leave(run, reason, state.optimization)

    def _raise_no_plan(self, space: Space, outcome: Outcome) -> NoReturn:
        planner = self._planner
        some_option = space.chosen_options([0], None)
        try:
            replay.raise_no_plan(planner, self._module, self._sharders, outcome, some_option)
        finally:
            self._mark_last(space, outcome)

    def _mark_last(self, space: Space, outcome: Outcome) -> None:
        """As TorchRec does, once the proposals of its message have been copied."""
        if versions.IS_1_9:
            shown = self._planner._search_space
        else:
            shown = space.all_options() if isinstance(space, ObjectSpace) else []
        for number in outcome.last if shown else ():
            for shard in shown[number].shards:
                shard.rank = -1


def drafted(planner: Any, module: Any, sharders: list[Any]) -> EstimatedSpace:
    """Tables and options as they stand; raises NotNative where only Python can tell."""
    state_of(planner)
    asked = [AskedSharder(sharder) for sharder in sharders]
    return Enumeration(planner, Run(), module, sharders, asked).described()
