"""Plans that follow older ones under a policy, or tell why they do not."""

import pickle
from dataclasses import replace

import pytest

from fastplan.core.problem import Problem
from fastplan.core.solve import estimate, solve, verify_plan
from fastplan.replan.policy import ReplanPolicy
from fastplan.replan.replan import Replan, Scratch
from tests.plans.samples import cluster_of
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table
from tests.replan.test_difference import planned, tables_of

POLICY = ReplanPolicy(move_budget=20_000, reference="scratch", slack=0.05)


def after(tables, *, ranks=8, policy=POLICY, previous=None):
    asked, cluster = request(tables, ranks, 4, ALL_TYPES), cluster_of(ranks, 4)
    problem = Problem(estimate(asked), cluster)
    scratch = solve(problem, DEFAULT_SEARCH)
    replan = Replan(asked, cluster, previous or planned(tables_of(13)), policy)
    point, report = replan.after(problem, Scratch(scratch.options, scratch.ranks, scratch.rating))
    assert verify_plan(problem, point.options, point.ranks, point.rating) == ""
    assert report.moves.bytes == report.moved == sum(move.bytes for move in report.moves)
    return report


CHANGED = [*tables_of(13)[1:], table("new", 50_000, 64, pooling=9.0)]


def test_the_plan_follows_and_removed_tables_are_gone():
    report = after(CHANGED)
    assert report.followed
    assert report.rating <= 1.05 * report.scratch_rating
    assert report.moved <= report.least + 0.05 * report.held
    assert report.moves.removed == ("sparse.t0",)
    assert not any(move.table == "t0" for move in report.moves)


@pytest.mark.parametrize("objective", ["rating", "payback"])
def test_other_objectives_keep_to_the_same_limits(objective):
    report = after(CHANGED, policy=replace(POLICY, objective=objective, remaining_steps=1000))
    assert report.followed
    assert report.moved <= report.least + 0.05 * report.held
    assert report.rating <= 1.05 * report.scratch_rating


def test_a_better_rating_tells_when_it_has_paid():
    report = after(CHANGED, policy=replace(POLICY, objective="rating"))
    pays = report.moves.pays_back_after
    assert pays is None or pays >= 0


def test_with_hardly_any_steps_left_payback_moves_no_more_than_the_best_rating():
    best = after(CHANGED, policy=replace(POLICY, objective="rating"))
    few = after(CHANGED, policy=replace(POLICY, objective="payback", remaining_steps=1, slack=9.0))
    assert few.moved <= best.moved


def test_the_frontier_falls_as_more_moves():
    frontier = after(CHANGED, policy=replace(POLICY, frontier=True)).frontier
    assert frontier
    assert list(frontier) == sorted(frontier, key=lambda point: (point.moved, -point.rating))
    ratings = [point.rating for point in frontier]
    assert ratings == sorted(ratings, reverse=True)


def test_what_lost_ranks_held_comes_from_storage():
    report = after(tables_of(13), ranks=4, policy=replace(POLICY, slack=0.5, max_moved=0.3))
    assert report.followed
    assert report.moves.from_storage > 0
    assert report.least <= report.moved


def test_a_policy_that_cannot_be_met_gives_the_plan_from_scratch_and_both_figures():
    policy = replace(POLICY, max_moved=0.0, slack=0.0, move_budget=2_000)
    report = after(tables_of(13), ranks=12, policy=policy)
    assert not report.followed
    assert "max_moved" in report.reason
    assert report.rating == report.scratch_rating
    assert report.moved == report.scratch_moved


def test_a_model_that_is_mostly_new_is_planned_from_scratch():
    report = after([tables_of(13)[0], table("huge", 10_000_000, 64)])
    assert not report.followed
    assert "max_changed" in report.reason


def test_small_changes_are_judged_without_a_plan_from_scratch():
    tables = tables_of(40)
    previous = planned(tables)
    tables[3] = tables[3]._replace(perf_inputs=tables[3].perf_inputs * 1.1)
    asked, cluster = request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4)
    replan = Replan(asked, cluster, previous, ReplanPolicy())
    narrow = replan.quick_space()
    assert narrow is not None
    problem = Problem(narrow, cluster)
    assert problem.space.options < estimate(asked).options / 5
    found = replan.quick(problem)
    assert found is not None
    point, report = found
    assert verify_plan(problem, point.options, point.ranks, point.rating) == ""
    assert report.scratch_rating is None
    assert report.moved_part <= 0.05
    assert Replan(asked, cluster, previous, POLICY).quick_space() is None


def test_reports_can_be_pickled():
    report = after(CHANGED)
    copy = pickle.loads(pickle.dumps(report))
    assert copy.moves.moves == report.moves.moves


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_moved": 1.5},
        {"slack": -0.1},
        {"max_changed": 2.0},
        {"objective": "speed"},
        {"reference": "none"},
        {"objective": "payback"},
        {"move_budget": -1},
    ],
    ids=str,
)
def test_policies_are_checked(wrong):
    named = "remaining_steps" if wrong.get("objective") == "payback" else next(iter(wrong))
    with pytest.raises(ValueError, match=named):
        ReplanPolicy(**wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_moved": "5%"}, "`max_moved` must be a number, not '5%'"),
        ({"time_budget": "1"}, "`time_budget` must be a number, not '1'"),
        ({"remaining_steps": "9"}, "`remaining_steps` must be a whole number, not '9'"),
    ],
)
def test_policies_of_another_type_are_refused_by_name(wrong, told):
    with pytest.raises(TypeError, match=told):
        ReplanPolicy(**wrong)
