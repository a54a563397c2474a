"""Which tables change between two plans, and which changes need a restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ParameterSharding, ShardingEnv, ShardingPlan

from fastplan.torchrec.live.modules import UNSHARDED

# Kernels whose tables are tensors that this rank can read and write.
_KERNELS = ("dense", "fused", "fused_uvm", "fused_uvm_caching")

Shardings = Mapping[str, ParameterSharding]


def changed_tables(before: ShardingPlan, after: ShardingPlan) -> dict[str, list[str]]:
    """Returns, by path of module, the tables that have other shards or another kernel.

    Tables that only one of the plans has are among them.
    """
    found = {}
    for path in dict.fromkeys((*before.plan, *after.plan)):
        old, new = (_of_module(plan, path) for plan in (before, after))
        names = [
            name
            for name in dict.fromkeys((*old, *new))
            if name not in old or name not in new or facts(old[name]) != facts(new[name])
        ]
        if names:
            found[path] = names
    return found


def facts(sharding: ParameterSharding) -> tuple[Any, ...]:
    """Returns what decides where the shards of a table are and how they are stored."""
    spec: Any = sharding.sharding_spec
    shards = [] if spec is None else spec.shards
    return (
        sharding.sharding_type,
        sharding.compute_kernel,
        [*(sharding.ranks or ())],
        [(*shard.shard_offsets, *shard.shard_sizes) for shard in shards],
        str(sharding.cache_params),
    )


def why_restart(
    job: DistributedModelParallel, after: ShardingPlan, has_optimizer: bool
) -> dict[str, str]:
    """Returns, by table, why a change that the plan asks for needs a restart."""
    reasons = {}
    for path, names in changed_tables(job.plan, after).items():
        old, new = (_of_module(plan, path) for plan in (job.plan, after))
        why_all = _why_module(job, path) if old else "the plan has a module that the job has not"
        for name in names:
            if why := why_all or _why_table(job, path, old, new, name, has_optimizer):
                reasons[f"{path}.{name}" if path else name] = why
    return reasons


def _of_module(plan: ShardingPlan, path: str) -> Shardings:
    module: Any = plan.plan.get(path)
    return module or {}


def _why_module(job: DistributedModelParallel, path: str) -> str:
    if type(job._env) is not ShardingEnv:
        return "tables of 2D plans, which have replicas, can't move in a running job"
    if getattr(job, "model_trackers", None):
        return "a model tracker refers to the job's tables; restart without it"
    module = job.module.get_submodule(path)
    if type(module) not in UNSHARDED:
        return f"a {type(module).__name__} can't be built again in a running job"
    return ""


def _why_table(
    job: DistributedModelParallel,
    path: str,
    old: Shardings,
    new: Shardings,
    name: str,
    has_optimizer: bool,
) -> str:
    if name not in old or name not in new:
        return "the table was added" if name in new else "the table was removed"
    for other in (*old, *new):
        kernels = [side[other].compute_kernel for side in (old, new) if other in side]
        for kernel in kernels:
            if kernel not in _KERNELS:
                return f"kernel {kernel} of {other} does not hold its weights as tensors"
            if kernel == "dense" and not has_optimizer:
                return f"{other} has a dense kernel: pass its optimizer as `optimizer=`"
    return _why_shards(job, path, name, new[name])


def _why_shards(
    job: DistributedModelParallel, path: str, name: str, sharding: ParameterSharding
) -> str:
    """Returns why the shards of a plan are not those of the job's table."""
    ranks = sharding.ranks or []
    if wrong := [rank for rank in ranks if not 0 <= rank < job._env.world_size]:
        return f"the plan has rank {wrong[0]}; the job has {job._env.world_size} ranks"
    if sharding.sharding_type == "data_parallel":
        return ""
    module: Any = job.module.get_submodule(path)
    rows, columns = module._name_to_table_size[name]
    shards = facts(sharding)[3]
    if not shards or len(shards) != len(ranks):
        return f"the plan has {len(shards)} shards and {len(ranks)} ranks for the table"
    cells = sum(height * width for _, _, height, width in shards)
    ends = [max(s[at] + s[at + 2] for s in shards) for at in (0, 1)]
    if cells != rows * columns or ends != [rows, columns]:
        return f"the plan's shards are not those of a table of {rows} x {columns}"
    return ""
