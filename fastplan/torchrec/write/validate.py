"""TorchRec's validators on a finished plan.

Its own functions run wherever they could find something. What the core guarantees of its own
plans, ranks inside the cluster and whole storage, is not asked shard by shard again.
"""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner import planners


def validate(planner: Any, plan: Any, module: Any, sharders: list[Any], *, trusted: bool) -> None:
    """Raises the PlannerError of the first validator that objects.

    `trusted` plans come from the core as they are, for a cluster of the planner's own size.
    """
    planners.validate_modules_inclusion_in_sharding_plan(plan, module, sharders)
    if not trusted:
        planners.validate_rank_assignment(plan, planner._topology)
    if not trusted or _kernels_in_doubt(plan):
        planners.validate_compute_kernels(planner._best_plan)


def _kernels_in_doubt(plan: Any) -> bool:
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
