"""Shards: how options split tables, where each shard starts, and on which rank it is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.cache_sizes import can_resize, resized
from fastplan.engine.problem import Ints, SearchSpace
from fastplan.engine.solve import Options, estimate_columns, menu_columns, request_columns
from fastplan.model.cuts import MOST_SHARDS, Cut, Runs, merged
from fastplan.model.plan import (
    AS_REQUESTED,
    COLUMN,
    COLUMNS,
    RANK,
    ROW,
    ROWS,
    BadRecord,
    Layout,
    PlanRecord,
    Shards,
    TableColumns,
)
from fastplan.model.request import Cluster, MenuItem, Request, Table
from fastplan.model.vocabulary import (
    KERNEL_INDEX,
    KERNELS,
    SHARDING_TYPE_INDEX,
    SHARDING_TYPES,
    UNIFORM_TYPES,
)

# No table is wider; the core splits none that is.
MOST_COLUMNS = 2**20

_DEVICES = {"hbm": "cuda", "cpu": "cpu"}
# By sharding type; np.isin would take longer than all else for a small model.
_IS_WHOLE, _IS_BY_COLUMN = (
    np.array([name in names for name in SHARDING_TYPES])
    for names in (("data_parallel", "table_wise"), ("column_wise", "table_column_wise"))
)
_GRID = SHARDING_TYPE_INDEX["grid_shard"]


def layout_of(
    request: Request,
    cluster: Cluster,
    record: PlanRecord,
    *,
    device: str | None = None,
    most_shards: int | None = None,
    chosen: ChosenSpace | None = None,
) -> Layout:
    """Returns the layout of a record's shards, with tables in the record's order.

    Args:
        request: the request of the record.
        cluster: its cluster.
        record: the plan.
        device: the kind of the ranks' devices; None for the usual one of the request.
        most_shards: the maximum number of shards; MOST_SHARDS by default.
        chosen: the result of `chosen_space` for the record, if it is known.

    Raises:
        BadRecord: the record does not belong to the request, or has too many shards.
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    tables, space = chosen or chosen_space(request, record, most_shards)
    return _layout(request, cluster, record, tables, space, device)


def layout_in(
    request: Request, cluster: Cluster, record: PlanRecord, space: SearchSpace, options: Options
) -> Layout:
    """Returns the layout of a record from options that are estimated already.

    `options` are those of the record, by their numbers in a search space of the request. Caches
    must have the sizes of the request. Raises BadRecord like layout_of().
    """
    _check_columns(request)
    split = split_of(space, options)
    _check_shards(split, MOST_SHARDS)
    tables = tuple([request.tables[number] for number in record.table.tolist()])
    return _layout(request, cluster, record, tables, split, None)


class ChosenSpace(NamedTuple):
    """The space of a record's options, and the tables in its order."""

    tables: tuple[Table, ...]
    space: SearchSpace


class Split(NamedTuple):
    """How options split their tables, one option per table: these columns of a search space."""

    option_type: NDArray[np.uint8]
    option_run_begin: Ints
    run_count: Ints
    run_rows: Ints
    run_cols: Ints


def chosen_runs(space: SearchSpace, options: Options) -> tuple[Ints, Ints]:
    """Returns the runs of the given options, in order, and the number of runs of each option."""
    end = space.option_run_begin[options + 1]
    number = end - space.option_run_begin[options]
    last = np.cumsum(number)
    return np.arange(last[-1]) + np.repeat(end - last, number), number


def split_of(space: SearchSpace, options: Options) -> Split:
    """Returns how some options of a search space split their tables."""
    runs, number = chosen_runs(space, options)
    return Split(
        space.option_type[options],
        np.concatenate([[0], np.cumsum(number)]),
        space.run_count[runs],
        space.run_rows[runs],
        space.run_cols[runs],
    )


_key_of, _shape_of = attrgetter("path", "name"), attrgetter("rows", "dim")


def _layout(
    request: Request,
    cluster: Cluster,
    record: PlanRecord,
    tables: tuple[Table, ...],
    split: SearchSpace | Split,
    device: str | None,
) -> Layout:
    per_table = table_shards(split)
    return Layout(
        tables=TableColumns(
            keys=[*map(_key_of, tables)],
            sharding_types=[SHARDING_TYPES[kind] for kind in record.sharding_type.tolist()],
            kernels=[KERNELS[kernel] for kernel in record.kernel.tolist()],
            shapes=[*map(_shape_of, tables)],
            begin=np.concatenate([[0], np.cumsum(per_table)]),
            shards=placed_shards(
                split,
                np.array([table.dim for table in tables], np.int64),
                shard_ranks(record, per_table, len(cluster.rank_hbm)),
            ),
        ),
        device=device or _DEVICES.get(request.cost.device_kind),
        ranks_per_host=cluster.local_world_size,
    )


