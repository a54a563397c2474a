"""Moves in a running job: the arguments of TorchRec's DistributedModelParallel.reshard.

It moves weights and optimizer state of an EmbeddingBagCollection's table-wise and column-wise
tables. Other changes need a restart, by TorchRec's `update_shards` and
`sharding/dynamic_sharding.py` (the same in 1.8.0 and 1.9.2).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingEnv,
    ShardingPlan,
    ShardMetadata,
)

from fastplan.planning.held import assign

_MOVABLE_TYPES = ("table_wise", "column_wise")
_MOVABLE_KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
_MIB = 1024 * 1024

# Module path -> arguments of `reshard(arguments, path)`: MiB that move, and the new shardings.
Arguments = dict[str, tuple[float, EmbeddingModuleShardingPlan]]


class Resharding(NamedTuple):
    """The moves that work in a running job, step by step, and the tables that need a restart."""

    steps: list[Arguments]
    needs_restart: dict[str, str]  # table -> why


def reshard_arguments(before: ShardingPlan, after: ShardingPlan) -> Resharding:
    """Computes TorchRec's reshard arguments from two plans. `reshard` also checks the job.

    On CPU a shard that stays takes two steps, because a rank can't send to itself with gloo.
    """
    ranks = _all_ranks(before, after)
    detours: dict[str, EmbeddingModuleShardingPlan] = {}
    arrivals: dict[str, EmbeddingModuleShardingPlan] = {}
    needs_restart: dict[str, str] = {}
    for path in dict.fromkeys((*before.plan, *after.plan)):
        old, new = (dict(plan.plan.get(path) or {}) for plan in (before, after))
        for name in dict.fromkeys((*old, *new)):
            if name in old and name in new and _is_unchanged(old[name], new[name]):
                continue
            why = _why_restart(path, old, new, name)
            way = [] if why else _move_steps(old[name], new[name], ranks)
            if not way:
                full = f"{path}.{name}" if path else name
                needs_restart[full] = (
                    why or "a shard stays, and a rank can't send to itself with gloo"
                )
            for step, sharding in zip((arrivals, detours), reversed(way), strict=False):
                step.setdefault(path, EmbeddingModuleShardingPlan())[name] = sharding
    steps = [
        {path: (_volume(shardings.values()), shardings) for path, shardings in step.items()}
        for step in (detours, arrivals)
        if step
    ]
    return Resharding(steps, needs_restart)


def _why_restart(
    path: str,
    olds: Mapping[str, ParameterSharding],
    news: Mapping[str, ParameterSharding],
    name: str,
) -> str:
    if name not in olds or name not in news:
        return "the table was added" if name in news else "the table was removed"
    old, new = olds[name], news[name]
    if old.sharding_type != new.sharding_type:
        return f"{old.sharding_type} becomes {new.sharding_type}"
    if old.compute_kernel != new.compute_kernel:
        return f"kernel {old.compute_kernel} becomes {new.compute_kernel}"
    if new.sharding_type not in _MOVABLE_TYPES:
        return f"{new.sharding_type} tables can't move in a running job"
    if _cuts(old) != _cuts(new):
        # A part of a shard is not contiguous in the optimizer's state.
        return "its shards change, and TorchRec can only move whole shards"
    if len(set(new.ranks)) < len(new.ranks):
        # TorchRec writes received data into the rank's first shard.
        return "a rank gets several shards of it, and TorchRec fills only the first"
    for other, sharding in olds.items():
        if sharding.compute_kernel not in _MOVABLE_KERNELS:
            # TorchRec rebuilds every table of the module, these without DDP or the job's optimizer.
            return f"{other} of its module has kernel {sharding.compute_kernel}"
    return "" if path else "TorchRec's reshard needs dense weights in addition to the tables"


def _move_steps(
    old: ParameterSharding, new: ParameterSharding, ranks: list[int]
) -> list[ParameterSharding]:
    """Returns the steps: the new sharding, after a detour if a rank would send to itself."""
    stays = any(a == b for a, b in zip(old.ranks, new.ranks, strict=True))
    if not (stays and _on_cpu(new)):
        return [copy.deepcopy(new)]
    between = _detour_ranks(old.ranks, new.ranks, ranks)
    return [_placed(new, between), copy.deepcopy(new)] if between else []


def _detour_ranks(old: list[int], new: list[int], ranks: list[int]) -> list[int]:
    """Returns distinct ranks for the shards, none its old or new one; empty without a solution."""
    free = np.zeros((len(ranks), len(ranks)))
    for shard, taken in enumerate(zip(old, new, strict=True)):
        free[shard] = [rank not in taken for rank in ranks]
    chosen = assign(free)[: len(new)]
    possible = all(free[shard, column] for shard, column in enumerate(chosen))
    return [ranks[column] for column in chosen] if possible else []


def _placed(sharding: ParameterSharding, ranks: list[int]) -> ParameterSharding:
    placed = copy.deepcopy(sharding)
    placed.ranks = ranks
    placed.sharding_spec = EnumerableShardingSpec(
        [
            ShardMetadata(shard.shard_offsets, shard.shard_sizes, f"rank:{rank}/cpu")
            for shard, rank in zip(_shards(sharding), ranks, strict=True)
        ]
    )
    return placed


def _is_unchanged(old: ParameterSharding, new: ParameterSharding) -> bool:
    known = [
        (each.sharding_type, each.compute_kernel, each.ranks, _cuts(each)) for each in (old, new)
    ]
    return bool(known[0] == known[1])


def _all_ranks(*plans: ShardingPlan) -> list[int]:
    shardings = (
        each for plan in plans for module in plan.plan.values() for each in module.values()
    )
    return sorted({rank for sharding in shardings for rank in sharding.ranks or []})


def _shards(sharding: ParameterSharding) -> list[Any]:
    spec: Any = sharding.sharding_spec
    return [] if spec is None else list(spec.shards)


def _cuts(sharding: ParameterSharding) -> list[tuple[int, ...]]:
    return [(*shard.shard_offsets, *shard.shard_sizes) for shard in _shards(sharding)]


def _on_cpu(sharding: ParameterSharding) -> bool:
    return any(shard.placement.device().type == "cpu" for shard in _shards(sharding))


def _volume(shardings: Iterable[ParameterSharding]) -> float:
    """Returns the MiB of the tables' weights, which TorchRec treats as fp32."""
    shards = (shard for sharding in shardings for shard in _shards(sharding))
    return float(sum(4 * shard.shard_sizes[0] * shard.shard_sizes[1] for shard in shards)) / _MIB


