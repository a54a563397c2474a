"""Estimates against measurements."""

import json
from dataclasses import replace

import pytest

from fastplan.measure.agreement import agreement, measured_for
from fastplan.measure.results import read_runs
from fastplan.measure.text import agreement_json, agreement_text, runs_json, runs_text
from fastplan.report.comparison import compare
from tests.measure.samples import KINDS, on_one_rank, planned, spec, write_runs


@pytest.fixture
def plans():
    given = spec()
    return {kind: planned(given, kind) for kind in KINDS}


def rating(plan):
    return plan.basis.record.rating


def measured(folder, plans, seconds, **more):
    write_runs(folder, plans, seconds, **more)
    return read_runs(folder)


def agreed(plans, runs):
    return agreement(list(plans.values()), list(plans), runs)


def test_times_like_the_estimates_agree_fully(tmp_path, plans):
    runs = measured(tmp_path, plans, {kind: rating(plan) for kind, plan in plans.items()})
    found = agreed(plans, runs)
    assert tuple(found.tau) == (1, 1, 1)
    assert found.pairs.clear == found.pairs.agreeing
    assert [plan.label for plan in found.plans] == sorted(plans, key=lambda k: rating(plans[k]))


def test_times_in_the_reverse_order_disagree_fully(tmp_path, plans):
    runs = measured(tmp_path, plans, {kind: 1 / rating(plan) for kind, plan in plans.items()})
    found = agreed(plans, runs)
    assert found.tau.value == -1
    assert found.pairs.agreeing == 0


def test_plans_that_take_the_same_time_are_within_noise(tmp_path, plans):
    seconds = dict.fromkeys(plans, 0.01)
    found = agreed(plans, measured(tmp_path, plans, seconds, noise=0.03))
    assert found.pairs.noise == 6
    assert all(plan.like_fastest for plan in found.plans)
    assert found.tau.low < found.tau.high


def test_a_machine_that_is_too_noisy_is_named_with_the_figure(tmp_path, plans):
    runs = measured(tmp_path, plans, dict.fromkeys(plans, 0.01), noise=0.6)
    found = agreed(plans, runs)
    assert found.pairs.clear == 0
    assert found.pairs.unclear > 0
    for text in (agreement_text(found, runs), runs_text(runs)):
        assert "too noisy to tell: one plan changes by " in text
    assert f"too noisy to tell for {found.pairs.unclear}" in agreement_text(found, runs)
    told = agreement_json(found, runs)["plans"]
    assert told[0]["versus_fastest"] is None
    assert {plan["versus_fastest"]["rounds"] for plan in told[1:]} == {10}


def test_a_part_s_factor_is_measured_over_estimated(tmp_path, plans):
    from fastplan.report.analysis import analyse

    runs = measured(tmp_path, plans, dict.fromkeys(plans, 0.01), noise=0)
    found = {part.part: part for part in agreed(plans, runs).parts}
    lookup = found["lookup"]
    for label, estimated in zip(
        [plan.label for plan in agreed(plans, runs).plans], lookup.estimated, strict=True
    ):
        costs = analyse(plans[label]).costs.parts
        assert estimated == pytest.approx(costs["fwd_compute"].max())
    assert lookup.measured == pytest.approx((0.002,) * 4)
    ratios = sorted(2 / estimated for estimated in lookup.estimated)
    assert ratios[1] <= lookup.factor <= ratios[2]
    assert lookup.error > 0


def test_a_part_that_is_not_estimated_has_no_factor(tmp_path, plans):
    copies = {"data_parallel": plans["data_parallel"]}
    runs = measured(tmp_path, copies, {"data_parallel": 0.01})
    found = {part.part: part for part in agreed(copies, runs).parts}
    assert found["input_dist"].factor is None
    assert found["lookup"].factor is not None
    assert found["lookup"].error is None


def test_plans_are_found_by_their_layout_whatever_they_are_called(tmp_path, plans):
    runs = measured(tmp_path, plans, dict.fromkeys(plans, 0.01))
    renamed = {f"copy of {kind}": plan for kind, plan in plans.items()}
    assert len(agreed(renamed, runs).plans) == 4
    assert set(measured_for(list(renamed.values()), list(renamed), runs)) == set(renamed)


