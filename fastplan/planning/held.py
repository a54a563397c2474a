"""What ranks hold, as columns for the native core."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.layout import copy_shards
from fastplan.engine.replan import NOT_HELD, Held
from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Plan, Shards, TableLayout
from fastplan.model.request import Table
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX

_NOTHING = np.empty((0, 5), np.int64)

Key = tuple[str, str]  # module path and name of a table

key_of = attrgetter("path", "name")
_kind_of = attrgetter("sharding_type", "kernel")
_NO_KIND = ("", "")


def by_key(plan: Plan) -> dict[Key, TableLayout]:
    """The plan's tables by path and name."""
    return dict(zip(map(key_of, plan.layout.tables), plan.layout.tables, strict=True))


def held_columns(
    tables: tuple[Table, ...], columns: Mapping[str, Any], before: Mapping[Key, TableLayout]
) -> Held:
    """What the old plan's ranks, under their new numbers, hold of a request's tables, which are
    columns too."""
    old = [*map(before.get, map(key_of, tables))]
    shards = [
        _NOTHING if each is None else each.shards if each.shape else _copies(table, each)
        for table, each in zip(tables, old, strict=True)
    ]
    every = np.concatenate([_NOTHING, *shards]).T.copy()
    kinds = [_NO_KIND if each is None else _kind_of(each) for each in old]
    types, kernels = zip(*kinds, strict=True)
    return Held(
        table_held_begin=np.cumsum([0, *map(len, shards)], dtype=np.int64),
        table_held_type=_numbers(SHARDING_TYPE_INDEX, types),
        table_held_kernel=_numbers(KERNEL_INDEX, kernels),
        held_row=every[ROW],
        held_column=every[COLUMN],
        held_rows=every[ROWS],
        held_columns=every[COLUMNS],
        held_rank=every[RANK],
        table_rows=columns["table_rows"],
        table_dim=columns["table_dim"],
        table_element_size=columns["table_element_size"],
        table_state=columns["table_optimizer_multiplier"],
    )


def _numbers(index: Mapping[str, int], names: tuple[str, ...]) -> NDArray[np.uint8]:
    return np.frombuffer(bytes([index.get(name, NOT_HELD) for name in names]), np.uint8)


def _copies(table: Table, old: TableLayout) -> Shards:
    """A plan does not tell the shape of copies: they are taken for the table as it is."""
    return copy_shards((table.rows, table.dim), old.shards[:, RANK])
