"""Reports and differences as text."""

import json

import pytest

from fastplan.ett.arithmetic import read_report
from fastplan.ett.phases import NAMES, phase_name
from fastplan.ett.text import by_bucket, by_span, diff_json, diff_text, report_json, report_text
from fastplan.report.terminal import Style, display_width
from tests.ett.runs import Rank

BADPUT = {
    "TPU_INITIALIZATION",
    "TRAINING_PREP",
    "PROGRAM_STARTUP",
    "DATA_LOADING_SYNC",
    "DATA_LOADING_ASYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "CUSTOM_BADPUT_EVENTS",
    "OTHER",
}


def make(directory, planning, cause="killed"):
    first = Rank(directory, launched=0.0, begin=1.0)
    first.do("plan", planning, engine="native", cache="miss", parts={"search": 1.5, "build": 0.1})
    first.do("shard", 5.0).steps(1, 20, 1.0)
    first.recorder.checkpoint(20)
    first.steps(21, 24, 1.0).recorder.failure(cause)
    second = Rank(directory, attempt=1, begin=60.0)
    second.do("plan", planning).steps(21, 40, 1.0).do("own <phase>\x1b[31m", 2.0).recorder.stop()
    return read_report(directory)


@pytest.fixture
def report(tmp_path):
    return make(tmp_path / "runs", 4.0)


def test_the_answer_comes_first(report):
    lines = report_text(report).splitlines()
    assert lines[1] == "1 rank, 2 attempts, 86.0 s"
    assert lines[3].startswith("ETT")
    assert f"{100 * report.ett:.1f} %" in lines[3]


def test_everything_that_was_asked_for_is_there(report):
    text = report_text(report)
    for words in ("Time to Start", "Time to Recover", "Failures", "Lost work", "4 steps, 4.0 s"):
        assert words in text
    assert "inside plan on rank 0 (native, cache miss): search 1.5 s" in text
    assert "rank 0: killed" in text


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_lines_fit_and_hold_no_control_characters(tmp_path, width, unicode):
    report = make(tmp_path / "runs", 4.0, cause="a\nb\x1b[2J<script>" + "long " * 50)
    style = Style(width=width, unicode=unicode)
    text = report_text(report, style)
    assert "\x1b" not in text
    if not unicode:
        assert text.isascii()
    if width == 100:
        tables = [line for line in text.splitlines() if line.startswith("  ")]
        assert max(map(display_width, tables)) <= width


@pytest.mark.parametrize("width", [40, 100, 200])
def test_causes_and_times_of_the_planner_are_not_cut(tmp_path, width):
    cause = " ".join(f"word{i}" for i in range(60)) + " /a/long/path" * 20
    report = make(tmp_path / ("runs" * 40), 4.0, cause=cause.replace(" /a", "/a"))
    text = report_text(report, Style(width=width))
    assert f"rank0:{cause.replace(' ', '')}" in "".join(text.split())
    if width >= 100:  # a narrower table has no room for its bars
        assert "…" not in text
    assert report.source in text
    words = " ".join(text.split())
    assert "inside plan on rank 0 (native, cache miss): search 1.5 s, build 100.0 ms" in words


def test_notes_are_printed(tmp_path):
    Rank(tmp_path, world=2).steps(1, 2, 1.0)
    assert "note: attempt 0: no file of 1 of 2 ranks (1)" in report_text(read_report(tmp_path))


def test_json_has_all_of_it(report):
    found = json.loads(json.dumps(report_json(report)))
    assert found["ett"] == report.ett
    assert found["phases"] == report.phases
    assert found["attempts"][0]["plan"]["engine"] == "native"
    assert found["goodput"]["TOTAL"] == report.productive


def test_every_phase_has_a_bucket_of_ml_goodput_measurement():
    buckets = {name.goodput for name in NAMES.values()}
    assert buckets - {"TOTAL"} <= BADPUT
    assert phase_name("something new").goodput == "CUSTOM_BADPUT_EVENTS"
    assert NAMES["training"].goodput == "TOTAL"


def test_buckets_and_spans_add_up(report):
    assert sum(by_bucket(report).values()) == pytest.approx(report.seconds)
    spans = by_span(report)
    assert spans["training_loop"] == pytest.approx(report.productive + report.lost)
    assert spans["model_initialization"] == pytest.approx(8.0 + 5.0)


def test_a_difference_names_points_and_phases(tmp_path, report):
    faster = make(tmp_path / "faster", 0.5)
    text = diff_text(report, faster)
    points = 100 * (faster.ett - report.ett)
    assert f"({points:+.2f} points)" in text
    row = next(line for line in text.splitlines() if line.split()[:1] == ["plan"])
    assert row.split() == ["plan", "8.0", "s", "1.0", "s", "-87.5", "%"]
    assert "\x1b" not in text


def test_a_phase_of_one_job_only_is_new_or_gone(tmp_path, report):
    other = tmp_path / "other"
    Rank(other).do("restore", 1.0).steps(1, 2, 1.0).recorder.stop()
    text = diff_text(report, read_report(other))
    assert any("checkpoint restore" in line and "new" in line for line in text.splitlines())
    assert any("DMP shard" in line and "gone" in line for line in text.splitlines())


def test_a_difference_as_json(tmp_path, report):
    found = json.loads(json.dumps(diff_json(report, make(tmp_path / "faster", 0.5))))
    assert found["phases"]["plan"] == [8.0, 1.0]
    assert found["points"] > 0
