"""Regressions: a test with a known rate of false alarms, and a gate for CI."""

import json
import random

import numpy as np
import pytest

from bench.fleet_gate import ALLOWED, draw, false_alarms, found
from fastplan.ett.fleet.compare import LEVEL, compare_figure, compare_jobs, phases_of_start
from fastplan.ett.fleet.gate_text import gate_text
from tests.cli.command import call
from tests.ett.fleet.samples import row

pytest.importorskip("duckdb")


def group(count, start=100.0, seed=0, **changes):
    """Jobs whose starts vary by 5 %."""
    dice = random.Random(seed)
    jobs = []
    for number in range(count):
        plan = start / 2 * dice.lognormvariate(0.0, 0.05)
        other = 50.0 * dice.lognormvariate(0.0, 0.05)
        values = {"time_to_start_s": plan + other, "start": {"plan": plan, "compile": other}}
        jobs.append(row(number, **values, **changes))
    return jobs


def test_p_is_that_of_mann_and_whitney():
    # Few jobs: all 252 orders are counted. One of them puts the last five last.
    few = compare_figure("x", [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], allowed=0.05)
    assert not few.decided
    assert few.p is None
    eight = compare_figure("x", range(1, 9), range(9, 17), allowed=0.05)
    assert eight.p == pytest.approx(1 / 12870)
    # Many jobs, some of them equal: against orders that are drawn.
    old, new = np.arange(100.0) + 1000, np.arange(100.0) + 1005
    dice, both = np.random.default_rng(0), np.concatenate([old, new])
    ranks = np.array([np.mean(np.flatnonzero(np.sort(both) == value)) for value in both])
    drawn = [dice.permutation(ranks)[100:].sum() >= ranks[100:].sum() for _ in range(4000)]
    many = compare_figure("x", old, new, allowed=0.0)
    assert many.p == pytest.approx(np.mean(drawn), abs=0.02)
    assert many.p == pytest.approx(0.117, abs=0.001)  # U = 5487.5 of 10,000 pairs


def test_the_change_is_the_median_ratio_whatever_outliers_do():
    dice = np.random.default_rng(3)
    old = 100 * np.exp(dice.normal(0, 0.02, 150))
    new = 110 * np.exp(dice.normal(0, 0.02, 150))
    new[:5] *= 50
    result = compare_figure("x", old, new, allowed=0.05)
    assert result.change == pytest.approx(0.10, abs=0.01)
    assert result.interval[0] < 0.10 < result.interval[1]
    assert result.interval[1] - result.interval[0] < 0.03
    assert result.regressed


def test_a_small_change_that_rules_the_limit_out_is_accepted():
    dice = np.random.default_rng(4)
    old, new = (100 * f * np.exp(dice.normal(0, 0.02, 500)) for f in (1.0, 1.02))
    result = compare_figure("x", old, new, allowed=0.05)
    assert result.p < LEVEL
    assert not result.regressed
    assert compare_figure("x", old, new, allowed=0.01).regressed


def test_faster_is_never_a_regression():
    dice = np.random.default_rng(5)
    old, new = (100 * f * np.exp(dice.normal(0, 0.02, 50)) for f in (1.0, 0.8))
    assert not compare_figure("x", old, new, allowed=0.0).regressed


def test_equal_values_are_no_change():
    result = compare_figure("x", [5.0] * 50, [5.0] * 50, allowed=0.05)
    assert (result.change, result.regressed) == (0.0, False)


def test_a_seeded_regression_is_found_and_false_alarms_are_rare():
    """The figures of the benchmark, with fewer repetitions."""
    assert false_alarms(200, 0.05, 100) <= 1
    assert false_alarms(200, 0.10, 100) <= 1
    assert found(200, 0.05, 20) == 20
    assert draw(np.random.default_rng(0), 10, 0.05, 1.0).min() > 0
    assert ALLOWED == 0.05


