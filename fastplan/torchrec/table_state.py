"""The tables of a running job: their weights and every optimizer state, as shards of this rank.

`read_tables` is what checkpoints and live moves stand on. It offers, for each table:

- its key in `state_dict()`, global shape, data type and entry of the plan;
- `weight` and `states`, each a `State` with the shards that this rank holds. A shard has its place
  in the table, (row, column) and (rows, columns), and a tensor that is the job's own memory: what
  is written into it is what the job trains on. Call `finish_writes` after the last write.

A state has one of three kinds, which say what a shard's tensor holds:

- `pointwise`: a number for each weight; the tensor is (rows, columns);
- `rowwise`: a number for each row of *this shard*; the tensor has `rows` numbers. Column shards
  of a table have one such vector each, and the vectors differ: row-wise Adagrad adds up the mean
  squared gradient of the shard's own columns;
- `scalar`: one number, such as a step counter; the tensor has one element.

Names of states are those of torch's optimizers: `sum`, `exp_avg`, `exp_avg_sq`, `step` and so on.
TorchRec's state dicts call the first state of a fused optimizer `momentum1`, and leave out the step
of a fused optimizer, which is `step` here.

Fused kernels keep their states themselves. Tables with dense kernels, which data-parallel tables
are, have an optimizer that the caller holds: its states are read from there by the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torchrec.distributed.embedding_kernel import BaseEmbedding
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ParameterSharding

from fastplan.torchrec.dense_optimizer import TableStateError, reads_step

__all__ = [
    "DATA_PARALLEL",
    "STEP",
    "Kind",
    "Shard",
    "State",
    "Table",
    "TableStateError",
    "dense_states",
    "finish_writes",
    "read_tables",
    "state_kind",
]

Kind = Literal["pointwise", "rowwise", "scalar"]

STEP = "step"
DATA_PARALLEL = "data_parallel"
_HOLDERS = ("embedding_bags", "embeddings")  # of ShardedEmbeddingBagCollection, of ...Collection
# Fused optimizers whose update does not read the step counter, unless they count rows.
_STEPLESS = ("EXACT_SGD", "SGD", "EXACT_ADAGRAD", "EXACT_ROWWISE_ADAGRAD", "LARS_SGD")
_COUNTERS = ("_used_rowwise_adagrad_with_counter", "_used_rowwise_adagrad_with_global_weight_decay")


class Shard(NamedTuple):
    """A part of a table that this rank holds, and its memory.

    Attributes:
        offsets: its first row and column in the table.
        sizes: its rows and columns. A `rowwise` or `scalar` tensor belongs to all these columns.
        tensor: a view of the job's memory.
    """

    offsets: tuple[int, int]
    sizes: tuple[int, int]
    tensor: torch.Tensor


class State(NamedTuple):
    """The weights of a table, or one of its optimizer states.

    Attributes:
        name: `weight`, or the name that torch's optimizers have for the state.
        kind: what a shard's tensor holds, as the module's docstring says.
        shards: the shards of this rank; several if a rank holds several of a table.
        is_used: whether the optimizer's update reads it. False only for step counters.
    """

    name: str
    kind: Kind
    shards: tuple[Shard, ...]
    is_used: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of a sharded model, as this rank sees it.

    Attributes:
        path: the path of its module in the model.
        name: its name there.
        key: its key in `state_dict()`.
        rows: rows of the whole table.
        columns: columns of the whole table.
        dtype: the type of its weights.
        sharding: its entry in the plan.
        parameter: the parameter that optimizers know it by; None if the rank has no shard of it.
        weight: its weights.
        states: its optimizer states by name; those of a dense kernel only if the optimizer was
            given and has made them.
    """

    path: str
    name: str
    key: str
    rows: int
    columns: int
    dtype: torch.dtype
    sharding: ParameterSharding
    parameter: nn.Parameter | None
    weight: State
    states: Mapping[str, State]

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the whole table."""
        return bool(self.sharding.sharding_type == DATA_PARALLEL)

    @property
    def is_fused(self) -> bool:
        """Whether the kernel keeps the optimizer states itself."""
        return bool(self.sharding.compute_kernel != "dense")


def read_tables(job: DistributedModelParallel, optimizer: Any = None) -> dict[str, Table]:
    """Returns the tables of a job by their key in `state_dict()`, in the plan's order.

    All ranks get the same keys. A table without a shard on this rank has no shards and no states.
    Cached rows are flushed to the tables before they are read.

    Args:
        job: the sharded model.
        optimizer: the optimizer of tables with dense kernels: torch's, or a KeyedOptimizer.

    Raises:
        TableStateError: a table's kernel does not hold its weights as tensors.
    """
    found = {}
    for path, module_plan in job.plan.plan.items():
        prefix, holder = _holder(job, path)
        parts = _parts(holder, path)
        for name, sharding in module_plan.items():
            entries = parts.get(name, [])
            table = _table(path, name, prefix, holder, sharding, entries, optimizer)
            found[table.key] = table
    return found


def finish_writes(job: DistributedModelParallel) -> None:
    """Makes kernels use what was written into their tensors: step counters and cached rows."""
    for path in job.plan.plan:
        for kernel in _kernels(_holder(job, path)[1]):
            inner = kernel.emb_module
            if isinstance(getattr(inner, "iter_cpu", None), torch.Tensor):
                inner.iter_cpu.copy_(inner.iter)
            if hasattr(inner, "reset_cache_states"):
                inner.reset_cache_states()


def state_kind(tensor: torch.Tensor, rows: int, columns: int) -> Kind | None:
    """Returns what a state's tensor holds for a shard of this size; None if it is none of these."""
    if tuple(tensor.shape) == (rows, columns):
        return "pointwise"
    if tuple(tensor.shape) in ((rows,), (rows, 1)) and tensor.dim():
        return "rowwise"
    return "scalar" if tensor.numel() == 1 else None


