"""Loads a checkpoint into a job, whatever plan it was saved under."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist

from fastplan.checkpoint.copying import (
    check_merge,
    copy_block,
    copy_region,
    find_disagreement,
    merge_mean,
    merges,
    parts,
    read_scalar,
)
from fastplan.checkpoint.errors import CheckpointError, raise_problems
from fastplan.checkpoint.job import Held, check_job, other_parameters, other_tensors, together
from fastplan.checkpoint.metadata import Entry
from fastplan.checkpoint.moves import Move, describe_moves
from fastplan.checkpoint.sources import (
    MOMENTUM1,
    MOMENTUM_BUFFER,
    STEP,
    Region,
    Source,
    SourceTable,
    StateIndex,
    find_entry,
    nesting_of,
    read_table,
)
from fastplan.checkpoint.storage import Checkpoint, Path
from fastplan.torchrec.dense_optimizer import (
    TableStateError,
    new_states,
    owner_of,
    reads_step,
)
from fastplan.torchrec.table_state import State, Table, dense_states, finish_writes, read_tables

Merge = Literal["exact", "mean"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What `load` has done; the same on all ranks.

    Attributes:
        path: the checkpoint.
        tables: the tables, with the states that were loaded, and where they were and are.
        averaged: tables whose row-wise states were averaged over columns, by key.
        not_loaded: keys of the checkpoint that the job has no place for.
        without_states: weights that are not fused, whose optimizer has made no states yet, and of
            which the checkpoint has none.
    """

    path: str
    tables: tuple[Move, ...]
    averaged: tuple[str, ...] = ()
    not_loaded: tuple[str, ...] = ()
    without_states: tuple[str, ...] = ()

    @property
    def moved(self) -> tuple[Move, ...]:
        """The tables whose shards were others when the checkpoint was saved."""
        return tuple(table for table in self.tables if table.before != table.after)

    def __str__(self) -> str:
        lines = [f"{len(self.tables)} tables loaded from {self.path}, {len(self.moved)} resharded"]
        lines += [f"  ~ {move}" for move in self.moved]
        lines += [f"  row-wise states averaged over columns: {key}" for key in self.averaged]
        for keys, what in (
            (self.not_loaded, "entries not loaded"),
            (self.without_states, "weights without states in the checkpoint"),
        ):
            if keys:
                lines.append(f"  {len(keys)} {what}: {', '.join(keys[:4])}")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The arguments of `load`; `under` is found if it is not given."""

    optimizer: Any
    states: bool
    merge: Merge
    step: int | None
    under: str | None
    tables: Collection[str] | None


@dataclass(kw_only=True)
class _Work:
    """What is to be written into the job, once everything is known to be there."""

    checkpoint: Checkpoint
    options: _Options
    index: StateIndex
    copies: list[Callable[[], object]] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)  # that are read
    steps: dict[int, tuple[torch.Tensor, float]] = field(default_factory=dict)  # by address
    states: dict[str, list[str]] = field(default_factory=dict)  # loaded states by table
    averaged: set[str] = field(default_factory=set)
    without_states: list[str] = field(default_factory=list)
    moves: tuple[Move, ...] = ()


def load(
    job: Any,
    path: Path,
    *,
    optimizer: Any = None,
    states: bool = True,
    merge: Merge = "exact",
    step: int | None = None,
    under: str | None = None,
    tables: Collection[str] | None = None,
) -> Loaded:
    """Loads weights and every optimizer state of a checkpoint into a job with any plan.

    Reads checkpoints of `save`, and those of DCP with `state_dict()` of the job and of its
    optimizers, in any nesting. Every rank must call this. All checks come first: if something is
    missing, all ranks raise the same error and the job is as it was.

    Args:
        job: the DistributedModelParallel.
        path: a directory or a URL that fsspec knows.
        optimizer: as for `save`. States that it has not made yet are made.
        states: whether to load optimizer states.
        merge: what to do when a row-wise state comes from column shards that differ and go into one
            shard: `exact` refuses, `mean` takes the mean over columns, as row-wise Adagrad would
            have had it for the same gradients.
        step: the step counter, where the checkpoint has none. TorchRec's state dicts leave out that
            of fused optimizers.
        under: the nesting of the model's weights, such as `model`, if the checkpoint has several.
        tables: keys of tables in `state_dict()`, to load these and nothing else.

    Returns:
        What was loaded, and which tables had other shards before.

    Raises:
        CheckpointError: a table or state is missing or has another shape or type, the checkpoint
            has a state that the job has no place for, or a row-wise state can't be merged exactly.
        TypeError: `job` is not a DistributedModelParallel, or `tables` is a text.
        ValueError: `merge` is unknown.
    """
    check_job(job)
    check_merge(merge)
    if isinstance(tables, str):
        raise TypeError(f"`tables` must be keys of tables, such as [{tables!r}], not a text")
    chosen = _Options(
        optimizer=optimizer,
        states=states,
        merge=merge,
        step=step,
        under=under,
        tables=None if tables is None else list(tables),
    )
    work = together(job, lambda: _plan(job, path, chosen))
    together(job, lambda: _write(work, job))
    return _report(work, job, os.fspath(path))


def _plan(job: Any, path: Path, options: _Options) -> _Work:
    """Finds out what to write, and checks all of it."""
    found = read_tables(job, options.optimizer)
    wanted = _wanted(found, options.tables)
    parameters = other_parameters(job, found)
    others = other_tensors(job, found) if options.tables is None else []
    checkpoint = Checkpoint(path)
    entries = checkpoint.entries
    weights = [*wanted, *(held.key for held in others)]
    if options.under is None:
        options = replace(options, under=nesting_of(entries, weights))
    start = f"{options.under}." if options.under else ""
    known = set() if options.under is None else {start + key for key in weights}
    index = StateIndex(entries, [*found, *parameters], known)
    work = _Work(checkpoint=checkpoint, options=options, index=index)
    problems, sources = {}, []
    for key, table in wanted.items():
        try:
            sources.append((table, _plan_table(work, table)))
        except CheckpointError as error:
            problems[key] = str(error)
    raise_problems(problems)
    for held in others:
        _plan_tensor(work, held)
    if options.tables is None and options.states and options.optimizer is not None:
        for key, parameter in parameters.items():
            _plan_parameter(work, key, parameter)
    checkpoint.check_files(list(work.entries.values()))
    work.moves = describe_moves(checkpoint, job.plan, sources)
    return work


def _wanted(found: dict[str, Table], keys: Collection[str] | None) -> dict[str, Table]:
    unknown = [key for key in keys or () if key not in found]
    if unknown:
        raise CheckpointError(
            f"`tables` has {unknown[0]}, which is no table of the job; {next(iter(found))} is one"
        )
    return found if keys is None else {key: found[key] for key in keys}


def _write(work: _Work, job: Any) -> None:
    with torch.no_grad(), work.checkpoint:
        for copy in work.copies:
            copy()
        for tensor, value in work.steps.values():
            tensor.fill_(value)
    finish_writes(job)


def _plan_table(work: _Work, table: Table) -> Entry:
    """Plans a table, and returns the entry of its weights."""
    states = work.options.states
    source = read_table(
        work.checkpoint.entries, work.index, table.key, work.options.under, states=states
    )
    if (source.rows, source.columns) != (table.rows, table.columns):
        raise CheckpointError(
            f"table {table.key}: {source.rows:,} x {source.columns:,} in the checkpoint, "
            f"{table.rows:,} x {table.columns:,} in the job"
        )
    _plan_state(work, table, table.weight, source.weight)
    if states and table.weight.shards:
        _plan_states(work, table, source)
    return source.weight.entry


def _plan_states(work: _Work, table: Table, source: SourceTable) -> None:
    optimizer = work.options.optimizer
    if not table.is_fused and source.states and optimizer is None:
        raise CheckpointError(
            f"table {table.key}: the checkpoint has its {', '.join(source.states)}, and its kernel "
            "is dense here: pass the optimizer that updates it as optimizer=, or states=False"
        )
    own = dict(table.states)
    if not table.is_fused and not own and optimizer is not None:
        own = _made_states(work, table, source)
    for state in own.values():
        _plan_named(work, table, state, source)
    taken = {STEP, *own}
    left = [
        name for name in source.states if name not in taken and not _is_first(name, own, source)
    ]
    if left:
        raise CheckpointError(
            f"table {table.key}: the checkpoint has its state {left[0]}, which the job's optimizer "
            f"does not have (it has {', '.join(own) or 'no state'}); use the optimizer that the "
            "checkpoint was saved with, or states=False"
        )


def _is_first(name: str, own: Mapping[str, State], source: SourceTable) -> bool:
    """Whether a state of the checkpoint is the first one of the job's optimizer."""
    return name == MOMENTUM1 and any(source.state(each) is source.states[name] for each in own)


