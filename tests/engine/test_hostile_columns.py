"""Amounts, shards and sizes whose sums leave 64 bits are refused, not wrapped around."""

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.goals import goal_of
from fastplan.engine.solve import OutOfRange
from fastplan.model.vocabulary import SHARDING_TYPE_INDEX
from tests.engine.test_boundary import LIMITS, REPLAN, held, nothing, of_kind
from tests.problems import small_problem

LARGE = (1 << 53, 1 << 61, (1 << 63) - 1, -1, -(1 << 63))


def row_wise(problem):
    return {"options": of_kind(problem, "row_wise"), "ranks": nothing()}


@pytest.mark.parametrize("value", LARGE[1:])
@pytest.mark.parametrize("minimize", ["memory", "critical_path", "shards"])
@pytest.mark.parametrize("name", ["part_amount", "option_amount"])
def test_amounts_of_a_goal(name, minimize, value):
    problem = small_problem()
    goal = goal_of(problem.space, minimize).columns()
    _native.refine(problem.columns(), LIMITS, row_wise(problem), 1e6, goal)
    if not len(goal[name]):
        return
    goal[name] = np.full_like(goal[name], value)
    with pytest.raises(OutOfRange, match="amounts"):
        _native.refine(problem.columns(), LIMITS, row_wise(problem), 1e6, goal)


def kept_whole(problem, kind="table_wise"):
    """Every table is one shard on rank 0, or a copy of it."""
    tables = problem.space.tables
    rows = np.arange(1, tables + 1) * 10_000
    return {
        **held(problem),
        "table_held_begin": np.arange(tables + 1),
        "held_row": np.zeros(tables, np.int64),
        "held_column": np.zeros(tables, np.int64),
        "held_rows": rows,
        "held_columns": np.full(tables, 64),
        "held_rank": np.zeros(tables, np.int64),
        "table_held_type": np.full(tables, SHARDING_TYPE_INDEX[kind], np.uint8),
        "table_held_kernel": np.ones(tables, np.uint8),
        "table_rows": rows,
        "table_dim": np.full(tables, 64),
        "table_element_size": np.full(tables, 4),
    }


def refused(problem, columns, before):
    """Both who asks for a plan and who asks for its bytes are refused."""
    for take in (
        lambda: _native.moved_bytes(columns, before, row_wise(problem)),
        lambda: _native.replan(columns, before, REPLAN),
    ):
        with pytest.raises((OutOfRange, TypeError)):
            take()


@pytest.mark.parametrize("value", LARGE)
@pytest.mark.parametrize("name", ["run_rows", "run_cols"])
def test_shards_of_options(name, value):
    problem = small_problem()
    columns, before = problem.columns(), kept_whole(problem)
    assert _native.moved_bytes(columns, before, row_wise(problem)) > 0
    columns[name] = np.full_like(columns[name], value)
    refused(problem, columns, before)


@pytest.mark.parametrize("kind", ["table_wise", "data_parallel"])
@pytest.mark.parametrize(
    "changes",
    [
        {"held_rows": 1 << 50, "held_columns": 1 << 50},
        {"held_row": (1 << 51) - 1, "held_rows": (1 << 51) - 1, "held_columns": (1 << 51) - 1},
        {"table_element_size": 1 << 62, "table_rows": 0},
        {"table_element_size": -1},
        {"table_element_size": (1 << 20), "table_rows": 0, "held_rows": 1 << 40},
        {"table_state": 1e300, "table_rows": 0},
        {"table_state": np.nan},
        {"table_state": -2.0},
    ],
)
def test_what_ranks_hold(kind, changes):
    problem = small_problem()
    columns, before = problem.columns(), kept_whole(problem, kind)
    for name in ("run_rows", "run_cols"):
        # Shards as large as what is held, where they are to be cut from it.
        if "held_rows" in changes:
            columns[name] = np.full_like(columns[name], 1 << 50)
    for name, value in changes.items():
        before[name] = np.full_like(before[name], value)
    refused(problem, columns, before)


def test_bytes_that_only_the_number_of_ranks_makes_too_large():
    problem = small_problem()
    copies, ranks = of_kind(problem, "data_parallel"), 1 << 20
    columns, before = problem.columns(), kept_whole(problem)
    before["table_rows"] = before["held_rows"] = np.full(6, 1 << 42)
    columns |= {f"rank_{tier}": np.full(ranks, 1 << 40) for tier in ("hbm", "ddr", "ssd")}
    columns["run_count"] = columns["run_count"].copy()
    columns["run_count"][problem.space.option_run_begin[copies]] = ranks
    with pytest.raises(OutOfRange, match="bytes"):
        _native.moved_bytes(columns, before, {"options": copies, "ranks": nothing()})
