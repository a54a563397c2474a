"""Tables cut down to what the devices hold: rows divided by a factor, shards cut alike.

Costs depend on batches and dimensions, and on rows only through caches, so that a scaled model
still tells something; how much it was scaled belongs to every figure.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastplan.engine.layout import Cut, block_shards, blocks_in, copy_shards, cut_of, runs_of
from fastplan.measure.settings import Group, MeasureError
from fastplan.model.plan import COLUMNS, RANK, ROWS, Layout, TableLayout
from fastplan.model.units import format_size
from fastplan.spec.model import ModelSpec, TableSpec, replace
from fastplan.spec.stock import DTYPE_SIZES, optimizer_multiplier

FEWEST_ROWS = 1000  # tables are not scaled below

_MOST = 1 << 24
_OF_HOST = 0.6  # of what is free: workers and inputs need some, too
_OF_DEVICE = 0.8
_ON_HOST = ("fused_uvm", "fused_uvm_caching")


def scaled_rows(rows: int, factor: int) -> int:
    return max(min(rows, FEWEST_ROWS), -(-rows // factor))


def scaled_spec(spec: ModelSpec, factor: int) -> ModelSpec:
    """The spec with its rows divided."""
    tables = tuple(replace(table, rows=scaled_rows(table.rows, factor)) for table in spec.tables)
    return replace(spec, tables=tables)


def scaled_layout(layout: Layout, spec: ModelSpec, ranks: int) -> Layout:
    """The layout for tables of the spec's rows, cut as before. Raises MeasureError."""
    by_name = {(table.module, table.name): table for table in spec.tables}
    return replace(
        layout,
        tables=tuple(
            _scaled_table(table, by_name[table.path, table.name], ranks) for table in layout.tables
        ),
    )


def _scaled_table(layout: TableLayout, table: TableSpec, ranks: int) -> TableLayout:
    shape = table.rows, table.dim
    if layout.sharding_type == "data_parallel":
        return layout._replace(shape=shape, shards=copy_shards(shape, range(ranks)))
    if layout.shape == shape:
        return layout
    cut = cut_of(layout.shards)
    assert layout.shape is not None
    if cut is None or cut.rows != _even(layout.shape[0], blocks_in(cut.rows)):
        raise MeasureError(
            f"table {layout.name}: its rows are cut unevenly, and can't be scaled down alike; "
            "leave --scale-rows away"
        )
    scaled = Cut(_even(table.rows, blocks_in(cut.rows)), cut.columns)
    return layout._replace(shape=shape, shards=block_shards(scaled, layout.shards[:, RANK]))


def _even(rows: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Rows cut as TorchRec does it: all blocks alike, but for the last ones."""
    size = -(-rows // blocks)
    return runs_of(max(0, min(size, rows - i * size)) for i in range(blocks))


def rank_bytes(layout: Layout, spec: ModelSpec, ranks: int) -> tuple[list[int], list[int]]:
    """Bytes of weights, gradients of copies and optimizer states by rank: on device, on host."""
    by_name = {(table.module, table.name): table for table in spec.tables}
    device, host = np.zeros(ranks), np.zeros(ranks)
    for layout_ in layout.tables:
        table = by_name[layout_.path, layout_.name]
        size = DTYPE_SIZES[table.dtype] * (1 + optimizer_multiplier(table.optimizer, table.dim))
        if layout_.sharding_type == "data_parallel":
            size += DTYPE_SIZES[table.dtype]
        cells = (layout_.shards[:, ROWS] * layout_.shards[:, COLUMNS]).astype(np.float64)
        where = host if layout_.kernel in _ON_HOST else device
        where += np.bincount(layout_.shards[:, RANK], cells * size, ranks)
    return device.astype(np.int64).tolist(), host.astype(np.int64).tolist()


class Room:
    """The memory that plans have: a part of the free bytes of a host, and of a device if any."""

    def __init__(self, host: int, device: int | None) -> None:
        self.host = int(_OF_HOST * host)
        self.device = None if device is None else int(_OF_DEVICE * device)

    def shortage(self, layout: Layout, spec: ModelSpec, group: Group) -> str | None:
        """What does not fit, in words; None if all does."""
        on_device, on_host = rank_bytes(layout, spec, group.ranks)
        if self.device is None:
            on_host = [a + b for a, b in zip(on_device, on_host, strict=True)]
        elif max(on_device) > self.device:
            rank = on_device.index(max(on_device))
            return (
                f"rank {rank} needs {format_size(max(on_device))} of device memory for tables, "
                f"and has room for {format_size(self.device)}"
            )
        local = group.ranks_per_host
        hosts = [sum(on_host[i : i + local]) for i in range(0, group.ranks, local)]
        if max(hosts) > self.host:
            return (
                f"the ranks of a host need {format_size(max(hosts))} for tables, and it has room "
                f"for {format_size(self.host)}"
            )
        return None


def smallest_factor(layouts: list[Layout], spec: ModelSpec, group: Group, room: Room) -> int:
    """The smallest power of two that makes all plans fit. Raises MeasureError if none does."""
    factor = 1
    while factor <= _MOST:
        scaled = scaled_spec(spec, factor)
        if not any(
            room.shortage(scaled_layout(layout, scaled, group.ranks), scaled, group)
            for layout in layouts
        ):
            return factor
        factor *= 2
    raise MeasureError("the tables don't fit however far their rows are scaled down")


def free_host_memory() -> int:
    """Bytes that processes of this host may still take, by the kernel and by its control group."""
    free = _meminfo("MemAvailable")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def host_memory() -> int:
    """Bytes of this host's memory."""
    return _meminfo("MemTotal")


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise MeasureError(f"/proc/meminfo has no {name}")
