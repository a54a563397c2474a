"""The micro-benchmarks of a calibration, and what TorchRec's formulas count for each.

TorchRec's times are bytes over a bandwidth: `counted` are the bytes, so that the constant that fits
a benchmark is `counted` over the time measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

from fastplan.engine.solve import estimate
from fastplan.measure.fit import FEWEST_POINTS
from fastplan.measure.settings import MeasureError
from fastplan.model.vocabulary import SHARDING_TYPES
from fastplan.spec.hardware import find_hardware
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, TableSpec, TopologySpec
from fastplan.spec.stock import DTYPE_SIZES

LOOKUP = "lookup"
COPY = "copy"  # within device memory
HOST_COPY = "host_copy"  # from host to device
COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
HOST, WORLD = "host", "world"  # who takes part

KERNELS = {"cpu": ("fused",), "cuda": ("fused", "fused_uvm", "fused_uvm_caching")}

_MOST_ROWS = 1_000_000
_TABLES = ((1, False), (4, False), (1, True))  # how many in one lookup, and whether weighted
_LARGEST_BUFFER = 1 << 28
_BUFFERS = 8
_SPAN = 16  # of the buffers, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One micro-benchmark, on all ranks at once."""

    kind: str  # LOOKUP, COPY, HOST_COPY or one of COLLECTIVES
    counted: float  # bytes, as TorchRec's formulas count them
    scope: str = HOST
    bytes: int = 0  # of the buffer, for all but lookups
    kernel: str = "fused"
    tables: int = 0  # and all below for lookups
    rows: int = 0
    dim: int = 0
    pooling: int = 0
    samples: int = 0  # of all ranks' batches
    weighted: bool = False

    def json(self) -> dict[str, Any]:
        return asdict(self)


class Sizes(NamedTuple):
    """What is benchmarked. Constants without latencies fit some sizes only, so these matter."""

    batch_sizes: tuple[int, ...]  # of one rank
    dims: tuple[int, ...]
    poolings: tuple[int, ...]
    rows: int  # of a table; small ones stay in caches
    buffers: tuple[int, int]  # bytes of the smallest and the largest


DEFAULT_SIZES = {
    "cpu": Sizes((128, 512), (32, 64, 128), (1, 8, 32), 50_000, (1 << 19, 1 << 24)),
    "cuda": Sizes((512, 4096), (32, 64, 128, 256), (1, 8, 64), 1_000_000, (1 << 21, 1 << 28)),
}


def sizes_of(spec: ModelSpec, ranks: int) -> Sizes:
    """Sizes as a model has them on so many ranks."""
    means = sorted({max(1, round(mean)) for table in spec.tables for mean in table.pooling})
    dims = sorted({table.dim for table in spec.tables})
    outputs = sum(
        table.dim * len(table.pooling) * DTYPE_SIZES[table.dtype] for table in spec.tables
    )
    # A rank's part of the exchange where tables are spread evenly; row-wise ones take all of it.
    even = max(1 << 12, spec.batch_size * outputs)
    smallest = min(even // 2, _LARGEST_BUFFER // _SPAN)
    largest = min(max(even * ranks, smallest * _SPAN), _LARGEST_BUFFER)
    shapes = len(_few(dims)) * len(_few(means))
    return Sizes(
        _batch_sizes(spec.batch_size, shapes),
        _few(dims),
        _few(means),
        _typical_rows(spec),
        (smallest, largest),
    )


def _batch_sizes(own: int, shapes: int) -> tuple[int, ...]:
    """The model's, and as many around it as a model of few shapes needs for a fit."""
    found, factor = [own], 2
    while len(found) * shapes < FEWEST_POINTS:
        found += [max(1, own // factor), own * factor]
        factor *= 2
    return tuple(sorted(set(found)))


def _typical_rows(spec: ModelSpec) -> int:
    """Rows of the table in which half of the lookups are in larger ones."""
    tables = sorted(spec.tables, key=lambda table: table.rows)
    left = sum(sum(table.pooling) for table in tables) / 2
    for table in tables:
        left -= sum(table.pooling)
        if left <= 0:
            break
    return min(table.rows, _MOST_ROWS)


def _few(values: list[int], most: int = 4) -> tuple[int, ...]:
    """Some of the values, the smallest and the largest among them."""
    if len(values) <= most:
        return tuple(values)
    return tuple(values[round(i * (len(values) - 1) / (most - 1))] for i in range(most))


def cases(device: str, ranks: int, ranks_per_host: int, sizes: Sizes) -> list[Case]:
    """All micro-benchmarks for such a group."""
    if ranks < 2:
        raise MeasureError("collectives need two ranks or more: give --nproc 2 at least")
    buffers = _between(*sizes.buffers)
    found = [Case(kind=COPY, bytes=size, counted=2.0 * size) for size in buffers]
    if device == "cuda":
        found += [Case(kind=HOST_COPY, bytes=size, counted=float(size)) for size in buffers]
    sharing = {HOST: ranks_per_host > 1, WORLD: ranks > ranks_per_host}
    found += [
        Case(kind=kind, scope=scope, bytes=size, counted=float(size))
        for scope, exchanges in sharing.items()
        for kind in COLLECTIVES
        for size in buffers
        if exchanges
    ]
    return found + _lookups(device, ranks, sizes)


def _between(smallest: int, largest: int) -> list[int]:
    """Sizes from one to the other, each larger than the one before by the same factor."""
    factor = (largest / smallest) ** (1 / (_BUFFERS - 1))
    return [round(smallest * factor**i) for i in range(_BUFFERS)]


def _lookups(device: str, ranks: int, sizes: Sizes) -> list[Case]:
    found = []
    for kernel, batch, dim, pooling, (tables, weighted) in product(
        KERNELS[device], sizes.batch_sizes, sizes.dims, sizes.poolings, _TABLES
    ):
        counted = _counted(dim, pooling, batch, ranks, weighted)
        found.append(
            Case(
                kind=LOOKUP,
                counted=tables * counted,
                kernel=kernel,
                tables=tables,
                rows=sizes.rows,
                dim=dim,
                pooling=pooling,
                samples=batch * ranks,
                weighted=weighted,
            )
        )
    return found


def _counted(dim: int, pooling: int, batch: int, ranks: int, weighted: bool) -> float:
    """What TorchRec counts for a table-wise lookup: its estimate times its bandwidth."""
    spec = ModelSpec(
        name="lookup",
        tables=(
            TableSpec(
                name="t",
                rows=1000,
                dim=dim,
                pooling=(float(pooling),),
                weighted=weighted,
                sharding_types=("table_wise",),
                compute_kernels=("fused",),
            ),
        ),
        batch_size=batch,
        topology=TopologySpec(
            hardware=find_hardware("torchrec-cpu"), world_size=ranks, local_world_size=ranks
        ),
    )
    request = lower(spec).request
    space = estimate(request)
    assert SHARDING_TYPES[space.option_type[0]] == "table_wise"
    return float(space.run_fwd_compute[0]) * request.menus[0][0].bandwidth
