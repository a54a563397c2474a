"""One plan() call of a planner: reads TorchRec's objects, plans, and writes the result."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NoReturn

from torchrec.distributed.planner import planners
from torchrec.distributed.types import ShardingPlan

from fastplan.planning.plan import plan as plan_job
from fastplan.planning.run import Run
from fastplan.planning.search import Placement, Result
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences import search_space
from fastplan.torchrec.differences.validators import validate
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.components import Parts, mark_as_run, read_job
from fastplan.torchrec.read.enumeration import Enumeration
from fastplan.torchrec.read.modules import cached_sharders
from fastplan.torchrec.read.space import ChosenOptions, EstimatedSpace, PythonSpace, Space
from fastplan.torchrec.search.backend import PlannerBackend
from fastplan.torchrec.state import state_of
from fastplan.torchrec.support import support
from fastplan.torchrec.support.watch import is_stock
from fastplan.torchrec.write import hooks, replay


def plan(planner: Any, run: Run, module: Any, sharders: list[Any]) -> ShardingPlan:
    """Returns the plan of a planner for a module.

    Raises:
        NotNative, OutOfRange: TorchRec's own code must plan.
    """
    planning = Planning(planner, run, module, sharders)
    with compat.paused(ending=run.phase("garbage")):
        return planning.plan()


class Planning:
    """One plan() call of a planner."""

    def __init__(self, planner: Any, run: Run, module: Any, sharders: list[Any]) -> None:
        self._planner = planner
        self._run = run
        self._module = module
        self._sharders = sharders
        self._state = state_of(planner)
        self._draft, self._state.draft = self._state.draft, None
        self._state.result = None
        with nullcontext() if support.is_decided() else run.phase("self-check"):
            support.look()
        run.reason = support.note()
        planner._num_proposals = 0
        planner._num_plans = 0

    def plan(self) -> ShardingPlan:
        """Returns the plan.

        Raises:
            NotNative, OutOfRange: TorchRec's own code must plan.
        """
        if reason := support.why_not_planner():
            raise NotNative(reason)
        planner, run, state = self._planner, self._run, self._state
        cached = cached_sharders(self._sharders)
        with run.phase("reserve"):
            reserved = reserve(planner, self._module, self._sharders, cached)
        if [id(each.sharder) for each in cached] != [*map(id, self._sharders)]:
            cached = cached_sharders(self._sharders)  # a custom reservation has changed them
        technique = hooks.before_enumeration(planner, reserved)
        enumeration = Enumeration(planner, run, self._module, self._sharders, cached)
        space = self._draft or enumeration.draft()
        if space is None:
            return ShardingPlan({})
        cluster = read_cluster(reserved)
        parts = Parts.of(planner, len(cluster.rank_hbm))
        job = read_job(planner, space, cluster, parts, name=type(self._module).__name__)
        previous = None
        if state.previous.policy is not None:
            with run.phase("replan"):
                previous = state.previous.plan()
        result = plan_job(
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
            mark_as_run(planner)
        self._record_result(result)
        if result.placement is None:
            self._raise_no_plan(result)
        with run.phase("build"):
            sharding_plan = self._build(result.placement)
        hooks.log_plan(planner, run, sharding_plan, self._sharders)
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

    def _record_result(self, result: Result) -> None:
        """Records the result for users and scripts."""
        planner, run = self._planner, self._run
        run.take(result)
        self._state.result = result
        planner._num_proposals = run.proposals
        planner._num_plans = lambda: run.plans

    def _build(self, placement: Placement) -> ShardingPlan:
        planner, space = self._planner, placement.space
        options = ChosenOptions(space, placement.options, placement.ranks)  # type: ignore[arg-type]
        # Options that Python made refer to the user's constraints, which may change after the plan.
        lazy = isinstance(space, EstimatedSpace) and is_stock(planners.to_sharding_plan)
        if lazy and not planner._callbacks:
            planner._best_plan = options
            return space.sharding_plan(placement.options, placement.ranks, planner._topology)  # type: ignore[attr-defined]
        best_plan = options()
        with compat.resumed():
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
            self._mark_last_proposal(searched.space, searched.last)

    def _mark_last_proposal(self, space: Space, last: Any) -> None:
        """Marks the last proposal as TorchRec does, after its error message has copied them."""
        if search_space.IS_SHOWN:
            shown = self._planner._search_space
        else:
            shown = space.all_options() if isinstance(space, PythonSpace) else []
        for number in last if shown else ():
            for shard in shown[number].shards:
                shard.rank = -1


def drafted(planner: Any, module: Any, sharders: list[Any]) -> EstimatedSpace:
    """Returns tables and options before estimates. Raises NotNative for custom enumerators."""
    state_of(planner)
    support.look()
    if reason := support.why_not_planner():
        raise NotNative(reason)
    return Enumeration(planner, Run(), module, sharders, cached_sharders(sharders)).described()
