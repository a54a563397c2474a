"""Searches over small problems."""

from dataclasses import replace

import pytest

from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, placer, propose, solve, verify
from fastplan.model.request import Partitioner, Proposer, Search
from tests.problems import DEFAULT_SEARCH, request, small_problem, table


def search_with(*proposers, **settings):
    return Search(proposers=proposers, partitioner=Partitioner(), **settings)


def test_the_plan_of_a_roomy_problem_is_verified():
    problem = small_problem()
    solution = solve(problem, DEFAULT_SEARCH)
    assert solution.found
    assert verify(problem, solution) == ""


def test_a_pruned_search_leaves_the_plans_uncounted_and_an_exhaustive_one_counts_them():
    problem = small_problem()
    assert solve(problem, DEFAULT_SEARCH).plans is None
    exhaustive = solve(problem, DEFAULT_SEARCH, exhaustive=True)
    assert exhaustive.plans == exhaustive.proposals == exhaustive.evaluated


def test_without_room_there_is_no_plan_but_the_smallest_and_the_last_proposal():
    problem = small_problem(rank_hbm=(1000,) * 8, rank_ddr=(1000,) * 8)
    solution = solve(problem, DEFAULT_SEARCH)
    assert not solution.found
    assert solution.plans == 0
    assert len(solution.lowest) == len(solution.last) == problem.space.tables


def test_the_best_rating_is_the_least_of_all_proposals():
    problem = small_problem()
    place = placer(problem, Partitioner())
    ratings = []
    for proposer in DEFAULT_SEARCH.proposers:
        rows = propose(problem, proposer, 0, 10**6)
        ratings += [place.place(row.tolist()) for row in rows["options"]]
    assert solve(problem, DEFAULT_SEARCH).rating == min(rated[1] for rated in ratings if rated)


def test_a_threshold_stops_the_greedy_proposer_and_keeps_its_state():
    problem = small_problem()
    full = solve(problem, search_with(Proposer(kind="greedy")), exhaustive=True)
    stopped = solve(problem, search_with(Proposer(kind="greedy", threshold=2)))
    assert 0 < stopped.proposals < full.proposals
    assert stopped.reports[0].state_inferior == 3
    assert stopped.reports[0].state_best_rating == stopped.rating


def test_a_time_out_that_has_passed_stops_every_proposer():
    solution = solve(small_problem(), replace(DEFAULT_SEARCH, timeout_seconds=1e-12))
    assert solution.exhaustive
    assert [report.timed_out for report in solution.reports] == [False, True, True, True]
    assert not solution.found


def test_a_time_out_that_does_not_pass_leaves_out_what_can_not_win():
    problem = small_problem()
    solution = solve(problem, replace(DEFAULT_SEARCH, timeout_seconds=1e6))
    assert not solution.exhaustive
    assert solution.evaluated == solve(problem, DEFAULT_SEARCH).evaluated < solution.proposals


def test_a_proposer_that_repeats_another_adds_nothing():
    problem = small_problem()
    twice = solve(problem, search_with(Proposer(kind="greedy"), Proposer(kind="greedy")))
    assert twice.reports[1].proposals == 0
    assert twice.reports[1].repeats == twice.reports[0].proposals


def test_a_grid_with_too_many_proposals_proposes_nothing():
    problem = small_problem()
    assert propose(problem, Proposer(kind="grid"), 0, 1)["size"] == 0
    few = Proposer(kind="grid", max_proposals=10**9)
    options = problem.space.options // problem.space.tables
    assert propose(problem, few, 0, 1)["size"] == options**problem.space.tables


def test_dynamic_programming_proposes_in_its_first_run_only():
    problem = small_problem()
    proposer = Proposer(kind="dynamic_programming", bins_per_device=4)
    assert propose(problem, proposer, 0, 100)["size"] > 1
    assert propose(problem, replace(proposer, exhausted=True), 0, 100)["size"] == 0


def fullest_rank(problem, options, ranks):
    """The most hbm that any rank has in use."""
    space, used, waiting = problem.space, [0] * 8, iter(ranks)
    for option in options:
        uniform = space.option_type[option] in (0, 3)
        shard = 0
        for run in range(space.option_run_begin[option], space.option_run_begin[option + 1]):
            for _ in range(space.run_count[run]):
                used[shard if uniform else next(waiting)] += int(space.run_hbm[run])
                shard += 1
    return max(used)


def test_the_memory_balanced_partitioner_never_uses_more_hbm_on_its_fullest_rank():
    # The larger the table, the cheaper: sorted by cost, large tables meet by chance.
    tables = [table(f"t{i}", 60_000 * (i + 1), 64, pooling=31.0 - i) for i in range(30)]
    space = estimate(request(tables, 8, 4, ("table_wise",)))
    problem = Problem(space, small_problem(rank_hbm=(64 << 30,) * 8).cluster)
    place = placer(problem, Partitioner(sort_by_perf=True))
    balance = placer(problem, Partitioner(memory_balanced=True, tolerance=0.5))
    better = 0
    for row in propose(problem, Proposer(kind="greedy"), 0, 20)["options"].tolist():
        plain, balanced = place.place(row), balance.place(row)
        assert plain is not None
        assert balanced is not None
        assert balanced[1] <= plain[1] * 1.5
        before, after = (fullest_rank(problem, row, ranks) for ranks, _ in (plain, balanced))
        assert after <= before
        better += after < before
    assert better


@pytest.mark.parametrize("exhaustive", [False, True])
def test_solving_twice_gives_the_same(exhaustive):
    first = solve(small_problem(), DEFAULT_SEARCH, exhaustive=exhaustive)
    second = solve(small_problem(), DEFAULT_SEARCH, exhaustive=exhaustive)
    assert first.rating == second.rating
    assert first.options.tolist() == second.options.tolist()
    assert first.ranks.tolist() == second.ranks.tolist()