class _Part(NamedTuple):
    """A shard of a table in a kernel."""

    offsets: tuple[int, int]
    sizes: tuple[int, int]
    weight: torch.Tensor
    states: Mapping[str, torch.Tensor]  # of a fused kernel
    uses_step: bool


def _holder(job: DistributedModelParallel, path: str) -> tuple[str, Any]:
    """Returns the module that holds the tables of a plan's module, and the prefix of their keys."""
    for inner, module in job.module.get_submodule(path).named_modules(prefix=path):
        for attribute in _HOLDERS:
            if isinstance(getattr(module, attribute, None), nn.ModuleDict) and hasattr(
                module, "_lookups"
            ):
                return f"{inner}.{attribute}" if inner else attribute, module
    raise TableStateError(
        f"module {path}: no tables found in a {type(job.module.get_submodule(path)).__name__}; "
        "EmbeddingBagCollection and EmbeddingCollection are supported"
    )


def _kernels(holder: Any) -> Iterator[Any]:
    for lookup in holder._lookups:
        for module in lookup.modules():
            if isinstance(module, BaseEmbedding):
                yield module


def _parts(holder: Any, path: str) -> dict[str, list[_Part]]:
    """Returns the shards of a module's tables that this rank holds, by name of table."""
    found: dict[str, list[_Part]] = {}
    for kernel in _kernels(holder):
        inner = kernel.emb_module
        tables = kernel.config.embedding_tables
        if hasattr(kernel, "flush"):
            kernel.flush()
        weights = inner.split_embedding_weights()
        if not (isinstance(weights, list) and len(weights) == len(tables)):
            kernels = sorted({str(table.compute_kernel.value) for table in tables})
            raise TableStateError(
                f"table {path}.{tables[0].name}: kernel {', '.join(kernels)} does not hold its "
                "weights as tensors; choose another kernel in the constraints"
            )
        fused = _fused_states(inner)
        for table, weight, states in zip(tables, weights, fused or [{}] * len(tables), strict=True):
            own = table.local_metadata
            row, column = (0, 0) if own is None else own.shard_offsets
            part = _Part(
                (row, column), tuple(weight.shape), weight.detach(), states, _uses_step(inner)
            )
            found.setdefault(table.name, []).append(part)
    return found


