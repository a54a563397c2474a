"""The validators that the planner's `plan()` ends with: before 1.7 only that of ranks."""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner import planners

from fastplan.torchrec.support.watch import is_stock

_HAS_ALL = hasattr(planners, "validate_modules_inclusion_in_sharding_plan")


def validate(planner: Any, plan: Any, module: Any, sharders: list[Any], *, trusted: bool) -> None:
    """Raises the PlannerError of the first validator that fails.

    `trusted` plans come unchanged from the core, for a cluster of the planner's own size. For them,
    a validator is called only if other code has replaced it.
    """
    if _HAS_ALL:
        planners.validate_modules_inclusion_in_sharding_plan(plan, module, sharders)
    if not trusted or not is_stock(planners.validate_rank_assignment):
        planners.validate_rank_assignment(plan, planner._topology)
    if not _HAS_ALL:
        return
    replaced = not is_stock(planners.validate_compute_kernels)
    if not trusted or replaced or _kernels_to_check(plan):
        planners.validate_compute_kernels(planner._best_plan)


def _kernels_to_check(plan: Any) -> bool:
    for tables in plan.plan.values():
        for sharding in tables.values():
            kernel = sharding.compute_kernel
            if kernel not in planners._VALID_COMPUTE_KERNELS:
                return True
            if kernel == "dense" and sharding.sharding_type != "data_parallel":
                return True
            cache = sharding.cache_params
            factor = cache.load_factor if cache is not None else None
            if kernel in planners._CACHING_KERNELS and factor is not None and not 0 < factor < 1:
                return True
    return False