def test_of_the_same_layout_twice_the_label_decides(tmp_path, plans):
    twice = {"a": plans["table_wise"], "b": plans["table_wise"]}
    runs = measured(tmp_path, twice, {"a": 0.01, "b": 0.03}, noise=0)
    found = measured_for(list(twice.values()), list(twice), runs)
    assert found["a"].median == pytest.approx(0.01)
    assert found["b"].median == pytest.approx(0.03)


def test_plans_that_were_not_measured_are_left_out(tmp_path, plans):
    some = {"table_wise": plans["table_wise"]}
    runs = measured(tmp_path, some, {"table_wise": 0.01})
    found = agreed(plans, runs)
    assert [plan.label for plan in found.plans] == ["table_wise"]
    assert found.tau is None
    assert "too few plans" in agreement_text(found, runs)
    nothing = agreed({"row_wise": plans["row_wise"]}, runs)
    assert agreement_text(nothing, runs) == "none of these plans was measured\n"


def test_plans_without_estimates_are_shown_without(tmp_path, plans):
    bare = {"bare": on_one_rank(plans["table_wise"]), **plans}
    runs = measured(tmp_path, bare, dict.fromkeys(bare, 0.01))
    found = agreed(bare, runs)
    assert {plan.label: plan.estimated for plan in found.plans}["bare"] is None
    assert sum(found.pairs) == 6


def test_equal_estimates_have_no_order(tmp_path, plans):
    twice = {"a": plans["table_wise"], "b": replace(plans["table_wise"])}
    runs = measured(tmp_path, twice, {"a": 0.01, "b": 0.03})
    found = agreed(twice, runs)
    assert "the estimates of all plans are equal" in agreement_text(found, runs)
    assert agreement_json(found, runs)["tau"] is None


def test_a_comparison_takes_the_measurements(tmp_path, plans):
    seconds = {kind: 0.01 * (i + 1) for i, kind in enumerate(plans)}
    runs = measured(tmp_path, plans, seconds)
    labels, given = list(plans), list(plans.values())
    found = compare(given, labels=labels, measured=measured_for(given, labels, runs), force=True)
    assert found.measured[1].median == pytest.approx(0.02, rel=0.05)
    assert set(found.measured[0].rank_seconds) == {
        "input_dist", "lookup", "output_dist", "backward"
    }  # fmt: skip


def test_texts_say_what_to_know_before_trusting_them(tmp_path, plans):
    runs = measured(tmp_path, plans, dict.fromkeys(plans, 0.01), scale_rows=8)
    (tmp_path / "failures.jsonl").write_text(json.dumps({"text": "x\x1b[31m, rank 1: died"}))
    runs = read_runs(tmp_path)
    for text in (agreement_text(agreed(plans, runs), runs), runs_text(runs)):
        assert "divided by 8" in text
        assert "not measured: x\\x1b[31m, rank 1: died" in text
        assert "\x1b" not in text


def test_names_cannot_draw_on_the_terminal(tmp_path, plans):
    odd = {"a\nb\x1b[2J\u202e": plans["table_wise"]}
    runs = measured(tmp_path, odd, dict.fromkeys(odd, 0.01))
    for text in (agreement_text(agreed(odd, runs), runs), runs_text(runs)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "a\\x0ab" in text


def test_json_is_json(tmp_path, plans):
    runs = measured(tmp_path, plans, dict.fromkeys(plans, 0.01))
    told = json.loads(json.dumps(agreement_json(agreed(plans, runs), runs), allow_nan=False))
    assert {part["part"] for part in told["parts"]} == {
        "input_dist", "lookup", "output_dist", "backward"
    }  # fmt: skip
    assert told["plans"][0]["steps"] == 50
    told = json.loads(json.dumps(runs_json(runs), allow_nan=False))
    assert told["plans"][0]["step"]["n"] == 50
