"""The rating that TorchRec's own proposals reach."""

import math
from dataclasses import replace

import pytest

from fastplan.engine.reachable import check_reachable, reachable
from fastplan.engine.solve import solve
from fastplan.model.plan import BadRecord
from tests.problems import DEFAULT_SEARCH, random_problem, small_problem


@pytest.mark.parametrize("seed", range(200))
def test_the_best_plan_is_never_rated_above_it(seed):
    problem, search = random_problem(seed)
    found = solve(problem, search)
    if found.found:
        # Proposers add up the same plan in different orders, and the search takes the first sum.
        check_reachable(found.rating, problem, search)
    else:
        assert math.isinf(reachable(problem, search))


def test_it_is_reached_where_memory_is_short():
    reached = 0
    for seed in range(200):
        problem, search = random_problem(seed)
        if search.timeout_seconds or not solve(problem, search).found:
            continue
        reached += math.isfinite(reachable(problem, search))
    assert reached >= 100


def test_a_plan_that_is_worse_is_refused_with_both_ratings():
    problem = small_problem()
    found = solve(problem, DEFAULT_SEARCH)
    check_reachable(found.rating, problem, DEFAULT_SEARCH)
    with pytest.raises(BadRecord, match=r"TorchRec's own proposals reach"):
        check_reachable(10 * found.rating, problem, DEFAULT_SEARCH)
    check_reachable(10 * found.rating, problem, DEFAULT_SEARCH, slack=10.0)


def test_a_search_with_a_time_out_promises_nothing():
    problem = small_problem()
    assert math.isinf(reachable(problem, replace(DEFAULT_SEARCH, timeout_seconds=1.0)))


@pytest.mark.parametrize("slack", [0.0, 0.25, 1.0])
def test_the_slack_is_the_part_that_a_rating_may_be_above_and_no_more(slack):
    problem = small_problem()
    limit = reachable(problem, DEFAULT_SEARCH) * (1 + slack)
    check_reachable(limit, problem, DEFAULT_SEARCH, slack=slack)
    with pytest.raises(BadRecord, match="own proposals reach"):
        check_reachable(limit * (1 + 1e-6), problem, DEFAULT_SEARCH, slack=slack)
