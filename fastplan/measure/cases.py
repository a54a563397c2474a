"""The micro-benchmarks of a calibration, and the bytes that TorchRec's formulas count for each.

TorchRec's times are bytes / bandwidth. `counted` are the bytes, so the constant that fits a
benchmark is `counted` / measured time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

from fastplan.engine.solve import estimate
from fastplan.measure.settings import MeasureError
from fastplan.measure.statistics import FEWEST_POINTS
from fastplan.model.vocabulary import SHARDING_TYPES
from fastplan.spec.hardware import find_hardware
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, TableSpec, TopologySpec
from fastplan.spec.stock import DTYPE_SIZES

LOOKUP = "lookup"
COPY = "copy"  # within device memory
HOST_COPY = "host_copy"  # from host to device
COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
ROWWISE_ADAGRAD, ADAM = "rowwise_adagrad", "adam"
HOST, WORLD = "host", "world"  # the ranks that take part

KERNELS = {"cpu": ("fused",), "cuda": ("fused", "fused_uvm", "fused_uvm_caching")}

_MOST_ROWS = 1_000_000
_TABLES = ((1, False), (4, False), (1, True))  # the number in one lookup, and whether weighted
_LARGEST_BUFFER = 1 << 28
_BUFFERS = 8
_SAMPLED = 4  # dims and poolings at most
_SPAN = 16  # the least factor between the sizes of buffers
# Sizes that are mostly latency, which the hardware costs have and TorchRec's formulas don't.
_SMALL_BUFFERS = (1 << 10, 1 << 12, 1 << 14, 1 << 16)
_SMALL_BATCHES = (1, 16)  # of one rank


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
    optimizer: str = ROWWISE_ADAGRAD
    extra: bool = False  # for the hardware costs: TorchRec's constants are fitted without it

    def json(self) -> dict[str, Any]:
        """Returns the case as JSON."""
        return asdict(self)


class Sizes(NamedTuple):
    """The sizes to benchmark. Constants without latencies fit only some sizes.

    Attributes:
        batch_sizes: Of one rank.
        dims: Dimensions of tables.
        poolings: Pooling factors.
        rows: Rows of a table; small tables stay in caches.
        buffers: Bytes of the smallest and the largest buffer.
    """

    batch_sizes: tuple[int, ...]
    dims: tuple[int, ...]
    poolings: tuple[int, ...]
    rows: int
    buffers: tuple[int, int]


DEFAULT_SIZES = {
    "cpu": Sizes((128, 512), (32, 64, 128), (1, 8, 32), 50_000, (1 << 19, 1 << 24)),
    "cuda": Sizes((512, 4096), (32, 64, 128, 256), (1, 8, 64), 1_000_000, (1 << 21, 1 << 28)),
}


def sizes_of(spec: ModelSpec, ranks: int) -> Sizes:
    """Returns the sizes of a model on this number of ranks.

    Args:
        spec: The model.
        ranks: The number of ranks.
    """
    means = sorted({max(1, round(mean)) for table in spec.tables for mean in table.pooling})
    dims = sorted({table.dim for table in spec.tables})
    outputs = sum(
        table.dim * len(table.pooling) * DTYPE_SIZES[table.dtype] for table in spec.tables
    )
    # A rank's share of the exchange if tables are spread evenly; row-wise tables exchange all.
    even = max(1 << 12, spec.batch_size * outputs)
    smallest = min(even // 2, _LARGEST_BUFFER // _SPAN)
    largest = min(max(even * ranks, smallest * _SPAN), _LARGEST_BUFFER)
    shapes = len(_sample(dims)) * len(_sample(means))
    return Sizes(
        _batch_sizes(spec.batch_size, shapes),
        _sample(dims),
        _sample(means),
        _typical_rows(spec),
        (smallest, largest),
    )


def _batch_sizes(own: int, shapes: int) -> tuple[int, ...]:
    """Returns the model's batch size, and others near it if a fit needs more points."""
    found, factor = [own], 2
    while len(found) * shapes < FEWEST_POINTS:
        found += [max(1, own // factor), own * factor]
        factor *= 2
    return tuple(sorted(set(found)))


def _typical_rows(spec: ModelSpec) -> int:
    """Returns the median rows of tables, weighted by lookups."""
    tables = sorted(spec.tables, key=lambda table: table.rows)
    left = sum(sum(table.pooling) for table in tables) / 2
    for table in tables:
        left -= sum(table.pooling)
        if left <= 0:
            break
    return min(table.rows, _MOST_ROWS)


def _sample(values: list[int]) -> tuple[int, ...]:
    """Returns some of the values, including the smallest and the largest."""
    if len(values) <= _SAMPLED:
        return tuple(values)
    return tuple(values[round(i * (len(values) - 1) / (_SAMPLED - 1))] for i in range(_SAMPLED))


def cases(device: str, ranks: int, ranks_per_host: int, sizes: Sizes) -> list[Case]:
    """Returns all micro-benchmarks for a group.

    Raises:
        MeasureError: The group has only one rank.
    """
    if ranks < 2:
        raise MeasureError("collectives need at least two ranks: use --nproc 2 or more")
    buffers = _geometric_sizes(*sizes.buffers)
    small = [size for size in _SMALL_BUFFERS if size < sizes.buffers[0]]
    found = [Case(kind=COPY, bytes=size, counted=2.0 * size) for size in buffers]
    if device == "cuda":
        found += [Case(kind=HOST_COPY, bytes=size, counted=float(size)) for size in buffers]
    sharing = {HOST: ranks_per_host > 1, WORLD: ranks > ranks_per_host}
    found += [
        Case(kind=kind, scope=scope, bytes=size, counted=float(size), extra=size in small)
        for scope, exchanges in sharing.items()
        for kind in COLLECTIVES
        for size in (*small, *buffers)
        if exchanges
    ]
    return found + _lookups(device, ranks, sizes)


def _geometric_sizes(smallest: int, largest: int) -> list[int]:
    """Returns sizes from one to the other with a constant factor."""
    factor = (largest / smallest) ** (1 / (_BUFFERS - 1))
    return [round(smallest * factor**i) for i in range(_BUFFERS)]


def _lookups(device: str, ranks: int, sizes: Sizes) -> list[Case]:
    def case(kernel: str, batch: int, dim: int, pooling: int, tables: int = 1, **more: Any) -> Case:
        counted = _counted(dim, pooling, batch, ranks, more.get("weighted", False))
        return Case(
            kind=LOOKUP,
            counted=tables * counted,
            kernel=kernel,
            tables=tables,
            rows=sizes.rows,
            dim=dim,
            pooling=pooling,
            samples=batch * ranks,
            **more,
        )

    found = []
    for kernel in KERNELS[device]:
        found += [
            case(kernel, batch, dim, pooling, tables, weighted=weighted)
            for batch, dim, pooling, (tables, weighted) in product(
                sizes.batch_sizes, sizes.dims, sizes.poolings, _TABLES
            )
        ]
        found += [
            case(kernel, batch, sizes.dims[0], 1, extra=True)
            for batch in _SMALL_BATCHES
            if batch < sizes.batch_sizes[0]
        ]
        if kernel == "fused_uvm_caching":
            # Row-wise Adagrad's state is 4 bytes a row, so its time is like that of an id.
            most = sizes.batch_sizes[-1], sizes.poolings[-1]
            found += [
                case(kernel, most[0], dim, most[1], optimizer=ADAM, extra=True)
                for dim in sizes.dims
            ]
    return found


def _counted(dim: int, pooling: int, batch: int, ranks: int, weighted: bool) -> float:
    """Returns TorchRec's bytes for a table-wise lookup: its estimate times its bandwidth."""
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
