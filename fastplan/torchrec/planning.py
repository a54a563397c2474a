"""One plan() call of a planner: reads TorchRec's objects, plans, and writes the result."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from torchrec.distributed.planner import planners
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.plan_cache import PlanCache
from fastplan.engine.optimize import Optimize
from fastplan.model.objectives import ConstraintError
from fastplan.model.plan import Basis, Plan
from fastplan.planning.describe import basis_of, plan_to_follow
from fastplan.planning.plan import plan
from fastplan.planning.policy import Replan
from fastplan.planning.run import Run
from fastplan.planning.search import Placement, Result
from fastplan.torchrec import compat
from fastplan.torchrec.compat import is_stock
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.components import Parts, read_job
from fastplan.torchrec.read.enumeration import Enumeration
from fastplan.torchrec.read.modules import CachedSharder
from fastplan.torchrec.read.space import ChosenOptions, EstimatedSpace, PythonSpace, Space
from fastplan.torchrec.search.backend import PlannerBackend
from fastplan.torchrec.write import hooks, replay
from fastplan.torchrec.write.plan import validate

logger = logging.getLogger(__name__)


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
        planner._num_proposals = 0
        planner._num_plans = 0

    def plan(self) -> ShardingPlan:
        """Returns the plan.

        Raises:
            NotNative, OutOfRange: TorchRec's own code must plan.
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
        previous = None
        if state.previous.policy is not None:
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

    def plan_by_torchrec(self, why: Exception) -> ShardingPlan:
        """Returns the plan of TorchRec's own planner.

        Raises:
            ConstraintError: TorchRec's plan may not satisfy `pins` and `together`.
        """
        planner, run, state = self._planner, self._run, self._state
        run.add_reason("torchrec", str(why))
        reason = f"TorchRec's own code planned: {why}"
        if state.previous.policy is not None:
            run.not_followed = reason
        if state.optimize is not None:
            if state.optimize.objectives.rules:
                needs = "`pins` and `together` need the native search"
                raise ConstraintError(f"{needs}: {reason}")
            run.not_optimized = reason
        logger.info("fastplan: TorchRec's own code planned: %s", run.reason)
        with run.phase("torchrec"):
            sharding_plan = TorchRecPlanner.plan(planner, self._module, self._sharders)
        best = planner._best_plan
        rating = float(planner._perf_model.rate(plan=best)) if best else None
        run.take_counts(planner._num_proposals, planner._num_plans, rating)
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
        if not planner._callbacks and is_stock(planners.to_sharding_plan):
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
        if compat.IS_1_9:
            shown = self._planner._search_space
        else:
            shown = space.all_options() if isinstance(space, PythonSpace) else []
        for number in last if shown else ():
            for shard in shown[number].shards:
                shard.rank = -1


def drafted(planner: Any, module: Any, sharders: list[Any]) -> EstimatedSpace:
    """Returns tables and options before estimates. Raises NotNative for custom enumerators."""
    state_of(planner)
    cached = [CachedSharder(sharder) for sharder in sharders]
    return Enumeration(planner, Run(), module, sharders, cached).described()


Policy = Replan | Literal["auto"] | None


class Previous:
    """A planner's `previous` and `replan` arguments.

    Raises:
        ValueError: `replan` is neither a policy nor "auto".
    """

    def __init__(self, previous: Any = None, policy: Policy = None) -> None:
        if policy is not None and policy != "auto" and not isinstance(policy, Replan):
            raise ValueError(f'`replan` must be a Replan or "auto", not {policy!r}')
        self._previous = previous
        self.policy: Replan | None = None  # None if no plan is to be followed
        if policy is not None or previous is not None:
            self.policy = policy if isinstance(policy, Replan) else Replan()

    def plan(self) -> Plan | None:
        """Returns the plan to follow; None without `previous`.

        Raises:
            PlanFileError, OSError: the plan file can't be read.
            TypeError: `previous` is not a plan.
            ValueError: `previous` is a planner without a plan.
        """
        given = self._previous
        if given is None:
            return None
        if isinstance(given, str | os.PathLike):
            from fastplan.plans.file import read_plan

            given = read_plan(given)
        elif isinstance(given, ShardingPlan):
            given = _plan_of(given)
        elif isinstance(given, TorchRecPlanner):
            given = _last_plan(given)
        if not isinstance(given, Plan):
            raise TypeError(
                "`previous` must be a plan, the path of a plan file, or a planner that has "
                f"planned, not {type(given).__name__}"
            )
        # A file is read only once, because the new plan may be written to the same file.
        self._previous = given
        return given


@dataclass(slots=True, kw_only=True)
class State:
    """A planner's settings and its last result.

    Attributes:
        draft: the search space of a collective start, for the plan that follows.
        result: of the last plan; None if TorchRec's own code planned.
        best_plan: its options, or a function that creates them.
        plans: the number of feasible proposals, or a function that counts them.
        shadow: the planner whose plan is used if each is compared with the other's.
        plans_for_group: whether the next plan is one for all ranks of a group.
    """

    deterministic: bool = False
    optimize: Optimize | None = None
    previous: Previous = field(default_factory=Previous)
    cache: PlanCache | None = None
    draft: EstimatedSpace | None = None
    result: Result | None = None
    best_plan: Any = None
    plans: Any = 0
    shadow: str | None = None
    plans_for_group: bool = False

    def settled(self) -> State:
        """Returns a picklable copy: results are computed, and functions are dropped."""
        known = {name: _value(getattr(self, name)) for name in ("best_plan", "plans")}
        return replace(self, **known, result=None, draft=None)


def _value(result: Any) -> Any:
    return result() if callable(result) else result


def state_of(planner: Any) -> State:
    """Returns a planner's state; the default one if its constructor was not called."""
    if "_fastplan" not in vars(planner):
        planner._fastplan = State()
    state: State = planner._fastplan
    return state


def basis_of_planner(planner: Any) -> Basis | str:
    """Returns the basis of the planner's last plan, or the reason why it has none."""
    result = _last_result(planner)
    return result if isinstance(result, str) else basis_of(result)


def _last_result(planner: Any) -> Result | str:
    result: Result | None = getattr(getattr(planner, "_fastplan", None), "result", None)
    if result is None or result.record is None:
        run = getattr(planner, "last_run", None)
        return (run and run.reason) or "the planner has not searched for a plan"
    return "callbacks have changed the plan" if planner._callbacks else result


def _plan_of(plan: ShardingPlan) -> Plan:
    from fastplan.torchrec.plan_files import describe_plan
    from fastplan.torchrec.plan_json import plan_layout

    with compat.paused():
        layout = plan_layout(plan)
    if layout is None:
        return describe_plan(plan, "previous plan")
    return Plan(name="previous plan", layout=layout)


def _last_plan(planner: Any) -> Plan:
    result = _last_result(planner)
    plan = result if isinstance(result, str) else plan_to_follow(result)
    if isinstance(plan, str):
        raise ValueError(f"`previous` has no plan to start from: {plan}")
    return plan