def _made_states(work: _Work, table: Table, source: SourceTable) -> dict[str, State]:
    """Returns new states for a table whose optimizer has not made any; kept when all is checked."""
    optimizer = work.options.optimizer
    made = new_states(optimizer, table.parameter)
    if not made:
        return {}
    if not source.states:
        work.without_states.append(table.key)  # as of a checkpoint before the first step
        return {}
    owner = owner_of(optimizer, table.parameter)
    work.copies.append(partial(owner.state.__setitem__, table.parameter, made))
    is_read = reads_step(optimizer, table.parameter)
    return dense_states(table.key, made, table.weight.shards, reads_step=is_read)


def _plan_named(work: _Work, table: Table, state: State, source: SourceTable) -> None:
    found = source.state(state.name)
    if state.name == MOMENTUM_BUFFER and not table.is_fused:
        found = source.states.get(MOMENTUM_BUFFER)  # what a fused optimizer sums is no momentum
    if state.name == STEP:
        _plan_step(work, table, state, found)
        return
    if found is None:
        raise CheckpointError(
            f"table {table.key}: its state {state.name} is not in the checkpoint, which has "
            f"{', '.join(source.states) or 'no state of it'}; load the weights alone with "
            "states=False"
        )
    _plan_state(work, table, state, found)


