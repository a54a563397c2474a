"""Sweeps and their cells: models on many clusters, with several batch sizes and precisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING

from fastplan import __version__
from fastplan.model.limits import MOST_RANKS
from fastplan.spec.hardware import Hardware, find_hardware
from fastplan.spec.lower import torchrec_version
from fastplan.spec.model import ModelSpec, TopologySpec
from fastplan.spec.read import on_cluster, with_precision

if TYPE_CHECKING:
    from fastplan.engine.optimize import Optimize

PRECISIONS = ("fp32", "fp16", "bf16")
MIXED = "mixed"
_USUAL_HARDWARE = "torchrec"


class SweepError(ValueError):
    """A sweep can't be run. The message names the field and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep over every combination of its axes.

    For an axis that is omitted, each model's own value applies.

    Args:
        models: The models, with distinct names.
        skus: The hardware, with distinct names.
        world_sizes: Numbers of ranks.
        hosts: Numbers of hosts, instead of `world_sizes`.
        local_world_size: Ranks per host, if not the hardware's.
        batch_sizes: Batch sizes of one rank.
        global_batch: Whether `batch_sizes` are of all ranks together.
        precisions: fp32, fp16 or bf16, for all tables of floating point.
        optimization: How to improve TorchRec's plans; None: not at all.

    Raises:
        SweepError: An axis has an invalid value, or two arguments exclude each other.
    """

    models: tuple[ModelSpec, ...]
    skus: tuple[Hardware, ...] = ()
    world_sizes: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    local_world_size: int | None = None
    batch_sizes: tuple[int, ...] = ()
    global_batch: bool = False
    precisions: tuple[str, ...] = ()
    optimization: Optimize | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise SweepError("`models` must have at least one model")
        if self.hosts and self.world_sizes:
            raise SweepError("`hosts` and `world_sizes` both set the size of clusters: give one")
        if self.global_batch and not self.batch_sizes:
            raise SweepError(
                "`global_batch` needs `batch_sizes`: the batches of all ranks together"
            )
        for axis in ("world_sizes", "hosts", "batch_sizes"):
            if any(value < 1 for value in getattr(self, axis)):
                raise SweepError(f"`{axis}` must be at least 1")
        if self.local_world_size is not None and self.local_world_size < 1:
            raise SweepError("`local_world_size` must be at least 1")
        for precision in self.precisions:
            if precision not in PRECISIONS:
                raise SweepError(
                    f"`precisions` must be of {', '.join(PRECISIONS)}, not {precision!r}"
                )
        _check_names("models", [model.name for model in self.models])
        _check_names("skus", [sku.name for sku in self.skus])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination. `id` depends on everything that affects the result, and on nothing else."""

    id: str
    model: str
    sku: str
    world_size: int
    hosts: int
    local_world_size: int | None  # None: the hardware's default
    batch: int  # as the sweep counts it
    batch_size: int  # per rank
    precision: str  # MIXED if the model's tables differ
    hardware: Hardware | None  # None: the model's own

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.world_size} x {self.sku}, batch {self.batch}, {self.precision}"
        )


def cells(sweep: Sweep, shard: tuple[int, int] = (0, 1)) -> list[Cell]:
    """Returns the cells of a sweep, or of its shard (i, n), in a fixed order.

    Raises:
        SweepError: A shard, size or batch is invalid.
    """
    part, parts = shard
    if not 0 <= part < parts:
        raise SweepError(
            f"`shard` must be 0/{max(parts, 1)} to {max(parts, 1) - 1}/{max(parts, 1)}"
        )
    found = (cell for model in sweep.models for cell in _cells_of(sweep, pinned(model)))
    return list({cell.id: cell for cell in found}.values())[part::parts]


def pinned(model: ModelSpec) -> ModelSpec:
    """Returns the model with TorchRec's version set: workers may have another one installed."""
    return replace(model, torchrec=torchrec_version(model))


