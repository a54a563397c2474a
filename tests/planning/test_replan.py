"""Plans that follow older ones under a policy, or tell why they do not."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.problem import Problem
from fastplan.engine.replan import best_ratings, fewest_bytes
from fastplan.engine.solve import estimate, request_columns, solve, verify_plan
from fastplan.model.plan import PlanRecord
from fastplan.planning.held import balanced_rank_cost, held_columns
from fastplan.planning.movement import movement
from fastplan.planning.policy import Replan
from fastplan.planning.replan import ReplanAttempt, Scratch
from tests.planning.test_difference import planned, tables_of
from tests.plans.samples import cluster_of, plan_for
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, random_problem, request, table

POLICY = Replan(move_budget=20_000, reference="scratch", slack=0.05)


def after(tables, *, ranks=8, policy=POLICY, previous=None):
    asked, cluster = request(tables, ranks, 4, ALL_TYPES), cluster_of(ranks, 4)
    problem = Problem(estimate(asked), cluster)
    scratch = solve(problem, DEFAULT_SEARCH)
    replan = ReplanAttempt(asked, cluster, previous or planned(tables_of(13)), policy)
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


@pytest.mark.parametrize("seed", range(60))
def test_no_proposal_is_rated_below_perfect_balance(seed):
    problem, search = random_problem(seed)
    found = solve(problem, search)
    assert not found.found or balanced_rank_cost(problem) <= found.rating * (1 + 1e-9)


def staying_in_place(tables):
    """The best that the tables come to where they are, and the seconds until new ones have come."""
    asked, cluster = request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4)
    previous = planned(tables_of(13))
    problem = Problem(estimate(asked), cluster)
    held = held_columns(asked.tables, request_columns(asked), previous.layout.tables)
    start = best_ratings(problem, held, budgets=[], settings=POLICY.settings).start
    record = PlanRecord.of(problem.space, start.options, start.ranks, start.rating)
    stays = plan_for(asked, cluster, DEFAULT_SEARCH, record)
    return start.rating, movement(previous, stays).seconds


def test_a_better_rating_has_paid_when_the_steps_have_saved_what_moving_took():
    report = after(CHANGED, policy=replace(POLICY, objective="rating", max_moved=1.0))
    rating, seconds = staying_in_place(CHANGED)
    saved_per_step = (rating - report.rating) / 1000  # ratings are milliseconds
    assert saved_per_step > 0
    assert report.moves.seconds > seconds
    steps = (report.moves.seconds - seconds) / saved_per_step
    assert report.moves.pays_back_after == pytest.approx(steps, rel=1e-9)


def test_payback_moves_more_the_more_steps_are_left():
    free = replace(POLICY, slack=9.0, max_moved=1.0)
    best = after(CHANGED, policy=replace(free, objective="rating"))
    few, many = (
        after(CHANGED, policy=replace(free, objective="payback", remaining_steps=steps))
        for steps in (1, 10**9)
    )
    assert few.moved == few.least
    assert few.moved < many.moved
    assert few.rating > many.rating
    assert many.rating <= 1.02 * best.rating


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


def test_slack_is_how_far_above_the_plan_from_scratch_a_rating_may_be():
    tight = replace(POLICY, max_moved=0.0, slack=0.0, move_budget=2_000)
    report = after(tables_of(13), ranks=12, policy=tight)
    assert not report.followed
    # Nothing but what must move: what that comes to is how much slack it takes.
    stays = after(tables_of(13), ranks=12, policy=replace(tight, slack=99.0))
    assert stays.followed
    assert stays.moved == stays.least
    assert stays.rating > 1.01 * stays.scratch_rating
    needed = stays.rating / stays.scratch_rating - 1
    assert after(tables_of(13), ranks=12, policy=replace(tight, slack=1.001 * needed)).followed


def efforts(monkeypatch, policy):
    """The move budgets of all searches for a plan that meets the policy."""
    budgets = []

    def noted(*arguments, settings, **more):
        if more["budget"] == policy.max_moved:
            budgets.append(settings.move_budget)
        return fewest_bytes(*arguments, settings=settings, **more)

    monkeypatch.setattr("fastplan.planning.replan.fewest_bytes", noted)
    return after(tables_of(13), ranks=12, policy=policy).followed, budgets


def test_a_policy_is_met_with_its_move_budget_or_with_five_times_as_much(monkeypatch):
    policy = replace(POLICY, max_moved=0.0, slack=0.0, move_budget=2_000)
    assert efforts(monkeypatch, policy) == (False, [2_000, 10_000])
    assert efforts(monkeypatch, replace(policy, slack=99.0)) == (True, [2_000])


def test_new_tables_up_to_max_changed_are_no_reason_for_a_plan_from_scratch():
    part = CHANGED[-1].bytes / sum(each.bytes for each in CHANGED)
    assert after(CHANGED, policy=replace(POLICY, max_changed=part)).followed
    report = after(CHANGED, policy=replace(POLICY, max_changed=0.999 * part))
    assert not report.followed
    assert "max_changed" in report.reason


def test_a_model_that_is_mostly_new_is_planned_from_scratch():
    report = after([tables_of(13)[0], table("huge", 10_000_000, 64)])
    assert not report.followed
    assert "max_changed" in report.reason


def test_small_changes_are_judged_without_a_plan_from_scratch():
    tables = tables_of(40)
    previous = planned(tables)
    tables[3] = tables[3]._replace(perf_inputs=tables[3].perf_inputs * 1.1)
    asked, cluster = request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4)
    replan = ReplanAttempt(asked, cluster, previous, Replan())
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
    assert ReplanAttempt(asked, cluster, previous, POLICY).quick_space() is None


@pytest.mark.parametrize(("changed", "quick"), [(0, True), (4, True), (5, False), (6, False)])
def test_a_tenth_of_the_tables_may_change_without_a_plan_from_scratch(changed, quick):
    tables = tables_of(40)
    previous = planned(tables)
    for i in range(changed):
        tables[i] = tables[i]._replace(perf_inputs=tables[i].perf_inputs * 1.1)
    asked, cluster = request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4)
    space = ReplanAttempt(asked, cluster, previous, Replan()).quick_space()
    assert (space is not None) == quick


def test_a_quick_plan_may_be_uneven_by_the_slack():
    tables = tables_of(40)
    previous = planned(tables)
    tables[3] = tables[3]._replace(perf_inputs=tables[3].perf_inputs * 1.1)
    asked, cluster = request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4)
    policy = Replan(slack=9.0, max_moved=0.0)
    replan = ReplanAttempt(asked, cluster, previous, policy)
    found = replan.quick(Problem(replan.quick_space(), cluster))
    assert found is not None
    assert found[1].moved == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_moved", 0.1),
        ("slack", 0.2),
        ("objective", "rating"),
        ("remaining_steps", 5),
        ("reference", "scratch"),
        ("max_changed", 0.6),
        ("move_budget", 1_000),
        ("time_budget", 1.0),
        ("seed", 1),
    ],
)
def test_what_decides_the_plan_is_part_of_a_policys_key(field, value):
    usual = Replan()
    assert replace(usual, **{field: value}).describe() != usual.describe()


def test_the_frontier_is_no_part_of_a_policys_key():
    assert Replan(frontier=True).describe() == Replan().describe()


def test_the_old_numbers_of_ranks_are_a_part_of_a_policys_key():
    """Without a given plan, the nearest one in the cache is renumbered by them."""
    kept, turned = (Replan(rank_map=ranks).describe() for ranks in ((0, 1), (1, 0)))
    assert kept != turned
    assert kept != Replan().describe()


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
        Replan(**wrong)


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
        Replan(**wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rank_map": 5}, "`rank_map` must be a sequence .*, not 5"),
        ({"rank_map": "10"}, "`rank_map` must be a sequence .*, not '10'"),
        ({"rank_map": {0: 1, 1: 0}}, "`rank_map` must be a sequence .*, not {0: 1"),
        ({"rank_map": (0.9, 1.2)}, "send rank 0 to a whole number or None, not 0.9"),
        ({"rank_map": (0, True)}, "send rank 1 to a whole number or None, not True"),
        ({"rank_map": ("1", "0")}, "send rank 0 to a whole number or None, not '1'"),
        ({"frontier": "no"}, "`frontier` must be True or False, not 'no'"),
    ],
)
def test_ranks_that_are_no_ranks_are_refused(wrong, told):
    with pytest.raises(TypeError, match=told):
        Replan(**wrong)


def test_equal_rank_maps_are_one_policy():
    usual = Replan(rank_map=(1, 0))
    for given in ([1, 0], np.array([1, 0]), tuple(np.array([1, 0]))):
        assert Replan(rank_map=given) == usual
    assert Replan(rank_map=[None, 0]).rank_map == (None, 0)


@pytest.mark.parametrize("steps", [-1, 10**400])
def test_remaining_steps_are_a_number_that_a_time_can_be_multiplied_with(steps):
    with pytest.raises(ValueError, match="`remaining_steps` must be between 0 and 1e"):
        Replan(objective="rating", remaining_steps=steps)