def _plan_step(work: _Work, table: Table, state: State, found: Source | None) -> None:
    if found is not None:
        value = read_scalar(work.checkpoint, found)
        work.entries[found.entry.key] = found.entry
    elif work.options.step is not None:
        value = float(work.options.step)
    elif not state.is_used:
        return
    else:
        raise CheckpointError(
            f"table {table.key}: its step counter is not in the checkpoint, as TorchRec's state "
            "dicts leave it out for fused optimizers; pass it as step="
        )
    for shard in state.shards:
        _, other = work.steps.get(shard.tensor.data_ptr(), (None, value))
        if other != value and state.is_used:
            raise CheckpointError(
                f"table {table.key}: its step is {value:g}, and that of another table of the same "
                f"kernel is {other:g}; give the tables kernels of their own, or pass states=False"
            )
        work.steps[shard.tensor.data_ptr()] = shard.tensor, max(value, other)
    work.states.setdefault(table.key, []).append(STEP)


def _plan_state(work: _Work, table: Table, state: State, source: Source) -> None:
    """Checks a state and plans its copies: pieces must cover it, and types must be the same."""
    what = "weights" if state is table.weight else f"state {state.name}"
    for shard in state.shards:
        if source.entry.dtype != shard.tensor.dtype or source.kind != state.kind:
            raise CheckpointError(
                f"table {table.key}: its {what} is {source.kind} {source.entry.dtype} in the "
                f"checkpoint and {state.kind} {shard.tensor.dtype} in the job"
            )
        region = Region(*shard.offsets, *shard.sizes)
        parts(source, region)
        copy = copy_region
        if merges(source, region):
            row = find_disagreement(work.checkpoint, source, region)
            if row is not None and work.options.merge == "exact":
                raise CheckpointError(
                    f"table {table.key}: its {what} has a number per row and column shard, and "
                    f"differs in row {row} between shards that one shard gets the columns of; "
                    "keep the columns' cuts, or pass merge='mean'"
                )
            if row is not None:
                copy = merge_mean
                work.averaged.add(table.key)
        work.copies.append(partial(copy, work.checkpoint, source, region, shard.tensor))
        work.entries[source.entry.key] = source.entry
    if state is not table.weight:
        work.states.setdefault(table.key, []).append(state.name)


