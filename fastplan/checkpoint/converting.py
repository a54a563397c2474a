"""Converts a checkpoint to another plan, offline: no process group, no model, little memory.

Afterwards TorchRec itself can load it under the new plan: each state has the name, shape and cuts
that TorchRec's optimizers have for it there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch

from fastplan.checkpoint.contents import find_tables, place_of, table_key
from fastplan.checkpoint.copying import (
    check_merge,
    copy_block,
    copy_region,
    find_disagreement,
    merge_mean,
    merges,
    read_scalar,
)
from fastplan.checkpoint.errors import CheckpointError, raise_problems
from fastplan.checkpoint.metadata import Entry
from fastplan.checkpoint.sources import MOMENTUM1, STEP, Region, Source, SourceTable
from fastplan.checkpoint.storage import PLAN, Checkpoint, Path, is_url, open_writer
from fastplan.checkpoint.writing import (
    Block,
    Keys,
    TableTarget,
    finish,
    region_blocks,
    write_blocks,
    writing_to,
)
from fastplan.model.plan import RANK, TableLayout
from fastplan.plans.file import parse_plan, read_bytes

Progress = Callable[[int, int], object]  # bytes that are written, of all


class _Home(NamedTuple):
    """Where optimizer states are in the state dict: keys before the table's, and its prefix."""

    keys: Keys
    prefix: str
    is_flat: bool  # the state dict was not nested

    def path(self, table: str, state: str) -> Keys:
        """Returns the keys of a state."""
        if self.is_flat:
            return (f"{self.prefix}{table}.{state}",)
        return (*self.keys, f"{self.prefix}{table}", state)


@dataclass(kw_only=True)
class _Job:
    checkpoint: Checkpoint
    merge: Literal["exact", "mean"]
    step: int | None
    homes: dict[bool, _Home] = field(default_factory=dict)  # by whether kernels are fused
    blocks: dict[int, list[Block]] = field(default_factory=dict)  # by rank

    def add(self, rank: int, blocks: Iterator[Block]) -> None:
        self.blocks.setdefault(rank, []).extend(blocks)