def chosen_space(
    request: Request, record: PlanRecord, most_shards: int | None = None
) -> ChosenSpace:
    """Returns the space of a record's options, in its order. Shards don't depend on cache sizes.

    Raises:
        BadRecord: the record does not belong to the request, or has more than `most_shards`
            (MOST_SHARDS).
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    _check_columns(request)
    # The scale-up proposer moves tables that outgrow their cache to the device.
    has_size = ~np.isnan(record.load_factor)
    promoted = has_size & (record.kernel == KERNEL_INDEX["fused"])
    if not has_sizes(request, record):
        kernel = np.where(promoted, KERNEL_INDEX["fused_uvm_caching"], record.kernel)
        factor = np.full(len(record.table), AS_REQUESTED)
        record = replace(record, kernel=kernel, load_factor=factor)
    ordered, items, numbers = _chosen(request, record)
    columns = request_columns(ordered) | menu_columns(tuple((item,) for item in items))
    columns["table_menu"] = np.array(numbers, np.int32)
    space = estimate_columns(ordered, columns)
    _check_shards(space, MOST_SHARDS if most_shards is None else most_shards)
    return ChosenSpace(ordered.tables, space)


def _check_columns(request: Request) -> None:
    for table in request.tables:
        if table.dim > MOST_COLUMNS:
            raise BadRecord(f"table {table.name} has {table.dim} columns, over {MOST_COLUMNS}")


def _check_shards(split: SearchSpace | Split, limit: int) -> None:
    if (shards := int(split.run_count.sum())) > limit:
        raise BadRecord(f"it has {shards} shards, over {limit}")


def cuts_of(
    tables: tuple[Table, ...], space: SearchSpace, numbers: Iterable[int] | None = None
) -> list[Cut | None]:
    """Returns how tables of a chosen space are split, all or those given; None for copies."""
    begin = space.option_run_begin.tolist()
    counts, rows, cols = (
        column.tolist() for column in (space.run_count, space.run_rows, space.run_cols)
    )
    kinds = space.option_type.tolist()
    cuts: list[Cut | None] = []
    for i in range(len(tables)) if numbers is None else numbers:
        kind = kinds[i]
        runs = slice(begin[i], begin[i + 1])
        width = cols[begin[i]]
        columns = 1
        if _IS_BY_COLUMN[kind]:
            columns = counts[begin[i]]
        elif kind == _GRID:
            columns = tables[i].dim // width
        by_column = _first(zip(counts[runs], rows[runs], strict=True), sum(counts[runs]) // columns)
        copies = SHARDING_TYPES[kind] == "data_parallel"
        cuts.append(None if copies else Cut(by_column, ((columns, width),)))
    return cuts


def _first(runs: Iterable[tuple[int, int]], blocks: int) -> Runs:
    """Returns the first `blocks` blocks of the runs."""
    taken = []
    for count, size in runs:
        taken.append((min(count, blocks), size))
        blocks -= taken[-1][0]
    return merged(taken)


def table_shards(space: SearchSpace | Split) -> Ints:
    """Returns the number of shards of each table of a chosen space."""
    found: Ints = np.add.reduceat(space.run_count, space.option_run_begin[:-1])
    return found


def placed_shards(split: SearchSpace | Split, dims: Ints, ranks: Ints) -> Shards:
    """Returns the shards of all tables in one array with contiguous columns.

    Args:
        split: how the tables are split.
        dims: the columns of each table.
        ranks: the rank of each shard.
    """
    per_table = table_shards(split)
    # Shards of a table before the next column of blocks begins.
    per_column = per_table.copy()
    per_column[_IS_BY_COLUMN[split.option_type]] = 1
    grid = np.flatnonzero(split.option_type == _GRID)
    if len(grid):
        per_column[grid] //= dims[grid] // split.run_cols[split.option_run_begin[grid]]
    begin = np.cumsum(per_table) - per_table
    shards = np.empty((int(per_table.sum()), 5), np.int64, order="F")
    shards[:, ROWS] = np.repeat(split.run_rows, split.run_count)
    shards[:, COLUMNS] = np.repeat(split.run_cols, split.run_count)
    shards[:, RANK] = ranks
    column = np.arange(len(shards))
    column -= np.repeat(begin, per_table)
    column //= np.repeat(per_column, per_table)
    shards[:, COLUMN] = column * shards[:, COLUMNS]
    # Rows before a shard, less those before its column of blocks.
    before = np.cumsum(shards[:, ROWS])
    before -= shards[:, ROWS]
    first = column
    first *= np.repeat(per_column, per_table)
    first += np.repeat(begin, per_table)
    shards[:, ROW] = before
    shards[:, ROW] -= before[first]
    shards[np.repeat(_IS_WHOLE[split.option_type], per_table), ROW] = 0
    return shards


_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


def narrowed(request: Request, record: PlanRecord) -> Request:
    """Returns the request with only a record's options, one per table, in the record's order.

    Raises:
        BadRecord: the record does not belong to the request.
    """
    ordered, items, numbers = _chosen(request, record)
    tables = tuple(map(Table.with_menu, ordered.tables, numbers))
    return replace(ordered, tables=tables, menus=tuple((item,) for item in items))


def _chosen(request: Request, record: PlanRecord) -> tuple[Request, list[MenuItem], list[int]]:
    """Returns the request in the record's order, its options, and the number of each table's.

    Raises:
        BadRecord: the record does not belong to the request.
    """
    if len(record.table) != len(request.tables):
        raise BadRecord(f"it has {len(record.table)} tables, the model {len(request.tables)}")
    if not has_sizes(request, record):
        # Their bandwidths and miss rates came from objects that a request does not contain.
        raise BadRecord("the search resized caches, and their costs are not part of the request")
    order = record.table.tolist()
    tables = [request.tables[number] for number in order]
    if not np.isnan(record.load_factor).all():
        for place, factor in enumerate(record.load_factor.tolist()):
            if not math.isnan(factor):
                tables[place] = resized(tables[place], factor)
    asked = [{(item.sharding_type, item.kernel): item for item in menu} for menu in request.menus]
    items: dict[MenuItem, int] = {}
    known: dict[tuple[int, int, int], int] = {}  # by menu, sharding type and kernel
    numbers = []
    for table, kind, kernel in zip(
        tables, record.sharding_type.tolist(), record.kernel.tolist(), strict=True
    ):
        option = table.menu, kind, kernel
        if option not in known:
            choice = SHARDING_TYPES[kind], KERNELS[kernel]
            item = asked[table.menu].get(choice)
            if item is None:
                raise BadRecord(f"table {table.name} does not allow ({choice[0]}, {choice[1]})")
            known[option] = items.setdefault(item, len(items))
        numbers.append(known[option])
    hardware = request.hardware and request.hardware.for_tables(order)
    return replace(request, tables=tuple(tables), hardware=hardware), [*items], numbers


def has_sizes(request: Request, record: PlanRecord) -> bool:
    """Returns whether the request has the costs of a record's caches, whatever their sizes."""
    cached = KERNEL_INDEX["fused_uvm_caching"]
    return all(
        record.kernel[i] == cached
        and 0 < record.load_factor[i] < 1
        and can_resize(request, int(record.table[i]))
        for i in np.flatnonzero(~np.isnan(record.load_factor)).tolist()
    )


