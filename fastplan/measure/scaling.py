"""Scales tables down to the memory of the devices: divides rows, and splits shards as before.

Costs depend on batches and dimensions, and on rows only through caches, so a scaled model is still
useful. Every figure must state the factor.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastplan.measure.settings import LaunchSettings, MeasureError
from fastplan.model.cuts import Cut, block_shards, blocks_in, copy_shards, cut_of, runs_of
from fastplan.model.plan import COLUMNS, RANK, ROWS, Layout, TableLayout
from fastplan.model.units import format_size
from fastplan.spec.model import ModelSpec, TableSpec, replace
from fastplan.spec.stock import DTYPE_SIZES
from fastplan.spec.stock_rules import optimizer_multiplier

FEWEST_ROWS = 1000  # tables are not scaled below this

_MOST = 1 << 24
_OF_HOST = 0.6  # of the free bytes: workers and inputs need some too
_OF_DEVICE = 0.8
_ON_HOST = ("fused_uvm", "fused_uvm_caching")


def scaled_rows(rows: int, factor: int) -> int:
    """Returns the rows of a table that is scaled down by a factor."""
    return max(min(rows, FEWEST_ROWS), -(-rows // factor))


def scaled_spec(spec: ModelSpec, factor: int) -> ModelSpec:
    """Returns the spec with rows divided by a factor."""
    tables = tuple(replace(table, rows=scaled_rows(table.rows, factor)) for table in spec.tables)
    return replace(spec, tables=tables)


def scaled_layout(layout: Layout, spec: ModelSpec, ranks: int) -> Layout:
    """Returns the layout for the rows of a spec, split as before.

    Raises:
        MeasureError: A table is split unevenly.
    """
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
            f"table {layout.name}: its rows are split unevenly and can't be scaled down; "
            "remove --scale-rows"
        )
    scaled = Cut(_even(table.rows, blocks_in(cut.rows)), cut.columns)
    return layout._replace(shape=shape, shards=block_shards(scaled, layout.shards[:, RANK]))


def _even(rows: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Splits rows as TorchRec does: all blocks have the same size, except the last ones."""
    size = -(-rows // blocks)
    return runs_of(max(0, min(size, rows - i * size)) for i in range(blocks))


def rank_bytes(layout: Layout, spec: ModelSpec, ranks: int) -> tuple[list[int], list[int]]:
    """Returns the bytes of weights, gradients and optimizer states by rank: on device, on host."""
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


class MemoryLimit:
    """The memory limit for plans: a share of the free bytes of a host, and of a device if any.

    Args:
        host: Free bytes of the host.
        device: Free bytes of each device; None on CPUs.
    """

    def __init__(self, host: int, device: int | None) -> None:
        self.host = int(_OF_HOST * host)
        self.device = None if device is None else int(_OF_DEVICE * device)

    def shortage(self, layout: Layout, spec: ModelSpec, group: LaunchSettings) -> str | None:
        """Returns what does not fit, as text; None if everything fits."""
        on_device, on_host = rank_bytes(layout, spec, group.ranks)
        if self.device is None:
            on_host = [a + b for a, b in zip(on_device, on_host, strict=True)]
        elif max(on_device) > self.device:
            rank = on_device.index(max(on_device))
            return (
                f"rank {rank} needs {format_size(max(on_device))} of device memory for tables, "
                f"but the limit is {format_size(self.device)}"
            )
        local = group.ranks_per_machine
        hosts = [sum(on_host[i : i + local]) for i in range(0, group.ranks, local)]
        if max(hosts) > self.host:
            return (
                f"the ranks of a host need {format_size(max(hosts))} for tables, but the limit is "
                f" {format_size(self.host)}"
            )
        return None


def smallest_factor(
    layouts: list[Layout], spec: ModelSpec, group: LaunchSettings, room: MemoryLimit
) -> int:
    """Returns the smallest power of two with which all plans fit.

    Raises:
        MeasureError: The plans don't fit with any factor.
    """
    factor = 1
    while factor <= _MOST:
        scaled = scaled_spec(spec, factor)
        if not any(
            room.shortage(scaled_layout(layout, scaled, group.ranks), scaled, group)
            for layout in layouts
        ):
            return factor
        factor *= 2
    raise MeasureError("the tables don't fit with any --scale-rows")


def free_host_memory() -> int:
    """Returns the bytes that processes of this host can still use, within its control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


def host_memory() -> int:
    """Returns the bytes of this host's memory."""
    import psutil

    return int(psutil.virtual_memory().total)
