"""What ranks hold, as columns for the native core."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fastplan.core.replan import NOT_HELD, Held
from fastplan.plans.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Plan, Shards, TableLayout
from fastplan.plans.shards import copy_shards
from fastplan.spec.request import Table
from fastplan.spec.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX

_NOTHING = np.empty((0, 5), np.int64)

Key = tuple[str, str]  # module path and name of a table

key_of = attrgetter("path", "name")
_facts_of = attrgetter("rows", "dim", "element_size", "optimizer_multiplier")


def by_key(plan: Plan) -> dict[Key, TableLayout]:
    """The plan's tables by path and name."""
    return dict(zip(map(key_of, plan.layout.tables), plan.layout.tables, strict=True))


def held_columns(tables: tuple[Table, ...], before: Mapping[Key, TableLayout]) -> Held:
    """What the old plan's ranks, under their new numbers, hold of a request's tables."""
    old = [*map(before.get, map(key_of, tables))]
    shards = [_shards(table, each) for table, each in zip(tables, old, strict=True)]
    every = np.concatenate([_NOTHING, *shards]).T.copy()
    rows, dim, element_size, state = zip(*map(_facts_of, tables), strict=True)
    return Held(
        table_held_begin=np.cumsum([0, *map(len, shards)], dtype=np.int64),
        table_held_type=_numbers(
            SHARDING_TYPE_INDEX, [each and each.sharding_type for each in old]
        ),
        table_held_kernel=_numbers(KERNEL_INDEX, [each and each.kernel for each in old]),
        held_row=every[ROW],
        held_column=every[COLUMN],
        held_rows=every[ROWS],
        held_columns=every[COLUMNS],
        held_rank=every[RANK],
        table_rows=np.array(rows, np.int64),
        table_dim=np.array(dim, np.int64),
        table_element_size=np.array(element_size, np.int64),
        table_state=np.array(state, np.float64),
    )


def _numbers(index: Mapping[str, int], names: list[str | None]) -> NDArray[np.uint8]:
    return np.array([index.get(name or "", NOT_HELD) for name in names], np.uint8)


def _shards(table: Table, old: TableLayout | None) -> Shards:
    if old is None:
        return _NOTHING
    if old.shape is None:
        # A plan does not tell the shape of copies: they are taken for the table as it is.
        return copy_shards((table.rows, table.dim), old.shards[:, RANK])
    return old.shards