def _fused_states(inner: Any) -> list[dict[str, torch.Tensor]]:
    """Returns the states of a fused kernel for each of its shards; none for a dense kernel."""
    if not hasattr(inner, "get_optimizer_state"):
        return []
    step = {STEP: inner.iter}
    named = inner.get_optimizer_state() or [{} for _ in inner.embedding_specs]
    # `iter` is the same counter, which some optimizers list among their states.
    return [{**{k: v for k, v in own.items() if k != "iter"}, **step} for own in named]


def _uses_step(inner: Any) -> bool:
    optimizer = getattr(getattr(inner, "optimizer", None), "name", "")
    return optimizer not in _STEPLESS or any(getattr(inner, name, False) for name in _COUNTERS)


def _table(
    path: str,
    name: str,
    prefix: str,
    holder: Any,
    sharding: ParameterSharding,
    parts: list[_Part],
    optimizer: Any,
) -> Table:
    rows, columns = holder._name_to_table_size[name]
    config = holder._table_name_to_config[name]
    parameter = getattr(getattr(holder, prefix.rpartition(".")[2])[name], "weight", None)
    weight = State("weight", "pointwise", tuple(Shard(*part[:3]) for part in parts))
    full = f"{path}.{name}" if path else name
    if not parts:
        states = {}
    elif sharding.compute_kernel == "dense":
        own = {} if optimizer is None else optimizer.state.get(parameter) or {}
        is_read = bool(own) and reads_step(optimizer, parameter)
        states = dense_states(full, own, weight.shards, reads_step=is_read)
    else:
        states = _kernel_states(full, parts)
    dtype = parts[0].weight.dtype if parts else _dtype(config)
    return Table(
        path=path,
        name=name,
        key=f"{prefix}.{name}.weight",
        rows=rows,
        columns=columns,
        dtype=dtype,
        sharding=sharding,
        parameter=parameter if parts else None,
        weight=weight,
        states=states,
    )


def _dtype(config: Any) -> torch.dtype:
    from torchrec.modules.embedding_configs import data_type_to_dtype

    return data_type_to_dtype(config.data_type)


def _kernel_states(table: str, parts: list[_Part]) -> dict[str, State]:
    found = {}
    for name in parts[0].states:
        shards = tuple(Shard(part.offsets, part.sizes, part.states[name]) for part in parts)
        kind = "scalar" if name == STEP else _checked_kind(table, name, shards)
        found[name] = State(name, kind, shards, name != STEP or parts[0].uses_step)
    return found


def dense_states(
    table: str, states: Mapping[str, Any], shards: Iterable[Shard], *, reads_step: bool = True
) -> dict[str, State]:
    """Returns the states that an optimizer has for a table with a dense kernel.

    Args:
        table: the table's name, for errors.
        states: the optimizer's states of the table's parameter, which holds the rank's shards one
            below the other.
        shards: the shards of the weights.
        reads_step: whether the optimizer's update reads the step counter.

    Raises:
        TableStateError: a state has another size than the table's weights.
    """
    shards = list(shards)
    found = {}
    for name, tensor in states.items():
        if not isinstance(tensor, torch.Tensor):
            continue  # None, where a state is switched off
        if tensor.numel() == 1 and name == STEP:
            own = tuple(shard._replace(tensor=tensor) for shard in shards)
            found[name] = State(name, "scalar", own, reads_step)
            continue
        heights = [shard.sizes[0] for shard in shards]
        if tensor.dim() == 0 or tensor.shape[0] != sum(heights):
            raise _no_kind(table, name, tensor)
        pieces = tensor.detach().split(heights)
        own = tuple(s._replace(tensor=piece) for s, piece in zip(shards, pieces, strict=True))
        found[name] = State(name, _checked_kind(table, name, own), own)
    return found


def _checked_kind(table: str, name: str, shards: tuple[Shard, ...]) -> Kind:
    kind = state_kind(shards[0].tensor, *shards[0].sizes)
    if kind is None:
        raise _no_kind(table, name, shards[0].tensor)
    return kind


def _no_kind(table: str, name: str, tensor: torch.Tensor) -> TableStateError:
    return TableStateError(
        f"table {table}: state {name} of shape {tuple(tensor.shape)} is neither as large as the "
        "weights, nor a number for each row, nor a single number"
    )
