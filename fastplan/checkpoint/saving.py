"""Saves a job's weights and every optimizer state, with its plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.job import (
    check_job,
    other_parameters,
    other_tensors,
    target_of,
    together,
)
from fastplan.checkpoint.sources import Region
from fastplan.checkpoint.storage import METADATA, PLAN, Path, open_file_system, open_writer
from fastplan.checkpoint.writing import (
    Block,
    Keys,
    finish,
    region_blocks,
    write_blocks,
    writing_to,
)
from fastplan.torchrec.dense_optimizer import owner_of
from fastplan.torchrec.plan_files import plan_text
from fastplan.torchrec.table_state import State, Table, read_tables

MODEL: Keys = ("model",)
OPTIMIZER: Keys = ("optimizer", "state")


def save(job: Any, path: Path, *, optimizer: Any = None, states: bool = True) -> None:
    """Saves a checkpoint with the weights and every optimizer state of a job, and its plan.

    The files are DCP's. With the same plan, TorchRec can load them as
    `{"model": job.state_dict(), "optimizer": CombinedOptimizer([...]).state_dict()}`. Every rank
    must call this. The checkpoint is complete when `.metadata` exists.

    Args:
        job: the DistributedModelParallel.
        path: a directory or a URL that fsspec knows, without a checkpoint in it.
        optimizer: the optimizer of dense weights and of tables with dense kernels, which
            data-parallel tables have: torch's, or a KeyedOptimizer.
        states: whether to save optimizer states.

    Raises:
        CheckpointError: `path` holds a checkpoint, or something of the job can't be saved, such as
            the states of a table whose optimizer is not given.
        TypeError: `job` is not a DistributedModelParallel.
    """
    check_job(job)
    name = os.fspath(path)
    together(job, lambda: _check_free(job, name))
    blocks = together(job, lambda: list(_blocks(job, optimizer, states)))
    writer = open_writer(path)
    writer.set_up_storage_writer(job._env.rank == 0)
    results = together(job, lambda: write_blocks(writer, blocks, str(job._env.rank)))
    own = [[block._replace(make=_gone) for block in blocks], results]
    gathered: list[Any] = [None] * job._env.world_size
    dist.all_gather_object(gathered, own, group=job._env.process_group)
    together(job, lambda: _finish(job, name, writer, gathered))


def _gone() -> torch.Tensor:
    raise AssertionError("the block has been written")


def _check_free(job: Any, name: str) -> None:
    if job._env.rank != 0:
        return
    fs, path = open_file_system(name)
    if fs.exists(fs.concat_path(path, METADATA)):
        raise CheckpointError(f"{name}: a checkpoint is here already; choose another directory")
    fs.mkdir(path)


def _finish(job: Any, name: str, writer: Any, gathered: list[Any]) -> None:
    if job._env.rank != 0:
        return
    fs, path = open_file_system(name)
    with writing_to(path), fs.create_stream(fs.concat_path(path, PLAN), "wb") as stream:
        stream.write(plan_text(job.plan, PLAN, drop_statistics=True).encode())
    blocks = [block for own, _ in gathered for block in own]
    finish(writer, blocks, [result for _, results in gathered for result in results])


def _blocks(job: Any, optimizer: Any, states: bool) -> Iterator[Block]:
    """Returns what this rank writes. Ranks take turns with what all of them hold."""
    tables = read_tables(job, optimizer)
    if states:
        _check_optimizer(tables, optimizer)
    rank, world = job._env.rank, job._env.world_size
    replicated: list[Block] = []
    for table in tables.values():
        for state in (table.weight, *(table.states.values() if states else ())):
            made = _state_blocks(table, state)
            if table.is_replicated:
                replicated += made
            else:
                yield from made
    for held in other_tensors(job, tables):
        for offsets, tensor in held.parts:
            made = _tensor_blocks((*MODEL, held.key), held.size, offsets, tensor)
            if held.is_replicated:
                replicated += made
            else:
                yield from made
    if states and optimizer is not None:
        for key, parameter in other_parameters(job, tables).items():
            for name, tensor in (optimizer.state.get(parameter) or {}).items():
                if isinstance(tensor, torch.Tensor):
                    path = (*OPTIMIZER, key, name)
                    replicated += _tensor_blocks(path, tuple(tensor.shape), None, tensor)
    yield from replicated[rank::world]


def _check_optimizer(tables: Mapping[str, Table], optimizer: Any) -> None:
    """Raises CheckpointError for a table whose states are in an optimizer that is not given."""
    for key, table in tables.items():
        parameter = table.parameter
        if table.is_fused or parameter is None or not parameter.requires_grad:
            continue
        if owner_of(optimizer, parameter) is None:
            why = "no optimizer is given" if optimizer is None else "the optimizer does not have it"
            raise CheckpointError(
                f"table {key}: its kernel is dense, and {why}: pass the one that updates it as "
                "optimizer=, or states=False to save weights alone"
            )


def _state_blocks(table: Table, state: State) -> Iterator[Block]:
    target = target_of(table)
    is_weight = state is table.weight
    path = (
        (*MODEL, table.key) if is_weight else (*OPTIMIZER, table.key, target.state_name(state.name))
    )
    for shard in state.shards:
        region, tensor = Region(*shard.offsets, *shard.sizes), shard.tensor.detach()
        if state.kind == "scalar":
            # A kernel whose update does not read the counter may not count at all.
            counts = state.is_used or float(tensor) > 0
            if counts and region.row == region.column == 0:
                yield from _tensor_blocks(path, tuple(tensor.shape), None, tensor)
            continue
        size, offsets = target.place(state.kind, region)
        if state.kind == "rowwise" and table.is_replicated:
            size, offsets = tuple(tensor.shape), (0,) * tensor.dim()
        elif state.kind == "rowwise":
            tensor = tensor.view(-1)
        yield from _tensor_blocks(path, size, offsets, tensor)


def _tensor_blocks(
    path: Keys, size: tuple[int, ...], offsets: tuple[int, ...] | None, tensor: torch.Tensor
) -> Iterator[Block]:
    def rows(first: int, count: int) -> torch.Tensor:
        return tensor[first : first + count] if tensor.dim() else tensor

    at = (0,) * tensor.dim() if offsets is None else offsets
    yield from region_blocks(path, size, at, tuple(tensor.shape), tensor.dtype, rows)
