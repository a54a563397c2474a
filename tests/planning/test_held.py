"""The shards that ranks hold, as columns."""

import pickle

import numpy as np
import pytest

from fastplan.engine.replan import NOT_HELD
from fastplan.engine.solve import request_columns
from fastplan.model.plan import Layout, Plan, TableColumns, TableLayout
from fastplan.planning.held import held_columns, renumbered
from tests.problems import ALL_TYPES, request, table

SHARDS = {
    "whole": [[0, 0, 100, 8, 3]],
    "copies": [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    "split": [[0, 0, 60, 8, 1], [60, 0, 40, 8, 0]],
}
SHAPES = {"whole": (100, 8), "copies": None, "split": (100, 8)}


def layouts():
    return tuple(
        TableLayout(
            "sparse", name, "row_wise", "fused", SHAPES[name], np.array(lines), {"name": name}
        )
        for name, lines in SHARDS.items()
    )


def held_of(names, before):
    asked = request([table(name, 300, 16) for name in names], 4, 4, ALL_TYPES)
    return held_columns(asked.tables, request_columns(asked), before)


def shards_of(held, at):
    begin, end = held.table_held_begin[at : at + 2]
    columns = held.held_row, held.held_column, held.held_rows, held.held_columns, held.held_rank
    return [[int(column[i]) for column in columns] for i in range(begin, end)]


@pytest.mark.parametrize("columns", [False, True], ids=["tables", "columns"])
def test_tables_are_found_by_name_and_new_ones_hold_nothing(columns):
    before = TableColumns.of(layouts()) if columns else layouts()
    held = held_of(["split", "new", "copies", "whole"], before)
    assert shards_of(held, 0) == SHARDS["split"]
    assert shards_of(held, 1) == []
    assert shards_of(held, 2) == [[0, 0, 300, 16, 0], [0, 0, 300, 16, 1]]
    assert shards_of(held, 3) == SHARDS["whole"]
    assert (held.table_held_type == NOT_HELD).tolist() == [False, True, False, False]
    assert (held.table_held_kernel == NOT_HELD).tolist() == [False, True, False, False]


@pytest.mark.parametrize("before", [(), TableColumns.of(())], ids=["tables", "columns"])
def test_a_plan_without_tables_holds_nothing(before):
    held = held_of(["new", "other"], before)
    assert held.table_held_begin.tolist() == [0, 0, 0]
    assert (held.table_held_type == NOT_HELD).all()


def test_columns_are_the_tables_that_they_were_made_of():
    columns = TableColumns.of(layouts())
    again = pickle.loads(pickle.dumps(columns))
    for found in (columns, again, columns[:], [columns[i - 3] for i in range(3)]):
        assert len(found) == 3
        for one, other in zip(found, layouts(), strict=True):
            assert one._replace(shards=None) == other._replace(shards=None)
            assert np.array_equal(one.shards, other.shards)
    with pytest.raises(IndexError):
        columns[3]


def test_new_rank_numbers_are_set_in_a_copy():
    plan = Plan(name="x", layout=Layout(tables=layouts()))
    turned = renumbered(plan, (1, 2, 3, 0), 4)
    assert [each.shards[:, 4].tolist() for each in turned.layout.tables] == [[0], [1, 2], [2, 1]]
    assert [each.shards[:, 4].tolist() for each in plan.layout.tables] == [[3], [0, 1], [1, 0]]
    assert (plan.ranks, turned.ranks) == (4, 3)