def in_precision(model: ModelSpec, precision: str) -> ModelSpec:
    """Returns the model in one of PRECISIONS; for any other value it is unchanged."""
    if precision not in PRECISIONS or precision == precision_of(model):
        return model
    return with_precision(model, precision)


def variant(model: ModelSpec, cell: Cell) -> ModelSpec:
    """Returns the spec of a cell."""
    model = in_precision(model, cell.precision)
    if cell.hardware is not None:
        model = replace(model, topology=TopologySpec(hardware=cell.hardware))
    model = on_cluster(model, world_size=cell.world_size, local_world_size=cell.local_world_size)
    return replace(model, batch_size=cell.batch_size)


def _cells_of(sweep: Sweep, model: ModelSpec) -> Iterator[Cell]:
    # Sources of figures and prices don't change a plan.
    skus: list[Hardware | None] = [
        replace(sku, about="", sources={}, price=None) for sku in sweep.skus
    ]
    text = _text_of(model, with_topology=not sweep.skus)
    axes = product(
        skus or [None],
        sweep.precisions or (precision_of(model),),
        sweep.batch_sizes or (model.batch_size,),
        sweep.hosts or sweep.world_sizes or (_own_size(model),),
    )
    for sku, precision, batch, size in axes:
        usual = _ranks_per_host(sweep, model, sku)
        world = size * usual if sweep.hosts else size
        if world > MOST_RANKS:
            raise SweepError(
                f"`hosts` has {size:,}, which are {world:,} ranks of {usual} per host: at most "
                f"{MOST_RANKS:,} ranks are planned"
            )
        local = sweep.local_world_size and min(sweep.local_world_size, world)
        batch_size = _batch_of_rank(batch, world) if sweep.global_batch else batch
        question = [__version__, text, repr(sku), world, local, batch_size, precision]
        if sweep.optimization is not None:
            question.append(repr(sweep.optimization))
        yield Cell(
            id=blake2b("\n".join(map(str, question)).encode(), digest_size=10).hexdigest(),
            model=model.name,
            sku=_hardware_of(model, sku).name,
            world_size=world,
            hosts=-(-world // min(usual, world)),
            local_world_size=local,
            batch=batch,
            batch_size=batch_size,
            precision=precision,
            hardware=sku,
        )


def precision_of(model: ModelSpec) -> str:
    """Returns the precision of all floating-point tables, or of all tables without these."""
    dtypes = {table.dtype for table in model.tables}
    found = {dtype for dtype in dtypes if dtype.startswith(("fp", "bf"))} or dtypes
    return next(iter(found)) if len(found) == 1 else MIXED


def _text_of(model: ModelSpec, *, with_topology: bool) -> str:
    """Returns the text of the model's spec, without the path of its file."""
    topology = model.topology if with_topology else TopologySpec()
    return repr(replace(model, source="", topology=topology))


def _hardware_of(model: ModelSpec, sku: Hardware | None) -> Hardware:
    return sku or model.topology.hardware or find_hardware(_USUAL_HARDWARE)


def _ranks_per_host(sweep: Sweep, model: ModelSpec, sku: Hardware | None) -> int:
    own = model.topology.local_world_size if sku is None else None
    return sweep.local_world_size or own or _hardware_of(model, sku).ranks_per_host


def _own_size(model: ModelSpec) -> int:
    if model.topology.world_size is None:
        raise SweepError(
            f"model {model.name} has no `topology.world_size`: give `world_sizes` or `hosts`"
        )
    return model.topology.world_size


def _batch_of_rank(batch: int, world_size: int) -> int:
    if batch % world_size:
        raise SweepError(
            f"`batch_sizes`: a global batch of {batch} can't be divided by {world_size} ranks"
        )
    return batch // world_size


def _check_names(axis: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SweepError(f"`{axis}` has two that are called {name!r}: rename one of them")
