"""Random problems: every solution is checked, and no short cut changes a plan or a count."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.optimize import Certificate, check_bound, lower_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import (
    count_plans,
    placer,
    propose,
    search_settings,
    solve,
    verify,
)
from tests.problems import random_problem, tight_problem


@pytest.mark.parametrize("draw", [random_problem, tight_problem])
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_pruned_and_exhaustive_searches_agree_and_verify(first, draw):
    found = 0
    for seed in range(first, first + (250 if draw is random_problem else 40)):
        problem, search = draw(seed)
        pruned = solve(problem, search)
        exhaustive = solve(problem, search, exhaustive=True)
        assert pruned.found == exhaustive.found, seed
        assert pruned.proposals == exhaustive.proposals, seed
        plans = tuple(report.plans for report in exhaustive.reports)
        assert count_plans(problem, search) == plans, seed
        if not pruned.found:
            assert exhaustive.plans == 0, seed
            assert pruned.lowest.tolist() == exhaustive.lowest.tolist(), seed
            assert pruned.last.tolist() == exhaustive.last.tolist(), seed
            continue
        found += 1
        assert pruned.rating == exhaustive.rating, seed
        assert pruned.options.tolist() == exhaustive.options.tolist(), seed
        assert pruned.ranks.tolist() == exhaustive.ranks.tolist(), seed
        assert pruned.winner == exhaustive.winner, seed
        assert verify(problem, pruned) == "", seed
    assert 0 < found < seed - first + 1


@pytest.mark.parametrize("draw", [random_problem, tight_problem])
@pytest.mark.parametrize("first", range(0, 240, 40))
def test_a_placement_is_the_same_whatever_was_placed_before(first, draw):
    placed = 0
    for seed in range(first, first + 40):
        problem, search = draw(seed)
        rows = []
        for proposer in search.proposers:
            size = propose(problem, proposer, 0, 0)["size"]
            begin = max(0, min(size // 3, size - 25))
            rows += propose(problem, proposer, begin, begin + 25)["options"].tolist()
        # Neighbours first, then jumps and repetitions.
        rows += random.Random(seed).choices(rows, k=len(rows))
        used = placer(problem, search.partitioner)
        for row in rows:
            expected = placer(problem, search.partitioner).place(row)
            assert used.place(row) == expected, seed
            placed += expected is not None
    assert placed


@pytest.mark.parametrize("draw", [random_problem, tight_problem])
def test_a_time_out_that_does_not_pass_changes_nothing(draw):
    for seed in range(60):
        problem, search = draw(seed)
        timed = solve(problem, replace(search, timeout_seconds=1e6))
        whole = solve(problem, search, exhaustive=True)
        assert not timed.exhaustive, seed
        assert timed.found == whole.found, seed
        assert timed.rating == whole.rating, seed
        assert timed.winner == whole.winner, seed
        assert timed.proposals == whole.proposals, seed
        for each in ("options", "ranks", "lowest", "last"):
            assert getattr(timed, each).tolist() == getattr(whole, each).tolist(), seed
        assert not any(report.timed_out for report in timed.reports), seed


@pytest.mark.parametrize("seed", range(0, 2000, 40))
def test_placing_the_best_proposal_again_gives_the_same_ranks_and_rating(seed):
    problem, search = random_problem(seed)
    solution = solve(problem, search)
    if solution.found:
        again = placer(problem, search.partitioner).place(solution.options.tolist())
        assert again == (solution.ranks.tolist(), solution.rating)
    else:
        assert placer(problem, search.partitioner).place(solution.last.tolist()) is None


def test_the_order_of_placement_decides_more_proposals_without_placing_them():
    placed = [0, 0]
    for seed in range(400):
        problem, search = random_problem(seed)
        # The order of balanced modules depends on all tables of a proposal, so that it is not used.
        # With a module for each table it is the same order.
        modules = np.arange(problem.space.tables, dtype=np.int32)
        handle = Problem(replace(problem.space, table_module=modules), problem.cluster).handle
        counted = []
        for place, balanced in enumerate((False, True)):
            partitioner = replace(search.partitioner, balance_modules=balanced)
            settings = search_settings(replace(search, partitioner=partitioner))
            plans, attempts = _native.count_plans(handle, settings)
            counted.append(plans)
            placed[place] += attempts
        assert counted[0] == counted[1], seed
    assert 0 < placed[0] < placed[1]


@pytest.mark.parametrize("draw", [random_problem, tight_problem])
def test_ranks_with_less_than_no_memory_take_no_room_from_the_others(draw):
    found = 0
    for seed in range(60):
        problem, search = draw(seed)
        hbm = list(problem.cluster.rank_hbm)
        hbm[1::3] = [-n for n in hbm[1::3]]
        # Dynamic programming divides what all ranks have together.
        hbm[0] += max(0, 1 - sum(hbm))
        problem = Problem(problem.space, replace(problem.cluster, rank_hbm=tuple(hbm)))
        pruned, exhaustive = solve(problem, search), solve(problem, search, exhaustive=True)
        assert pruned.found == exhaustive.found, seed
        plans = tuple(report.plans for report in exhaustive.reports)
        assert count_plans(problem, search) == plans, seed
        if not pruned.found:
            continue
        found += 1
        assert pruned.options.tolist() == exhaustive.options.tolist(), seed
        assert pruned.ranks.tolist() == exhaustive.ranks.tolist(), seed
        bound = lower_bound(problem, upper=pruned.rating)
        if isinstance(bound, Certificate):
            assert check_bound(problem, bound) <= pruned.rating, seed
    assert found