def test_another_mix_of_models_is_no_regression_within_the_model():
    before = [
        *group(60, 50.0, 1, labels={"model": "s"}),
        *group(20, 500.0, 2, labels={"model": "l"}),
    ]
    after = [
        *group(20, 50.0, 3, labels={"model": "s"}),
        *group(60, 500.0, 4, labels={"model": "l"}),
    ]
    (mixed,) = compare_jobs(before, after, ["time_to_start"], allowed=0.05)
    assert mixed.regressed
    (fair,) = compare_jobs(before, after, ["time_to_start"], allowed=0.05, within="model")
    assert not fair.regressed


def test_the_text_says_which_phase_and_by_how_much():
    before, after = group(100, 100.0, 1), group(100, 130.0, 2)
    decided = compare_jobs(before, after, ["time_to_start"], allowed=0.05)
    inner = compare_jobs(before, after, phases_of_start(after), allowed=0.05)
    text = gate_text(decided, inner, 0.05)
    assert text.startswith("regression: Time to Start +15.")
    assert "most of it in plan (+15." in text
    assert "100 + 100" in text


@pytest.fixture
def csvs(tmp_path):
    """Phases as CSV, which is quick to write: a group of jobs before, and some after."""

    def write(name, jobs, day=0.0):
        folder = tmp_path / name
        folder.mkdir()
        lines = ["job,phase,begin,end"]
        for number, job in enumerate(jobs):
            at = 1_767_225_600 + 86_400 * (day + number / 100)
            for phase, took in (*job.start.items(), ("training", 500.0)):
                lines.append(f"j{number},{phase},{at},{at + took}")
                at += took
        (folder / "phases.csv").write_text("\n".join(lines))
        return str(folder)

    return write


def test_the_text_says_whether_jobs_became_faster():
    before, same, faster = group(100), group(100, seed=1), group(100, start=80.0, seed=2)
    verdicts = []
    for after in (same, faster):
        found = compare_jobs(before, after, ["time_to_start"], allowed=0.05)
        verdicts.append(gate_text(found, [], 0.05).splitlines()[0])
    assert verdicts[0].endswith("not a proven change")
    assert verdicts[1].endswith("faster")


def test_the_command_exits_with_2_for_a_regression(capsys, tmp_path, csvs):
    before, after = csvs("before", group(60, 100.0, 1)), csvs("after", group(60, 120.0, 2))
    same = csvs("same", group(60, 100.0, 3))
    db = ("--db", str(tmp_path / "db"))
    code, out, _ = call(capsys, "ett", "gate", before, after, *db)
    assert (code, out.splitlines()[0][:30]) == (2, "regression: Time to Start +10.")
    code, out, _ = call(capsys, "ett", "gate", before, same, *db)
    assert (code, out[:18]) == (0, "ok: Time to Start ")
    code, out, _ = call(capsys, "ett", "gate", before, after, *db, "--phase", "compile", "--json")
    document = json.loads(out)
    assert (code, document["regressed"]) == (0, [])
    assert document["figures"][0]["n"] == [60, 60]
    code, _, error = call(capsys, "ett", "gate", before, after, *db, "--phase", "nope")
    assert code == 1
    assert "phases of starts are plan, compile" in error


def test_the_last_days_of_a_fleet_are_a_baseline(capsys, tmp_path, csvs):
    csvs("fleet", group(60, 200.0, 1), day=-60.0)
    recent = csvs("fleet/recent", group(60, 100.0, 2), day=-5.0)
    after = csvs("fleet/new", group(60, 115.0, 3))
    assert recent
    words = ("ett", "gate", str(tmp_path / "fleet"), after, "--db", str(tmp_path / "db"))
    assert call(capsys, *words)[0] == 0  # faster than two months ago
    code, out, _ = call(capsys, *words, "--last", "14d")
    assert code == 2
    assert "60 + 60" in out


def test_too_few_jobs_are_undecided(capsys, tmp_path, csvs):
    before, after = csvs("before", group(3, 100.0, 1)), csvs("after", group(3, 500.0, 2))
    code, out, _ = call(capsys, "ett", "gate", before, after, "--db", str(tmp_path / "db"))
    assert (code, out.splitlines()[0]) == (
        0,
        "undecided: Time to Start: 3 jobs on a side are too few to tell",
    )
