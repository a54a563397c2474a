"""Proposals of a search that are better than a plan from elsewhere."""

import math
from dataclasses import replace

import pytest

from fastplan.engine.better_proposal import better_proposal
from fastplan.engine.problem import Problem
from fastplan.engine.solve import placer, propose, solve
from fastplan.model.request import Proposer
from tests.problems import DEFAULT_SEARCH, random_problem, small_problem

KINDS = [
    DEFAULT_SEARCH.proposers,
    (Proposer(kind="greedy"),),
    (Proposer(kind="greedy", use_depth=False),),
    (Proposer(kind="uniform"),),
    (Proposer(kind="grid"),),
]


def drawn(seed):
    problem, search = random_problem(seed)
    return problem, replace(search, timeout_seconds=0)


@pytest.mark.parametrize("seed", range(200))
def test_no_proposal_is_better_than_the_plan_of_the_search(seed):
    problem, search = drawn(seed)
    found = solve(problem, search)
    if found.found:
        # Proposers add up the same plan in different orders, and the search takes the first sum.
        assert better_proposal(problem, search, found.rating) is None
    assert found.found or better_proposal(problem, search, 1e300) is None


@pytest.mark.parametrize("proposers", KINDS, ids=lambda kinds: "+".join(p.kind for p in kinds))
def test_every_plan_that_is_worse_than_the_search_has_a_better_proposal(proposers):
    compared = 0
    for seed in range(300):
        problem, search = drawn(seed)
        search = replace(search, proposers=proposers)
        found = solve(problem, search)
        if not found.found or found.rating == 0:
            continue
        compared += 1
        better = better_proposal(problem, search, found.rating * (1 + 1e-6))
        assert better == pytest.approx(found.rating, rel=1e-6)
        better = better_proposal(problem, search, found.rating * 3)
        assert found.rating * (1 - 1e-9) <= better < 3 * found.rating
    assert compared > 100


@pytest.mark.parametrize("slack", [0.0, 0.05, 1.0])
def test_the_slack_is_the_share_that_a_plan_may_be_worse_and_no_more(slack):
    problem = small_problem()
    limit = solve(problem, DEFAULT_SEARCH).rating * (1 + slack)
    assert better_proposal(problem, DEFAULT_SEARCH, limit, slack=slack) is None
    assert better_proposal(problem, DEFAULT_SEARCH, limit * (1 + 1e-6), slack=slack) is not None


def test_a_search_that_a_time_out_may_end_early_has_none():
    search = replace(DEFAULT_SEARCH, timeout_seconds=1.0)
    assert better_proposal(small_problem(), search, 1e300) is None


@pytest.mark.parametrize(
    "proposer",
    [Proposer(kind="greedy", threshold=1), Proposer(kind="dynamic_programming", bins_per_device=5)],
    ids=lambda proposer: proposer.kind,
)
def test_proposers_that_need_a_search_are_left_out(proposer):
    search = replace(DEFAULT_SEARCH, proposers=(proposer,))
    assert solve(small_problem(), search).found
    assert better_proposal(small_problem(), search, 1e300) is None


def test_memory_that_is_short_for_most_proposals_hides_none_that_fits():
    """The first proposals of a tight problem fit nowhere, and others are not sorted by rating."""
    tight = 0
    for seed in range(300):
        problem, search = drawn(seed)
        search = replace(search, proposers=(Proposer(kind="uniform"), Proposer(kind="grid")))
        best = math.inf
        for proposer in search.proposers:
            rows = propose(problem, proposer, 0, 200)
            if rows["size"] > 200:
                break
            placing = placer(problem, search.partitioner)
            placed = [placing.place(row.tolist()) for row in rows["options"]]
            tight += len(placed) > 3 and placed.count(None) > len(placed) // 2
            best = min([best, *(rating for _, rating in filter(None, placed))])
        else:
            expected = None if math.isinf(best) else pytest.approx(best, rel=1e-6)
            assert better_proposal(problem, search, best * (1 + 1e-6)) == expected
    assert tight > 5


def test_a_problem_can_be_asked_again_and_again():
    problem = small_problem()
    copy = Problem(problem.space, problem.cluster)
    answers = {better_proposal(each, DEFAULT_SEARCH, 1e300) for each in 3 * [problem, copy]}
    assert len(answers) == 1
