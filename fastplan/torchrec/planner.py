"""The planner: TorchRec's class with a native search."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch.distributed as dist
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.plan_cache import Cache, open_cache
from fastplan.costs.functions import PlanObjective, ShardCost
from fastplan.engine.optimize import Optimize
from fastplan.engine.solve import OutOfRange
from fastplan.model.log import escaped_logger
from fastplan.planning.run import Run
from fastplan.torchrec.fallback import (
    Snapshot,
    internal_error,
    is_first_plan,
    native,
    plan_by_torchrec,
)
from fastplan.torchrec.method_logging import event_logged, logged
from fastplan.torchrec.state import Policy, Previous, State, state_of

if TYPE_CHECKING:
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

    from fastplan.model.ids import IdStatistics
    from fastplan.spec.hardware import Hardware

logger = escaped_logger(__name__)


class EmbeddingShardingPlanner(TorchRecPlanner):
    """TorchRec's EmbeddingShardingPlanner: the same arguments and the same plan, found faster.

    The positional arguments are TorchRec's, in TorchRec's order. fastplan adds keyword arguments.

    Args:
        deterministic: order a table's options as its sharder lists them, so that the plan does
            not depend on PYTHONHASHSEED (TorchRec 1.8's does when options tie).
        cache: where plans are stored across restarts: a directory, a URL for fsspec, or a `Cache`;
            True is the platform's directory for caches. None reads FASTPLAN_CACHE from the
            environment, False disables the cache.
        mode: "parity" is TorchRec's plan; "optimize" improves it, and is never worse than the
            better of TorchRec's plans with shards sorted by storage and by perf.
        optimize: the settings of the optimizer; implies `mode="optimize"`. Ctrl-C ends it with the
            best plan so far.
        previous: a plan, a plan file or a planner to follow; see docs/replan.md.
        replan: the policy for following `previous`; without `previous`, "auto" or a `Replan`
            follows the nearest plan in the cache.
        shard_cost: a function with @fastplan.shard_cost that sets the cost of a shard.
        objective: a function with @fastplan.plan_objective that rates plans; by default a plan is
            rated by its largest rank.
        shadow: True compares each plan with TorchRec's own, in the background; "torchrec" uses
            TorchRec's plan and compares fastplan's with it. None reads FASTPLAN_SHADOW from the
            environment. See docs/shadow.md.
        costs: "torchrec" for TorchRec's costs; "hardware" for costs in milliseconds that agree with
            measured devices. See docs/hardware-costs.md.
        sku: the hardware of `costs="hardware"`: a name of `fastplan skus`, or a file.
        pipeline: the train pipeline, which hides phases of the predicted step: "none",
            "train_sparse_dist" or "train_prefetch_sparse_dist".
        statistics: what the ids of tables look like, for `costs="hardware"`: a statistics file, or
            an IdStatistics by name of the table. The ids of other tables count as uniform.

    Attributes:
        last_run: the report of the last `plan()`: the engine and the reason, the rating, seconds by
            phase, proposals and plans, and the report of the cache. An optimized plan also has
            `lower_bound`, `gap`, `stopped_by` and `start_ratings`, or `not_optimized` with the
            reason. A plan that follows another has `replan` and `moves`, or `not_followed` with the
            reason. `shadow` is the comparison with TorchRec's plan. With hardware costs, `step` is
            the predicted step by phase.
    """

    last_run: Run | None = None

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
        cache: str | os.PathLike[str] | Cache | bool | None = None,
        mode: Literal["parity", "optimize"] = "parity",
        optimize: Optimize | None = None,
        previous: Any = None,
        replan: Policy = None,
        shard_cost: ShardCost | None = None,
        objective: PlanObjective | None = None,
        shadow: bool | Literal["torchrec"] | None = None,
        costs: Literal["torchrec", "hardware"] = "torchrec",
        sku: str | Hardware | None = None,
        pipeline: str = "none",
        statistics: str | os.PathLike[str] | Mapping[str, IdStatistics] | None = None,
    ) -> None:
        settings = _optimize_settings(mode, optimize)
        _check_single_objective(objective, performance_model, settings is not None)
        self._fastplan = State(
            deterministic=deterministic,
            optimize=settings,
            previous=Previous(previous, replan),
            cache=open_cache(cache),
            shadow=_shadow_mode(shadow),
            hardware=_hardware(costs, sku, pipeline, statistics),
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
        if shard_cost is not None or objective is not None:
            from fastplan.torchrec.read.custom import install

            install(self, shard_cost, objective)

    # TorchRec's users read these; they are computed on first access.

    @property
    def _best_plan(self) -> list[ShardingOption] | None:
        state = state_of(self)
        if callable(state.best_plan):
            state.best_plan = state.best_plan()
        return state.best_plan  # type: ignore[no-any-return]

    @_best_plan.setter
    def _best_plan(self, value: Any) -> None:
        state_of(self).best_plan = value

    @property
    def _num_plans(self) -> int:
        state = state_of(self)
        if callable(state.plans):
            state.plans = state.plans()
        return state.plans  # type: ignore[no-any-return]

    @_num_plans.setter
    def _num_plans(self, value: int | Callable[[], int]) -> None:
        state_of(self).plans = value

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the planner's results, without the functions that compute more."""
        for stats in self._stats:
            len(getattr(stats, "_stats_table", ()))  # writes a table, which may widen the next one
        return {**self.__dict__, "_fastplan": state_of(self).settled()}

    @logged
    def plan(self, module: Any, sharders: list[Any]) -> ShardingPlan:
        """Returns TorchRec's plan for this module, sharders and topology.

        Raises:
            PlannerError: nothing fits; the message is TorchRec's. Invalid input raises the errors
                of TorchRec's enumerator and estimators.
            ConstraintError: no plan was found that satisfies `pins` and `together`.
            CostError: a custom cost or objective fails.
            PlanModelMismatch: `previous` is a plan of another model.
            PlanFileError, OSError: the file of `previous` can't be read.
        """
        plan: Callable[..., ShardingPlan] = _plan
        if state_of(self).shadow is not None:
            from fastplan.torchrec.shadow.run import plan_with_shadow

            plan = partial(plan_with_shadow, _plan)
        self.last_run = run = Run()
        return plan(self, run, module, sharders)

    @event_logged
    def collective_plan(
        self, module: Any, sharders: list[Any] | None = None, pg: Any = None
    ) -> ShardingPlan:
        """Plans on rank 0 of the group and sends the plan to every rank.

        An error on any rank is raised on every rank.

        Raises:
            ModelsDiffer: the models, sharders or constraints of the ranks differ.
            PlannerError: nothing fits. Other errors are those of `plan`.
        """
        if (pg is None and not dist.is_initialized()) or isinstance(native(), str):
            # TorchRec's own message, or its own way.
            return super().collective_plan(module, sharders, pg)
        from torchrec.distributed.sharding_plan import get_default_sharders

        from fastplan.torchrec import collective

        pg = dist.GroupMember.WORLD if pg is None else pg
        sharders = get_default_sharders() if sharders is None else sharders
        if pg.size() == 1:
            return self.plan(module, sharders)
        overridden = type(self).plan is not EmbeddingShardingPlanner.plan
        return collective.start(self, module, sharders, pg, overridden=overridden)


def _plan(planner: Any, run: Run, module: Any, sharders: list[Any]) -> ShardingPlan:
    """Plans natively, or lets TorchRec's own code plan and reports why."""
    try:
        plan = _plan_or_fall_back(planner, run, module, sharders)
        if state_of(planner).hardware is not None and run.costs != "hardware":
            run.add_reason(run.engine, "costs are TorchRec's: hardware costs need a native search")
        return plan
    finally:
        run.finish()


def _plan_or_fall_back(planner: Any, run: Run, module: Any, sharders: list[Any]) -> ShardingPlan:
    with run.phase("imports") if is_first_plan() else nullcontext():
        found = native()
    if isinstance(found, str):
        return plan_by_torchrec(planner, run, module, sharders, found)
    before = Snapshot(planner)
    try:
        return found.plan(planner, run, module, sharders)
    except (found.NotNative, OutOfRange) as why:
        reason = str(why)
    except Exception as error:
        if (why_not := internal_error(error, planner)) is None:
            raise
        reason = why_not
        logger.warning("fastplan: %s", reason, exc_info=True)
    before.restore()
    return plan_by_torchrec(planner, run, module, sharders, reason)


_SHADOWS = {"": None, "0": None, "1": "fastplan", "torchrec": "torchrec"}


def _shadow_mode(shadow: bool | str | None) -> str | None:
    """Returns the planner whose plan is used, "fastplan" or "torchrec"; None without a shadow."""
    if shadow is not None:
        if isinstance(shadow, bool):
            return "fastplan" if shadow else None
        if shadow != "torchrec":
            raise ValueError(f'`shadow` must be True, False or "torchrec", not {shadow!r}')
        return shadow
    value = os.environ.get("FASTPLAN_SHADOW", "")
    if value not in _SHADOWS:
        # A comparison must not end a job.
        logger.warning("FASTPLAN_SHADOW must be 1, torchrec or 0, not %r: no comparison", value)
    return _SHADOWS.get(value)


def _hardware(costs: str, sku: str | Hardware | None, pipeline: str, statistics: Any) -> Any:
    """Returns the hardware costs; None for TorchRec's."""
    if costs == "torchrec" and sku is None and pipeline == "none" and statistics is None:
        return None
    from fastplan.torchrec.read.hardware import planner_hardware

    return planner_hardware(costs, sku, pipeline, statistics)


def _optimize_settings(mode: str, optimize: Optimize | None) -> Optimize | None:
    """Returns the settings of the optimizer; None for TorchRec's plans."""
    if mode not in ("parity", "optimize"):
        raise ValueError(f'`mode` must be "parity" or "optimize", not {mode!r}')
    if optimize is not None and not isinstance(optimize, Optimize):
        raise TypeError(f"`optimize` must be a fastplan.Optimize or None, not {optimize!r:.100}")
    if mode == "optimize" and optimize is None:
        return Optimize()
    return optimize


def _check_single_objective(objective: Any, performance_model: Any, improves: bool) -> None:
    """Raises ValueError if another part also rates plans."""
    if objective is None:
        return
    if performance_model is not None:
        raise ValueError("`objective` and `performance_model` both rate plans: pass only one")
    if improves:
        raise ValueError('`mode="optimize"` minimises the largest rank: remove `objective`')
