"""What ranks hold, as columns for the native core."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastplan.core.replan import NOT_HELD, Held
from fastplan.plans.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Plan, TableLayout
from fastplan.plans.shards import copy_shards
from fastplan.spec.request import Table
from fastplan.spec.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX

_NOTHING = np.empty((0, 5), np.int64)

Key = tuple[str, str]  # module path and name of a table


def by_key(plan: Plan) -> dict[Key, TableLayout]:
    """The plan's tables by path and name."""
    return {(table.path, table.name): table for table in plan.layout.tables}


def held_columns(tables: tuple[Table, ...], before: Mapping[Key, TableLayout]) -> Held:
    """What the old plan's ranks, under their new numbers, hold of a request's tables."""
    old = [before.get((table.path, table.name)) for table in tables]
    shards = [_shards(table, each) for table, each in zip(tables, old, strict=True)]
    every = np.concatenate([_NOTHING, *shards])
    kinds = [(each and each.sharding_type, each and each.kernel) for each in old]
    return Held(
        table_held_begin=np.cumsum([0, *map(len, shards)], dtype=np.int64),
        table_held_type=np.array(
            [SHARDING_TYPE_INDEX.get(kind or "", NOT_HELD) for kind, _ in kinds], np.uint8
        ),
        table_held_kernel=np.array(
            [KERNEL_INDEX.get(kernel or "", NOT_HELD) for _, kernel in kinds], np.uint8
        ),
        held_row=every[:, ROW].copy(),
        held_column=every[:, COLUMN].copy(),
        held_rows=every[:, ROWS].copy(),
        held_columns=every[:, COLUMNS].copy(),
        held_rank=every[:, RANK].copy(),
        table_rows=np.array([table.rows for table in tables], np.int64),
        table_dim=np.array([table.dim for table in tables], np.int64),
        table_element_size=np.array([table.element_size for table in tables], np.int64),
        table_state=np.array([table.optimizer_multiplier for table in tables], np.float64),
    )


def _shards(
    table: Table, old: TableLayout | None
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if old is None:
        return _NOTHING
    if old.shape is None:
        # A plan does not tell the shape of copies: they are taken for the table as it is.
        return copy_shards((table.rows, table.dim), old.shards[:, RANK])
    return old.shards
