"""Random problems, loose, tight and hopeless: never worse than TorchRec, and always proven."""

import math
from dataclasses import replace

import pytest

from fastplan.engine.optimize import Optimize, check_bound, optimize
from fastplan.engine.solve import solve, verify, verify_plan
from tests.problems import random_problem


@pytest.mark.parametrize("first", range(0, 1000, 125))
def test_plans_are_legal_proven_and_never_worse_than_torchrecs(first):
    better = found_any = 0
    for seed in range(first, first + 125):
        problem, search = random_problem(seed)
        settings = Optimize(time_budget=None, move_budget=1_500, seed=seed, threads=1 + seed % 2)
        found = optimize(problem, search, settings)
        by_perf = replace(search.partitioner, sort_by_perf=True, memory_balanced=False)
        starts = (solve(problem, search), solve(problem, replace(search, partitioner=by_perf)))
        legal = [start.rating for start in starts if start.found and not verify(problem, start)]
        known = min(legal, default=math.inf)
        assert found.found or not legal, seed
        assert check_bound(problem, found.certificate) == found.lower_bound, seed
        if not found.found:
            continue
        found_any += 1
        assert verify_plan(problem, found.options, found.ranks, found.rating) == "", seed
        assert found.lower_bound <= found.rating <= known, seed
        better += found.rating < known
    assert found_any > 60
    assert better > 20
