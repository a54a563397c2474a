"""The search by the step: TorchRec's proposals, compared by the step instead of the rating."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.better_proposal import better_proposal
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, measure_of, placer, propose, rate, solve, verify
from fastplan.engine.step import step_of
from fastplan.model.request import Partitioner
from fastplan.model.vocabulary import PIPELINES
from tests.engine.test_step import drawn
from tests.hardware import drawn_problem
from tests.problems import DEFAULT_SEARCH

ROOMS = (1 << 34, 3 << 28)


def shortest_step(problem, search):
    """The first proposal with the shortest step, by trying all of them."""
    place = placer(problem, search.partitioner).place
    best, chosen = math.inf, None
    for proposer in search.proposers:
        size = propose(problem, proposer, 0, 0)["size"]
        for row in propose(problem, proposer, 0, size)["options"].tolist():
            placed = place(row)
            if placed is None:
                continue
            plan = (np.array(part, np.int32) for part in (row, placed[0]))
            step = step_of(problem, *plan).ms
            if step < best:
                best, chosen = step, (row, placed[0])
    return best, chosen


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("seed", range(12))
def test_the_first_proposal_with_the_shortest_step_is_found(seed, room):
    _, problem = drawn(seed, tables=5, room=room, pipeline=PIPELINES[seed % len(PIPELINES)])
    step, chosen = shortest_step(problem, DEFAULT_SEARCH)
    found = solve(problem, DEFAULT_SEARCH)
    assert found.found == (chosen is not None)
    if chosen is not None:
        assert step_of(problem, found.options, found.ranks).ms == step
        assert (found.options.tolist(), found.ranks.tolist()) == tuple(chosen)


@pytest.mark.parametrize("seed", range(30))
def test_a_search_that_skips_proposals_finds_the_plan_of_one_that_does_not(seed):
    _, problem = drawn_problem(seed)
    search = replace(DEFAULT_SEARCH, proposers=DEFAULT_SEARCH.proposers[1:])
    skips, all_of_them = (solve(problem, search, exhaustive=every) for every in (False, True))
    assert skips.found == all_of_them.found
    assert skips.options.tolist() == all_of_them.options.tolist()
    assert skips.ranks.tolist() == all_of_them.ranks.tolist()
    assert skips.rating == all_of_them.rating
    if skips.found:
        assert verify(problem, skips) == ""
        assert skips.rating == rate(problem, skips.options, skips.ranks)
        by_rating = solve(problem, search, by="rating")
        assert by_rating.rating <= skips.rating
        steps = [step_of(problem, plan.options, plan.ranks).ms for plan in (skips, by_rating)]
        assert steps[0] <= steps[1]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_proposals_that_are_given_up_are_not_better(seed, balanced):
    _, problem = drawn(seed, tables=30, room=ROOMS[seed % 2])
    search = replace(DEFAULT_SEARCH, partitioner=Partitioner(memory_balanced=balanced))
    skips, all_of_them = (solve(problem, search, exhaustive=every) for every in (False, True))
    assert skips.found == all_of_them.found
    assert skips.options.tolist() == all_of_them.options.tolist()
    assert skips.ranks.tolist() == all_of_them.ranks.tolist()
    assert skips.rating == all_of_them.rating


def test_few_proposals_are_placed():
    _, problem = drawn(0, tables=60)
    found = solve(problem, DEFAULT_SEARCH)
    assert found.evaluated < found.proposals / 10


def test_costs_without_a_step_are_compared_by_the_rating():
    made, problem = drawn(1)
    assert measure_of(problem, DEFAULT_SEARCH) == "step"
    stock = Problem(estimate(replace(made, hardware=None)), problem.cluster)
    assert measure_of(stock, DEFAULT_SEARCH) == "rating"


@pytest.mark.parametrize("seed", range(10))
def test_plans_are_held_to_the_step_of_the_search(seed):
    _, problem = drawn(seed)
    found = solve(problem, DEFAULT_SEARCH)
    step = step_of(problem, found.options, found.ranks).ms
    assert better_proposal(problem, DEFAULT_SEARCH, step, by="step") is None
    better = better_proposal(problem, DEFAULT_SEARCH, step * (1 + 1e-6), by="step")
    assert better == pytest.approx(step, rel=1e-6)
    assert better_proposal(problem, DEFAULT_SEARCH, step * 1.04, by="step", slack=0.05) is None
