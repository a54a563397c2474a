"""The shards that ranks hold, as columns for the native core."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.layout import chosen_space
from fastplan.engine.problem import Floats, Problem, SearchSpace
from fastplan.engine.replan import NOT_HELD, Held
from fastplan.engine.solve import estimate_columns, menu_columns
from fastplan.model.plan import (
    COLUMN,
    COLUMNS,
    RANK,
    ROW,
    ROWS,
    Basis,
    Plan,
    TableColumns,
    TableLayout,
)
from fastplan.model.request import Request, Table
from fastplan.model.vocabulary import KERNEL_INDEX, KERNELS, SHARDING_TYPE_INDEX, SHARDING_TYPES

Key = tuple[str, str]  # module path and name of a table

key_of = attrgetter("path", "name")


def by_key(plan: Plan) -> dict[Key, TableLayout]:
    """Returns the plan's tables by path and name."""
    return dict(zip(map(key_of, plan.layout.tables), plan.layout.tables, strict=True))


def held_columns(
    tables: tuple[Table, ...], columns: Mapping[str, Any], before: Sequence[TableLayout]
) -> Held:
    """Returns the shards of a request's tables that ranks hold, as columns.

    Args:
        tables: the request's tables.
        columns: their columns.
        before: the tables of the previous plan, with the new numbers of its ranks.
    """
    old = TableColumns.of(before)
    # A table that is not in the plan has number -1: the last entry of each column below.
    number = dict(zip(old.keys, range(len(old)), strict=True))
    at = np.array([*map(number.get, map(key_of, tables), repeat(-1))], np.int64)
    count = np.append(np.diff(old.begin), 0)[at]
    begin = np.concatenate([[0], np.cumsum(count)])
    held = np.repeat(np.append(old.begin[:-1], 0)[at] - begin[:-1], count) + np.arange(begin[-1])
    shards = old.shards[held].T.copy()
    # Copies get the shape of the request's table, because a plan has no shape for them.
    if not all(old.shapes):
        has_shape = np.array([shape is not None for shape in old.shapes] + [True])[at]
        copies = np.flatnonzero(np.repeat(~has_shape, count))
        owner = np.repeat(np.arange(len(tables)), count)[copies]
        shards[ROW, copies] = shards[COLUMN, copies] = 0
        shards[ROWS, copies] = columns["table_rows"][owner]
        shards[COLUMNS, copies] = columns["table_dim"][owner]
    return Held(
        table_held_begin=begin,
        table_held_type=_indices(SHARDING_TYPE_INDEX, old.sharding_types)[at],
        table_held_kernel=_indices(KERNEL_INDEX, old.kernels)[at],
        held_row=shards[ROW],
        held_column=shards[COLUMN],
        held_rows=shards[ROWS],
        held_columns=shards[COLUMNS],
        held_rank=shards[RANK],
        table_rows=columns["table_rows"],
        table_dim=columns["table_dim"],
        table_element_size=columns["table_element_size"],
        table_state=columns["table_optimizer_multiplier"],
    )


def _indices(index: Mapping[str, int], names: list[str]) -> NDArray[np.uint8]:
    """Returns the numbers of names, and NOT_HELD as the last one."""
    return np.frombuffer(bytes([*map(index.get, names, repeat(NOT_HELD)), NOT_HELD]), np.uint8)


_PARTS = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute")


def kept_space(
    request: Request, columns: dict[str, Any], held: Held, changed: Collection[int]
) -> SearchSpace:
    """Returns the search space with only the options that tables have now.

    Tables that are `changed`, or whose option is no longer allowed, keep every option.

    Raises OutOfRange and CostError like estimate().
    """
    count = len(request.menus)
    alone = tuple((item,) for menu in request.menus for item in menu)
    # By menu, sharding type and kernel: the menu of that option alone, or the whole menu.
    menu_of = np.empty((count, len(SHARDING_TYPES), len(KERNELS)), np.int32)
    menu_of[:] = np.arange(count)[:, None, None]
    number = count + len(alone)
    for menu, items in reversed([*enumerate(request.menus)]):
        for item in reversed(items):
            number -= 1
            kind, kernel = SHARDING_TYPE_INDEX[item.sharding_type], KERNEL_INDEX[item.kernel]
            menu_of[menu, kind, kernel] = number
    stays = (held.table_held_type != NOT_HELD) & (held.table_held_kernel != NOT_HELD)
    stays[[*changed]] = False
    menus = columns["table_menu"].copy()
    menus[stays] = menu_of[menus[stays], held.table_held_type[stays], held.table_held_kernel[stays]]
    narrowed = {**columns, "table_menu": menus, **menu_columns(request.menus + alone)}
    return estimate_columns(request, narrowed)


def mean_rank_cost(basis: Basis) -> float:
    """Returns the mean cost of ranks in the plan of a basis."""
    _, space = chosen_space(basis.request, basis.record)
    return float(_option_costs(space).sum()) / len(basis.cluster.rank_hbm)


def balanced_rank_cost(problem: Problem) -> float:
    """Returns the cost of a rank if all tables have their cheapest option and perfect balance."""
    space = problem.space
    cheapest = np.minimum.reduceat(_option_costs(space), space.table_option_begin[:-1])
    return float(cheapest.sum()) / len(problem.cluster.rank_hbm)


def _option_costs(space: SearchSpace) -> Floats:
    """Returns the cost of each option: the sum over its shards."""
    each = sum((getattr(space, f"run_{part}") for part in _PARTS), np.zeros(len(space.run_count)))
    costs: Floats = np.add.reduceat(each * space.run_count, space.option_run_begin[:-1])
    return costs


LOST = -1

RankMap = tuple[int, ...]  # old rank -> new rank, or LOST


def rank_map(given: Sequence[int | None] | None, old: int, new: int) -> RankMap:
    """Returns the new rank of each of `old` ranks, or LOST.

    Args:
        given: the new rank of each old one, None or -1 for a lost rank. Without it, ranks keep
            their numbers, and those beyond `new` are lost.
        old: the number of ranks of the previous plan.
        new: the number of ranks now.

    Raises:
        ValueError: the mapping is invalid. The message names the rank.
    """
    if given is None:
        return tuple(rank if rank < new else LOST for rank in range(old))
    if len(given) != old:
        raise ValueError(
            f"`rank_map` must have a new rank for each of the {old} old ones, not {len(given)}"
        )
    found = tuple(LOST if rank is None else int(rank) for rank in given)
    seen: dict[int, int] = {}
    for before, after in enumerate(found):
        if after == LOST:
            continue
        if not 0 <= after < new:
            raise ValueError(f"`rank_map` sends rank {before} to {after}; there are {new} ranks")
        if after in seen:
            raise ValueError(f"`rank_map` sends ranks {seen[after]} and {before} to {after}")
        seen[after] = before
    return found


def renumbered(plan: Plan, ranks: RankMap, new: int) -> Plan:
    """Returns the plan with new rank numbers. Lost ranks get numbers beyond the `new` ranks.

    The result has no basis, because a basis refers to the old ranks.
    """
    numbers = np.array(ranks, np.int64)
    lost = np.flatnonzero(numbers == LOST)
    numbers[lost] = new + np.arange(len(lost))
    if np.array_equal(numbers, np.arange(len(numbers))):
        return plan
    tables = TableColumns.of(plan.layout.tables)
    shards = tables.shards.copy()
    shards[:, RANK] = numbers[shards[:, RANK]]
    layout = replace(plan.layout, tables=replace(tables, shards=shards))
    return replace(plan, layout=layout, basis=None)
