"""Moves that TorchRec can make in a running job: the arguments of DistributedModelParallel.reshard.

It moves weights and optimizer state of an EmbeddingBagCollection's table-wise and column-wise
tables, and can't change a table's sharding type or kernel. Between processes on CPU, PYTHONHASHSEED
must be the same on all ranks: messages are tagged by the hash of a table's name.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding, ShardingPlan

_MOVABLE = ("table_wise", "column_wise")
_MIB = 1024 * 1024


class Resharding(NamedTuple):
    """What can move in a running job, by module, and what needs a restart."""

    # module path -> what `reshard(arguments, path)` takes: MiB that move, and the new shardings
    arguments: dict[str, tuple[float, EmbeddingModuleShardingPlan]]
    needs_restart: dict[str, str]  # table -> why


def reshard_arguments(before: ShardingPlan, after: ShardingPlan) -> Resharding:
    """The way from one plan to another, to be gone by every rank at the same step:
    `for path in found.arguments: dmp.reshard(found.arguments, path or None)`.
    """
    arguments: dict[str, tuple[float, EmbeddingModuleShardingPlan]] = {}
    needs_restart: dict[str, str] = {}
    for path in dict.fromkeys((*before.plan, *after.plan)):
        old, new = (dict(plan.plan.get(path) or {}) for plan in (before, after))
        changed = EmbeddingModuleShardingPlan()
        volume = 0.0
        for name in dict.fromkeys((*old, *new)):
            full = f"{path}.{name}" if path else name
            if name not in old or name not in new:
                needs_restart[full] = "it is new" if name in new else "it is gone"
            elif why := _why_restart(old[name], new[name]):
                needs_restart[full] = why
            elif _places(old[name]) != _places(new[name]):
                changed[name] = copy.deepcopy(new[name])
                volume += _volume(new[name])
        if changed:
            arguments[path] = volume / _MIB, changed
    return Resharding(arguments, needs_restart)


def _why_restart(old: ParameterSharding, new: ParameterSharding) -> str:
    kinds = [(each.sharding_type, each.compute_kernel) for each in (old, new)]
    if kinds[0] == kinds[1] and _places(old) == _places(new):
        return ""
    if old.sharding_type != new.sharding_type:
        return f"{old.sharding_type} becomes {new.sharding_type}"
    if old.compute_kernel != new.compute_kernel:
        return f"kernel {old.compute_kernel} becomes {new.compute_kernel}"
    if new.sharding_type not in _MOVABLE:
        return f"{new.sharding_type} tables can't move in a running job"
    return ""


def _places(sharding: ParameterSharding) -> list[tuple[Any, ...]]:
    spec: Any = sharding.sharding_spec
    shards = [] if spec is None else spec.shards
    cuts = [(*shard.shard_offsets, *shard.shard_sizes) for shard in shards]
    return [*zip(sharding.ranks or [], cuts or [()] * len(sharding.ranks or []), strict=True)]


def _volume(sharding: ParameterSharding) -> float:
    """Bytes of the table's weights, which TorchRec takes for fp32."""
    spec: Any = sharding.sharding_spec
    return float(sum(4 * shard.shard_sizes[0] * shard.shard_sizes[1] for shard in spec.shards))
