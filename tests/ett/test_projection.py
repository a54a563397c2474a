"""The formula and projections."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.ett.arithmetic import read_report
from fastplan.ett.projection import (
    Costs,
    Plans,
    assumptions,
    costs_of_job,
    project,
    project_json,
    project_text,
    recorded_plans,
)
from tests.ett.runs import Rank

positive = st.floats(0.001, 1e7)


@given(work=positive, failures=st.integers(0, 100), start=positive, lost=positive, plan=positive)
def test_the_formula(work, failures, start, lost, plan):
    costs = Costs(work=work, failures=failures, start=start, lost=lost)
    expected = work / (work + (1 + failures) * (start + plan) + failures * lost)
    assert costs.ett(plan) == pytest.approx(expected, rel=1e-12)
    assert costs.ett(plan, plan) == costs.ett(plan)
    assert costs.ett(plan / 2) >= costs.ett(plan)


def test_a_projection_by_hand():
    costs = Costs(work=800.0, failures=2, start=10.0, lost=20.0)
    plans = Plans(full=20.0, loader=5.0, cold=2.0, cached=0.5)
    cases = {case.name: case for case in project(costs, plans)}
    assert cases["TorchRec, full planning"].ett == 800 / (800 + 3 * 30 + 40)
    assert cases["TorchRec, PlanLoader hit"].ett == 800 / (800 + 3 * 15 + 40)
    assert cases["fastplan, no cache"].ett == 800 / (800 + 3 * 12 + 40)
    assert cases["fastplan, cached later"].ett == 800 / (800 + 30 + 2.0 + 2 * 0.5 + 40)
    assert cases["fastplan, cached"].ett == 800 / (800 + 3 * 10.5 + 40)
    assert [case.is_baseline for case in cases.values()] == [True, True, False, False, False]


def test_a_planner_without_a_time_is_not_shown_and_the_text_says_so():
    costs = Costs(work=1.0, failures=0, start=0.0, lost=0.0)
    plans = Plans(full=1.0)
    assert [case.name for case in project(costs, plans)] == [
        "TorchRec, full planning",
        "fastplan, at most",
    ]
    text = project_text(costs, plans)
    assert "upper bound" in text
    assert "PlanLoader is not shown" in text
    assert all(assumption in text for assumption in assumptions(costs, plans))


def test_the_text_has_points_over_both_baselines():
    costs = Costs(work=800.0, failures=2, start=10.0, lost=20.0)
    text = project_text(costs, Plans(full=20.0, loader=5.0, cached=0.5))
    row = next(line for line in text.splitlines() if "fastplan, cached" in line)
    over_full = 100 * (800 / 871.5 - 800 / 930)
    over_hit = 100 * (800 / 871.5 - 800 / 885)
    assert f"{over_full:+.3f}" in row
    assert f"{over_hit:+.3f}" in row
    assert "58.5 s" in row


def test_json_is_json():
    costs = Costs(work=800.0, failures=2, start=10.0, lost=20.0)
    found = json.loads(json.dumps(project_json(costs, Plans(full=20.0))))
    assert found["cases"][0]["ett"] == 800 / 930


def test_checkpoints_by_hand():
    costs = Costs(work=800.0, failures=2, start=10.0, lost=50.0, save=3.0, interval=100.0)
    assert costs.saving == 9 * 3.0
    assert costs.ett(20.0) == 800 / (800 + 27 + 3 * 30 + 100)
    text = project_text(costs, Plans(full=20.0))
    assert "ETT = W / (W + (W + F L) C / T + (1 + F)(B + P) + F L)" in text
    assert "C 3.0 s blocked per checkpoint, T 100.0 s between checkpoints: 27.0 s" in text
    assert "no checkpoints" not in text


def test_a_save_needs_an_interval():
    with pytest.raises(ValueError, match="`save` needs `interval`"):
        Costs(work=1.0, failures=0, start=0.0, lost=0.0, save=1.0)


@pytest.mark.parametrize(
    "bad", [{"work": 0.0}, {"failures": -1}, {"lost": float("nan")}, {"interval": 0.0}]
)
def test_nonsense_is_refused_by_name(bad):
    good = {"work": 1.0, "failures": 1, "start": 1.0, "lost": 1.0}
    with pytest.raises(ValueError, match=f"`{next(iter(bad))}` must be"):
        Costs(**{**good, **bad})
    with pytest.raises(ValueError, match="`loader` must be"):
        Plans(full=1.0, loader=-1.0)


def test_a_recorded_job_in_numbers(tmp_path):
    first = Rank(tmp_path, launched=0.0, begin=1.0)
    first.do("plan", 4.0).do("shard", 5.0).steps(1, 20, 1.0)
    first.do("checkpoint_save", 2.0)
    first.recorder.checkpoint(20)
    first.steps(21, 26, 1.0).recorder.failure("killed")
    second = Rank(tmp_path, attempt=1, begin=41.0)
    second.do("plan", 2.0).do("shard", 5.0).steps(21, 40, 1.0).recorder.stop()
    report = read_report(tmp_path)
    costs, plan = costs_of_job(report)
    assert (costs.work, costs.failures, costs.lost) == pytest.approx((40.0, 1, 6.0))
    assert plan == pytest.approx(3.0)
    assert costs.start == pytest.approx((1 + 5 + 3 + 5) / 2)
    assert (costs.save, costs.interval) == pytest.approx((2.0, 46.0))
    assert costs.other == pytest.approx(0.0, abs=1e-9)
    assert costs.ett(plan) == pytest.approx(report.ett, abs=1e-9)


def recorded(directory, **plan):
    rank = Rank(directory)
    if plan:
        rank.do("plan", **plan)
    rank.steps(1, 20, 1.0).recorder.stop()
    return read_report(directory)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, {}),
        ({"seconds": 4.0}, {"full": 4.0}),
        ({"seconds": 4.0, "engine": "torchrec"}, {"full": 4.0}),
        ({"seconds": 0.5, "engine": "native", "cache": "miss"}, {"cold": 0.5}),
        ({"seconds": 0.25, "engine": "native", "cache": "hit"}, {"cached": 0.25}),
    ],
)
def test_planning_counts_for_the_planner_that_was_recorded(tmp_path, plan, expected):
    assert recorded_plans(recorded(tmp_path, **plan)) == pytest.approx(expected)


def test_a_job_that_never_trained_can_not_be_projected(tmp_path):
    Rank(tmp_path).do("plan", 1.0).recorder.stop()
    with pytest.raises(ValueError, match="no step was recorded"):
        costs_of_job(read_report(tmp_path))
