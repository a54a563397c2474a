"""Runs fastplan's planner where TorchRec's planner API runs its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastplan import __version__
from fastplan.model.log import escaped_logger
from fastplan.planning.run import Run
from fastplan.torchrec.api import api_module
from fastplan.torchrec.api.provider import PlannerProvider
from fastplan.torchrec.api.throughput import estimated_qps

logger = escaped_logger(__name__)


class PlannerExecutor:
    """A PlannerExecutor of TorchRec's planner API that plans with fastplan.

    It returns the result of TorchRec's DefaultPlannerExecutor, with the same plan, and fills two
    fields that TorchRec leaves empty: `estimated_qps`, by the formula of `throughput.py`, and
    `ctx.cache_hit`, if the planner has a cache.

    Args:
        provider: builds the planner; by default a PlannerProvider. With another provider, pass
            `PlannerProvider(base=...)`.
        plan_cache: a PlanCache of TorchRec's dry run, such as ProtocolPlanCache. Each plan of a
            DryRunRequest is put there. Plans are not read from there, because TorchRec's
            fingerprint covers neither model nor sharders: `PlannerProvider(cache=...)` is the
            cache that saves the search.

    Attributes:
        runs: `last_run` of each SKU's planner.

    Raises:
        ImportError: TorchRec does not have the planner API.
    """

    def __init__(self, provider: Any = None, *, plan_cache: Any = None) -> None:
        module = api_module("executor", type(self).__name__)
        self._executor_of = module.DefaultPlannerExecutor
        self._provider = PlannerProvider() if provider is None else provider
        self._plan_cache = plan_cache
        self.runs: dict[str, Run] = {}

    def run(self, sku: str, ctx: Any, pg: Any = None) -> Any:
        """Plans for one SKU and returns a ShardingPlanResult.

        Args:
            sku: the SKU, which is the key of the result.
            ctx: the PlannerSessionContext with the request.
            pg: the group that plans together; None to plan on this rank alone.
        """
        provider = _KeepsPlanner(self._provider)
        result = self._executor_of(provider).run(sku=sku, ctx=ctx, pg=pg)
        run: Run | None = getattr(provider.planner, "last_run", None)
        if run is not None:
            self.runs[sku] = run
            if result.is_planning_rank and run.cache.status in ("hit", "miss"):
                ctx.cache_hit[sku] = run.cache.status == "hit"
        if not result.success:
            return result
        request = ctx.request
        qps = estimated_qps(request.batch_size, request.world_size, result.critical_path_ms)
        result = replace(result, estimated_qps=qps)
        if self._plan_cache is not None and result.is_planning_rank:
            self._store(sku, ctx, result, run)
        return result

    def _store(self, sku: str, ctx: Any, result: Any, run: Run | None) -> None:
        """Puts a plan into the dry run's cache. A failure is a warning: the plan is valid."""
        try:
            fingerprint = ctx.request.fingerprint(sku)
            facts = {"engine": run.engine, "rating": repr(run.rating)} if run is not None else {}
            metadata = api_module("dry_run.protocols", type(self).__name__).CacheMetadata(
                created_by=f"fastplan {__version__}",
                sku=sku,
                world_size=ctx.request.world_size,
                extra={"request_hash": result.request_hash, **facts},
            )
            self._plan_cache.put(fingerprint, result.sharding_plan, metadata)
        except Exception as error:  # any class may implement the protocol
            reason = f"fastplan did not store the plan for {sku} in the plan cache: {error!r}"
            logger.warning("%s", reason)
            ctx.warnings.append(reason)


class _KeepsPlanner:
    """A provider that remembers the planner it built."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self.planner: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def build_planner(self, *args: Any, **kwargs: Any) -> Any:
        self.planner = self._provider.build_planner(*args, **kwargs)
        return self.planner