def convert(
    path: Path,
    plan: Path,
    output: str | os.PathLike[str],
    *,
    merge: Literal["exact", "mean"] = "exact",
    step: int | None = None,
    under: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Writes a checkpoint as a job with another plan would have saved it.

    It takes no process group and no model, and a few hundred MB of memory for any checkpoint. The
    new directory appears when it is complete, or not at all: an error, Ctrl-C and SIGTERM leave
    nothing.

    Args:
        path: the checkpoint: a directory, or a URL that fsspec knows.
        plan: a plan file.
        output: the new directory, on a local file system.
        merge: as for `load`.
        step: as for `load`.
        under: as for `load`.
        progress: is called with the bytes that are written, and all bytes.

    Returns:
        The bytes that were written.

    Raises:
        CheckpointError: as for `load`, `output` exists or is a URL, or the disk is full.
        ValueError: `merge` is unknown.
        PlanFileError: the plan file is malformed.
        OSError: the plan file can't be read, or `output` can't be written.
    """
    check_merge(merge)
    target = os.path.abspath(os.fspath(output))
    if is_url(output):
        raise CheckpointError(f"{output}: convert to a local directory, and copy it from there")
    if os.path.lexists(target):
        raise CheckpointError(f"{output}: exists already; choose another name")
    text = read_bytes(plan)
    layout = parse_plan(text, os.fspath(plan)).layout
    layouts = {(table.path, table.name): table for table in layout.tables}
    with Checkpoint(path) as checkpoint, torch.no_grad():
        job = _Job(checkpoint=checkpoint, merge=merge, step=step)
        tables = list(find_tables(checkpoint, under))
        if not tables:
            raise CheckpointError(_why_no_tables(checkpoint, under))
        _plan(job, tables, layouts)
        with _new_folder(target) as folder:
            written = _write(job, folder, text, progress)
    return written


@contextmanager
def _new_folder(target: str) -> Iterator[str]:
    """Makes a directory that gets its name at the end. A failure removes it and new parents."""
    missing = [*_missing_parents(target)]
    folder = f"{target}.partial-{secrets.token_hex(4)}"
    with _sigterm_after_cleanup():
        try:
            os.makedirs(folder)
            yield folder
            os.rename(folder, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            for parent in missing:
                with suppress(OSError):  # somebody else uses it, or it has not been made
                    os.rmdir(parent)
            raise


def _missing_parents(path: str) -> Iterator[str]:
    """Yields the directories above a path that do not exist, from the lowest one up."""
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        yield parent
        parent = os.path.dirname(parent)


class _Terminated(BaseException):
    """SIGTERM has come."""


@contextmanager
def _sigterm_after_cleanup() -> Iterator[None]:
    """Lets SIGTERM end the process after the block has cleaned up, as Ctrl-C does.

    A handler of the caller stays, and is the caller's to end the block.
    """
    is_main = threading.current_thread() is threading.main_thread()  # no other sets handlers
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    try:
        signal.signal(signal.SIGTERM, _terminate)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except _Terminated:
        signal.raise_signal(signal.SIGTERM)
        raise


def _terminate(*_: object) -> None:
    raise _Terminated


def _why_no_tables(checkpoint: Checkpoint, under: str | None) -> str:
    """Returns the message for a checkpoint, or a part of it, that has no tables."""
    found = {entry.key: key for entry in checkpoint.entries.values() if (key := table_key(entry))}
    parts = sorted({full.removesuffix(key).rstrip(".") for full, key in found.items()})
    if under is None or not parts:
        return f"{checkpoint.name}: no tables found in the checkpoint"
    named = ", ".join(map(repr, parts))
    return (
        f"{checkpoint.name}: no tables found under {under!r}; `--under`, in Python the argument "
        f"`under`, can be {named}"
    )


def _plan(
    job: _Job, tables: list[SourceTable], layouts: dict[tuple[str, str], TableLayout]
) -> None:
    """Finds out what to write, and checks everything before the first byte."""
    _find_homes(job, tables)
    used: set[str] = set()
    planned, problems = set(), {}
    for table in tables:
        place = place_of(table.key, layouts)
        try:
            if place is None:
                raise CheckpointError(f"table {table.key}: the plan does not have it")
            if place in planned:
                raise CheckpointError(
                    f"table {table.key}: the checkpoint has it twice; pass `under`"
                )
            planned.add(place)
            _plan_table(job, table, layouts[place])
        except CheckpointError as error:
            problems[table.key] = str(error)
        used |= {each.entry.key for each in (table.weight, *table.states.values())}
    for path, name in layouts.keys() - planned:
        problems[f"{path}.{name}"] = f"table {path}.{name} of the plan: not in the checkpoint"
    raise_problems(problems)
    for entry in job.checkpoint.entries.values():
        if entry.key not in used:
            job.add(0, _copied(job.checkpoint, entry))
    job.checkpoint.check_files(list(job.checkpoint.entries.values()))


def _find_homes(job: _Job, tables: list[SourceTable]) -> None:
    for table in tables:
        for source in table.states.values():
            is_fused = str(source.entry.path[-1]).startswith(f"{table.name}.")
            job.homes.setdefault(is_fused, _home(source.entry, table.key))


def _home(entry: Entry, key: str) -> _Home:
    for number, word in enumerate(entry.path):
        if isinstance(word, str) and (word == key or word.endswith(f".{key}")):
            return _Home(entry.path[:number], word.removesuffix(key), False)
    return _Home((), entry.key.partition(key)[0], True)


def _plan_table(job: _Job, table: SourceTable, layout: TableLayout) -> None:
    whole = Region(0, 0, table.rows, table.columns)
    target, ranks = _target(table, layout, whole)
    if layout.shape not in (None, (table.rows, table.columns)):
        raise CheckpointError(
            f"table {table.key}: {table.rows:,} x {table.columns:,} in the checkpoint, "
            f"{layout.shape} in the plan"
        )
    entry = table.weight.entry
    for region, rank in zip(target.regions, ranks, strict=True):
        job.add(rank, _region(job, table.weight, region, entry.path, target))
    others = [name for name in table.states if name != STEP]
    home = job.homes.get(target.is_fused)
    for name in others:
        source = table.states[name]
        own = home or _home(source.entry, table.key)
        path = own.path(table.key, target.state_name(_torch_name(name, table)))
        for region, rank in zip(target.regions, ranks, strict=True):
            job.add(rank, _region(job, source, region, path, target))
    if others:
        own = home or _home(table.states[others[0]].entry, table.key)
        _plan_step(job, table, target, own, ranks[0])


def _target(
    table: SourceTable, layout: TableLayout, whole: Region
) -> tuple[TableTarget, list[int]]:
    is_fused = layout.kernel != "dense"
    regions: tuple[Region, ...] = (whole,)
    ranks = [0]
    if layout.sharding_type != "data_parallel":
        regions = tuple(Region(*map(int, shard[:4])) for shard in layout.shards)
        ranks = [int(rank) for rank in layout.shards[:, RANK]]
    return TableTarget(table.name, table.rows, table.columns, regions, is_fused), ranks


def _torch_name(name: str, table: SourceTable) -> str:
    """Returns the name that torch's optimizers have for a state."""
    if name != MOMENTUM1:
        return name
    return "exp_avg" if "exp_avg_sq" in table.states else "sum"


def _region(
    job: _Job, source: Source, region: Region, path: Keys, target: TableTarget
) -> Iterator[Block]:
    copy = copy_region
    if merges(source, region):
        row = find_disagreement(job.checkpoint, source, region)
        if row is not None and job.merge == "exact":
            raise CheckpointError(
                f"{source.entry.key}: a number per row and column shard; it differs in row {row} "
                "between shards that one shard of the plan gets the columns of; pass merge='mean' "
                "(--merge mean) for their mean"
            )
        copy = copy_region if row is None else merge_mean
    size, offsets = target.place(source.kind, region)
    is_column = source.kind == "rowwise" and not target.is_fused and len(target.regions) == 1
    if is_column:  # torch's optimizers keep such a state as a matrix of one column
        size, offsets = (target.rows, 1), (0, 0)
    shape = tuple(region[2:]) if source.kind == "pointwise" else (region.rows, *size[1:])
    dtype = source.entry.dtype
    assert dtype is not None

    def rows(first: int, count: int) -> torch.Tensor:
        part = region._replace(row=region.row + first, rows=count)
        made = torch.empty((count, *shape[1:]), dtype=dtype)
        copy(job.checkpoint, source, part, made)
        return made

    return region_blocks(path, size, offsets, shape, dtype, rows)


def _plan_step(job: _Job, table: SourceTable, target: TableTarget, home: _Home, rank: int) -> None:
    source = table.states.get(STEP)
    if source is not None:
        value = read_scalar(job.checkpoint, source)
    elif job.step is not None:
        value = float(job.step)
    elif target.is_fused:
        return  # as TorchRec's own state dicts
    else:
        raise CheckpointError(
            f"table {table.key}: its kernel is dense in the plan, and its step counter is not in "
            "the checkpoint; pass step= (--step)"
        )
    made = torch.tensor([int(value)]) if target.is_fused else torch.tensor(value)
    shape = tuple(made.shape)
    path = home.path(table.key, target.state_name(STEP))
    job.add(rank, iter([Block(path, shape, (0,) * len(shape), shape, made.dtype, lambda: made)]))


def _copied(checkpoint: Checkpoint, entry: Entry) -> Iterator[Block]:
    """Copies a value that is not of a table."""
    if entry.dtype is None:
        size = (entry.bytes,)
        yield Block(entry.path, size, (0,), size, None, partial(checkpoint.raw, entry))
        return

    def rows(first: int, count: int) -> torch.Tensor:
        made = torch.empty((count, *entry.size[1:]) if entry.size else (), dtype=entry.dtype)
        copy_block(checkpoint, entry, (first, *(0 for _ in entry.size[1:])), made)
        return made

    zeros = (0,) * len(entry.size)
    yield from region_blocks(entry.path, entry.size, zeros, entry.size, entry.dtype, rows)


def _write(job: _Job, folder: str, plan: bytes, progress: Progress | None) -> int:
    total = sum(block.bytes for blocks in job.blocks.values() for block in blocks)
    done = 0

    def wrote(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    writer: Any = open_writer(folder)
    writer.set_up_storage_writer(True)
    results = []
    for rank, blocks in sorted(job.blocks.items()):
        results += write_blocks(writer, blocks, str(rank), wrote)
    with writing_to(folder), open(os.path.join(folder, PLAN), "wb") as file:
        file.write(plan)
    finish(writer, (block for blocks in job.blocks.values() for block in blocks), results)
    return total