def shard_ranks(record: PlanRecord, table_shards: Ints, ranks: int) -> Ints:
    """Returns the rank of every shard in plan order: uniform ones in turn, others as recorded.

    Args:
        record: the plan.
        table_shards: the number of shards by plan position.
        ranks: the number of ranks.

    Raises:
        BadRecord: ranks are missing, left over or unknown.
    """
    uniform = _UNIFORM[record.sharding_type]
    placed = int(table_shards[~uniform].sum())
    if placed != len(record.ranks):
        raise BadRecord(f"it has {len(record.ranks)} ranks for {placed} shards")
    found = all_ranks(record.sharding_type, table_shards, record.ranks)
    if len(found) and (found.max() >= ranks or found.min() < 0):
        raise BadRecord(f"a shard is on rank {int(found.max())} of {ranks}")
    return found


def all_ranks(sharding_type: NDArray[np.uint8], table_shards: Ints, ranks: Any) -> Ints:
    """Returns the rank of every shard: uniform ones in turn, the others from `ranks`, in order."""
    shard_uniform = np.repeat(_UNIFORM[sharding_type], table_shards)
    begin = np.cumsum(table_shards) - table_shards
    found: Ints = np.arange(len(shard_uniform)) - np.repeat(begin, table_shards)
    found[~shard_uniform] = ranks
    return found