def _plan_tensor(work: _Work, held: Held) -> None:
    entry = find_entry(work.checkpoint.entries, held.key, work.options.under)
    if entry is None:
        raise CheckpointError(f"{held.key}: not in the checkpoint")
    _plan_blocks(work, entry, held.key, held.size, held.parts)


def _plan_blocks(work: _Work, entry: Entry, key: str, size: tuple[int, ...], parts: Any) -> None:
    for offsets, tensor in parts:
        if entry.dtype != tensor.dtype or entry.size != size:
            raise CheckpointError(
                f"{key}: {entry.dtype} of {entry.size} in the checkpoint, {tensor.dtype} of {size} "
                "in the job"
            )
        if any(
            not step and count > 1
            for step, count in zip(tensor.stride(), tensor.shape, strict=True)
        ):
            raise CheckpointError(
                f"{key}: its numbers share memory, as after `expand`; make a copy of it in the job"
            )
        work.copies.append(partial(copy_block, work.checkpoint, entry, offsets, tensor))
        work.entries[entry.key] = entry


def _plan_parameter(work: _Work, key: str, parameter: Any) -> None:
    """Plans the states of a weight that is not of a table."""
    optimizer = work.options.optimizer
    owner = owner_of(optimizer, parameter)
    if owner is None:
        return
    states = work.index.states(key).items()
    found = {name: entry for name, (_, entry) in states if entry.dtype is not None}
    own = {k: v for k, v in (owner.state.get(parameter) or {}).items() if torch.is_tensor(v)}
    if not own:
        own = _made_for(optimizer, parameter, found)
        if own and not found:
            work.without_states.append(key)  # it may have none because it was never updated
            return
        if own:
            work.copies.append(partial(owner.state.__setitem__, parameter, own))
    for name in [*own, *found]:
        if name not in found:
            raise CheckpointError(
                f"{key}: its state {name} is not in the checkpoint, which has "
                f"{', '.join(found) or 'no state of it'}; load without optimizer= to keep the "
                "states that the optimizer has, or pass states=False"
            )
        if name not in own:
            raise CheckpointError(
                f"{key}: the checkpoint has its state {name}, which the job's optimizer does not "
                f"have (it has {', '.join(own) or 'no state'}); use the optimizer that the "
                "checkpoint was saved with, or states=False"
            )
    for name, tensor in own.items():
        whole = [((0,) * tensor.dim(), tensor.detach())]
        _plan_blocks(work, found[name], key, tuple(tensor.shape), whole)


def _made_for(optimizer: Any, parameter: Any, found: Mapping[str, Entry]) -> dict[str, Any]:
    """Returns new states of a weight; as in the checkpoint if the optimizer can't tell."""
    try:
        return new_states(optimizer, parameter)
    except TableStateError:
        # torch keeps step counters on the CPU.
        devices = {name: "cpu" if name == STEP else parameter.device for name in found}
        return {
            name: torch.zeros(entry.size, dtype=entry.dtype, device=devices[name])
            for name, entry in found.items()
        }


def _report(work: _Work, job: Any, path: str) -> Loaded:
    gathered: list[Any] = [None] * job._env.world_size
    own = (work.states, sorted(work.averaged), sorted(work.entries), work.without_states)
    dist.all_gather_object(gathered, own, group=job._env.process_group)
    used = {key for _, _, keys, _ in gathered for key in keys}
    return Loaded(
        path=path,
        tables=tuple(
            move._replace(states=tuple(dict.fromkeys(_all(gathered, move.table))))
            for move in work.moves
        ),
        averaged=tuple(sorted({key for _, averaged, _, _ in gathered for key in averaged})),
        not_loaded=tuple(key for key in work.checkpoint.entries if key not in used),
        without_states=tuple(dict.fromkeys(key for *_, without in gathered for key in without)),
    )


def _all(gathered: list[Any], key: str) -> Iterator[str]:
    for states, *_ in gathered:
        yield from states.get(key, ())
