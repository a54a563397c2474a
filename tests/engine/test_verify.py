"""A made-up solution is rejected with what is wrong about it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve, verify, verify_plan
from tests.problems import DEFAULT_SEARCH, grid_tower, request, small_problem, table

PROBLEM = small_problem()
SOLUTION = solve(PROBLEM, DEFAULT_SEARCH)


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: {"options": s.options[:-1]}, "cover"),
        (lambda s: {"options": changed(s.options, 0, s.options[1])}, "twice"),
        (lambda s: {"options": changed(s.options, 0, -1)}, "exist"),
        (lambda s: {"options": changed(s.options, 0, 10**6)}, "exist"),
        (lambda s: {"rating": s.rating * (1 + 1e-15)}, "rating"),
        (lambda s: {"ranks": np.append(s.ranks, np.int32(0))}, "more ranks"),
    ],
)
def test_a_changed_solution_is_rejected(change, complaint):
    assert complaint in verify(PROBLEM, replace(SOLUTION, **change(SOLUTION)))


def single(kind):
    """One table of one sharding type on two hosts of four."""
    space = estimate(request([table("t", 1000, 512)], 8, 4, (kind,)))
    problem = Problem(space, PROBLEM.cluster)
    return problem, solve(problem, DEFAULT_SEARCH)


@pytest.mark.parametrize(
    ("kind", "ranks", "complaint"),
    [
        ("table_wise", [8], "outside"),
        ("table_wise", [-1], "outside"),
        ("table_wise", [], "missing"),
        ("table_row_wise", [0, 1, 2, 4], "leave the host"),
        ("table_row_wise", [1, 0, 2, 3], "one per rank"),
        ("table_column_wise", [0, 1, 2, 7], "leave the host"),
        ("grid_shard", [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 7, 6], "one per rank"),
    ],
)
def test_ranks_must_be_legal_for_the_sharding_type(kind, ranks, complaint):
    problem, solution = single(kind)
    assert verify(problem, solution) == ""
    assert complaint in verify(problem, replace(solution, ranks=np.array(ranks, np.int32)))


def test_a_plan_must_fit():
    cluster = replace(PROBLEM.cluster, rank_hbm=(1000,) * 8)
    assert "capacity" in verify(Problem(PROBLEM.space, cluster), SOLUTION)


def test_a_grid_in_a_tower_of_uniform_tables_may_be_on_many_hosts():
    problem = grid_tower(("grid_shard",), ("row_wise",))
    found = solve(problem, DEFAULT_SEARCH)
    assert len(set(found.ranks // 4)) > 1
    assert verify(problem, found) == ""


@pytest.mark.parametrize("other", ["grid_shard", "table_row_wise"])
def test_a_grid_shares_no_host_of_a_tower(other):
    problem = grid_tower(("grid_shard",), (other,))
    assert not solve(problem, DEFAULT_SEARCH).found
    shards = {"grid_shard": 16, "table_row_wise": 4}
    for kinds in (("grid_shard", other), (other, "grid_shard")):
        first = problem.space.table_option_begin[:-1].astype(np.int32)
        options = first if kinds[0] == "grid_shard" else first[::-1]
        ranks = np.concatenate([np.arange(shards[kind]) % 8 for kind in kinds]).astype(np.int32)
        assert "tower" in verify_plan(problem, options.copy(), ranks, math.nan)