def reshard(job: DistributedModelParallel, after: ShardingPlan) -> Resharding:
    """Moves the tables of a running job to the placement of a plan: all tables or none.

    Every rank must call this at the same step, with no batch in flight. If `needs_restart` of the
    result names a table, nothing has moved on any rank.

    Raises:
        TypeError: the model is not sharded.
    """
    for name, value, kind in (
        ("job", job, DistributedModelParallel),
        ("after", after, ShardingPlan),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` must be a {kind.__name__}, not a {type(value).__name__}")
    found = reshard_arguments(job.plan, after)
    if found.needs_restart or not found.steps:
        return found
    if why := _why_job_restarts(job, found):
        return Resharding([], why)
    for step in found.steps:
        for path in step:
            job.reshard(step, path)
            # TorchRec keeps it from the last batch: features that were in the order of the
            # tables before would go to wrong tables now that they are not.
            _module(job, path)._has_features_permute = True
    return found


def _why_job_restarts(job: DistributedModelParallel, found: Resharding) -> dict[str, str]:
    """Returns, by table, why the job can't move it; the same on all ranks."""
    own = {path: _why_module(job, path) for path in found.steps[-1]}
    # A rank without a table does not know its optimizer, so that all ranks must report.
    reports: list[Any] = [None] * job._env.world_size
    dist.all_gather_object(reports, (hash("fastplan"), own), group=job._env.process_group)
    hashes, reasons = zip(*reports, strict=True)
    why_all = ""
    if job.device.type == "cpu" and len(set(hashes)) > 1:
        # TorchRec's tags of messages over gloo are hashes of tables' names.
        why_all = "PYTHONHASHSEED must be the same on all ranks"
    return {
        f"{path}.{name}": why
        for path, (_, shardings) in found.steps[-1].items()
        for name in shardings
        if (why := next(filter(None, (why_all, *(each[path] for each in reasons))), ""))
    }


def _why_module(job: DistributedModelParallel, path: str) -> str:
    module = _module(job, path)
    if type(job._env) is not ShardingEnv:
        return "TorchRec's reshard does not support replicated tables"
    if not hasattr(job._dmp_wrapped_module, "module"):
        return "TorchRec's reshard needs dense weights in addition to the tables"
    if not hasattr(module, "update_shards"):
        return f"TorchRec can't reshard a {type(module).__name__}"
    states = (
        name for table in module.fused_optimizer.state_dict()["state"].values() for name in table
    )
    lost = sorted({name.split(".")[-1] for name in states} - {"momentum1"})
    return f"TorchRec's reshard loses the optimizer's {lost[0]}" if lost else ""


def _module(job: DistributedModelParallel, path: str) -> Any:
    return job.module.get_submodule(path)
