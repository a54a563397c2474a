"""What `save` and `load` have in common: the tensors of a job, and ranks that fail together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import ShardedTensor

from fastplan.checkpoint.errors import CheckpointError, raise_problems
from fastplan.checkpoint.sources import Region
from fastplan.checkpoint.writing import TableTarget
from fastplan.torchrec.table_state import Table

T = TypeVar("T")


class Held(NamedTuple):
    """A tensor of a job that is not a table's: its shape, and the parts that this rank holds."""

    key: str
    size: tuple[int, ...]
    parts: tuple[tuple[tuple[int, ...], torch.Tensor], ...]  # offsets and memory
    is_replicated: bool


def other_tensors(job: Any, tables: Mapping[str, Table]) -> list[Held]:
    """Returns the entries of `state_dict()` that are not weights of tables.

    Raises:
        CheckpointError: an entry is not a tensor.
    """
    found = []
    for key, value in job.state_dict().items():
        if key in tables:
            continue
        if isinstance(value, ShardedTensor):
            parts = tuple(
                (tuple(shard.metadata.shard_offsets), shard.tensor.detach())
                for shard in value.local_shards()
            )
            found.append(Held(key, tuple(value.size()), parts, False))
        elif isinstance(value, torch.Tensor):
            whole = ((0,) * value.dim(), value.detach())
            found.append(Held(key, tuple(value.shape), (whole,), True))
        else:
            raise CheckpointError(
                f"{key} of state_dict() is a {type(value).__name__}, not a tensor: "
                "save and load it yourself"
            )
    return found


def other_parameters(job: Any, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Returns the parameters of a job that are not tables, by their key in `state_dict()`."""
    found = {}
    for name, parameter in job.named_parameters():
        key = name.removeprefix("module.")
        if key not in tables:
            found[key] = parameter
    return found


def target_of(table: Table) -> TableTarget:
    """Returns a job's table as its plan shards it."""
    spec: Any = table.sharding.sharding_spec
    if table.is_replicated or spec is None:
        regions: tuple[Region, ...] = (Region(0, 0, table.rows, table.columns),)
    else:
        regions = tuple(Region(*s.shard_offsets, *s.shard_sizes) for s in spec.shards)
    return TableTarget(table.name, table.rows, table.columns, regions, table.is_fused)


def together(job: Any, work: Callable[[], T]) -> T:
    """Does a rank's part of some work. If it fails on any rank, it fails on all.

    Raises:
        CheckpointError: the problems of tables of all ranks, or else the error of the first rank
            that has one, with the rank if others have none.
    """
    result, own = None, None
    try:
        result = work()
    except Exception as problem:
        own = problem
    text = "" if own is None else str(own) or repr(own)
    errors: list[Any] = [None] * job._env.world_size
    problems = getattr(own, "problems", {})
    dist.all_gather_object(errors, (text, problems), group=job._env.process_group)
    if not any(each for each, _ in errors):
        return result  # type: ignore[return-value]
    if all(found for each, found in errors if each):
        merged: dict[str, str] = {}
        for _, found in errors:
            merged = {**found, **merged}  # the words of the first rank that has a problem
        raise_problems({key: merged[key] for key in sorted(merged)})
    rank = next(number for number, (each, found) in enumerate(errors) if each and not found)
    where = "" if len({each for each, _ in errors}) == 1 else f"rank {rank}: "
    raise CheckpointError(f"{where}{errors[rank][0]}") from own


def check_job(job: Any) -> None:
    """Checks that a job is one whose checkpoints can follow plans.

    Raises:
        TypeError: it is not a DistributedModelParallel.
        CheckpointError: it has replicated tables (2D parallelism).
    """
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.types import ShardingEnv

    if not isinstance(job, DistributedModelParallel):
        raise TypeError(
            f"`job` must be a DistributedModelParallel, not a {type(job).__name__}: shard the model"
        )
    if type(job._env) is not ShardingEnv:
        raise CheckpointError(
            "a DMPCollection is not supported: save the state_dict() of one replica group with DCP"
        )
