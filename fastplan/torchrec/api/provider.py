"""Builds fastplan's planner where TorchRec's planner API builds its own."""

from __future__ import annotations

import inspect
from typing import Any

from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner

from fastplan.model.log import escaped_logger
from fastplan.torchrec.api import api_module
from fastplan.torchrec.api.reporter import PlanFileStats
from fastplan.torchrec.compat import describe
from fastplan.torchrec.planner import EmbeddingShardingPlanner

logger = escaped_logger(__name__)

# The attributes that hold the arguments of TorchRec's planner.
_ATTRIBUTES = {
    "topology": "_topology",
    "batch_size": "_batch_size",
    "enumerator": "_enumerator",
    "storage_reservation": "_storage_reservation",
    "proposer": "_proposers",
    "partitioner": "_partitioner",
    "performance_model": "_perf_model",
    "stats": "_stats",
    "constraints": "_constraints",
    "debug": "_debug",
    "callbacks": "_callbacks",
    "timeout_seconds": "_timeout_seconds",
    "plan_loader": "plan_loader",
}


class PlannerProvider:
    """A PlannerProvider of TorchRec's planner API that builds fastplan's planner.

    Another provider builds the topology, the storage reservation and the planner's parts. If its
    planner is exactly TorchRec's EmbeddingShardingPlanner, fastplan's planner takes the same parts
    and returns the same plan. Any other planner stays, and `ctx.warnings` has the reason.

    Args:
        base: the other provider; by default TorchRec's DefaultPlannerProvider.
        settings: the arguments of fastplan's EmbeddingShardingPlanner that TorchRec's planner does
            not have, such as `cache` and `mode`.

    Raises:
        ImportError: TorchRec does not have the planner API.
        TypeError: a setting is not such an argument.
    """

    def __init__(self, base: Any = None, **settings: Any) -> None:
        module = api_module("provider", type(self).__name__)
        known = _own_arguments()
        if unknown := sorted(set(settings) - set(known)):
            raise TypeError(
                f"{type(self).__name__} got an unexpected setting {unknown[0]!r}; "
                f"the settings are {', '.join(known)}"
            )
        self._base = module.DefaultPlannerProvider() if base is None else base
        self._settings = settings

    def build_topology(self, sku: str, request: Any, ctx: Any) -> Any:
        """Returns the topology of the other provider."""
        return self._base.build_topology(sku, request, ctx)

    def build_storage_reservation(self, sku: str, request: Any) -> Any:
        """Returns the storage reservation of the other provider."""
        return self._base.build_storage_reservation(sku, request)

    def build_planner(self, sku: str, *, topology: Any, storage_reservation: Any, ctx: Any) -> Any:
        """Returns fastplan's planner with the parts of the other provider's planner."""
        given = self._base.build_planner(
            sku, topology=topology, storage_reservation=storage_reservation, ctx=ctx
        )
        # It is fastplan's already under `fastplan.patch()`, without the settings.
        if type(given) not in (TorchRecPlanner, EmbeddingShardingPlanner):
            reason = (
                f"fastplan does not plan for {sku}: {describe(given)} is not TorchRec's "
                "EmbeddingShardingPlanner"
            )
            logger.warning("%s", reason)
            ctx.warnings.append(reason)
            return given
        arguments = {name: getattr(given, attribute) for name, attribute in _ATTRIBUTES.items()}
        rates_otherwise = self._settings.get("objective") is not None
        if rates_otherwise and type(given._perf_model) is NoopPerfModel:
            arguments["performance_model"] = None  # the default, which the objective replaces
        planner = EmbeddingShardingPlanner(**arguments, **self._settings)
        for sink in planner._stats:
            if isinstance(sink, PlanFileStats):
                sink.follow(planner)
        return planner


def _own_arguments() -> list[str]:
    parameters = inspect.signature(EmbeddingShardingPlanner.__init__).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
