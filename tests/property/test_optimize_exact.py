"""Problems small enough to try everything: the bound, the best plan and the rating are in order."""

import math

import pytest

from fastplan.engine.optimize import (
    Certificate,
    Optimize,
    check_bound,
    lower_bound,
    optimize,
)
from fastplan.engine.solve import verify_plan
from tests.exact import Exact, packing_problem, tiny_problem
from tests.problems import DEFAULT_SEARCH

SETTINGS = Optimize(time_budget=None, move_budget=4_000)
# Sums in another order differ by less.
NEARLY = 1 + 1e-12


def compare(problem, seed):
    """The optimized plan and the best rating there is, which must agree with its bound."""
    best = Exact(problem).best()
    found = optimize(problem, DEFAULT_SEARCH, SETTINGS)
    assert check_bound(problem, found.certificate) == found.lower_bound, seed
    if found.found:
        assert verify_plan(problem, found.options, found.ranks, found.rating) == "", seed
        assert found.lower_bound <= best * NEARLY, seed
        assert best <= found.rating * NEARLY, seed
    return found, best


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_bound_optimum_and_rating_are_in_order(first):
    feasible = optimal = 0
    for seed in range(first, first + 100):
        problem = tiny_problem(seed)
        found, best = compare(problem, seed)
        assert found.found == math.isfinite(best), seed
        if not found.found:
            continue
        feasible += 1
        optimal += found.rating <= best * NEARLY
        alone = lower_bound(problem, upper=best, knapsacks=200)
        assert isinstance(alone, Certificate), seed
        assert alone.value <= best * NEARLY, seed
        assert check_bound(problem, alone) == alone.value, seed
    assert feasible >= 80
    assert optimal >= 0.98 * feasible


def test_plans_are_found_where_torchrec_finds_none():
    torchrec_fails = rescued = feasible = 0
    for seed in range(300):
        problem = packing_problem(seed)
        found, best = compare(problem, seed)
        if math.isinf(best):
            assert not found.found, seed
            continue
        feasible += 1
        if math.isinf(min(found.start_ratings.values())):
            torchrec_fails += 1
            rescued += found.found
        else:
            assert found.found, seed
    assert feasible > 100
    assert torchrec_fails > 10
    assert rescued >= 0.9 * torchrec_fails
