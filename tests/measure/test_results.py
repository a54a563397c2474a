"""Folders of measurements, whole and damaged."""

import json
import os

import pytest

from fastplan.measure.results import read_runs
from fastplan.measure.settings import MeasureError
from tests.measure.samples import planned, spec, write_runs


@pytest.fixture
def plans():
    given = spec()
    return {kind: planned(given, kind) for kind in ("table_wise", "row_wise")}


def test_steps_are_those_of_the_slowest_rank(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02}, noise=0)
    runs = read_runs(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    lines[0]["ranks"][1]["steps"][0] = 0.5
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert runs.plans[0].step.median == pytest.approx(0.01)
    assert read_runs(tmp_path).plans[0].steps[0][0] == 0.5


def test_parts_and_memory_are_by_rank(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02}, noise=0)
    own = read_runs(tmp_path).plans[1]
    assert own.rank_parts["lookup"] == pytest.approx((0.004, 0.004))
    assert own.part("backward").median == pytest.approx(0.008)
    assert own.peak_memory == (2 << 20, (2 << 20) + 1)
    assert own.estimated_memory == (1 << 20, 1 << 20)


def test_a_line_that_was_cut_off_is_none(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02})
    text = (tmp_path / "rounds.jsonl").read_text()
    (tmp_path / "rounds.jsonl").write_text(text[:-40])
    runs = read_runs(tmp_path)
    assert [len(plan.steps) for plan in runs.plans] == [10, 9]


def test_a_plan_without_a_finished_round_is_left_out(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02})
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["plan"] == 0]
    (tmp_path / "rounds.jsonl").write_text("\n".join(kept) + "\n")
    (tmp_path / "failures.jsonl").write_text(json.dumps({"text": "row_wise, rank 1: died"}) + "\n")
    runs = read_runs(tmp_path)
    assert [plan.label for plan in runs.plans] == ["table_wise"]
    assert runs.failures == ("row_wise, rank 1: died",)


def test_nothing_measured_is_no_error(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02}, rounds=0)
    runs = read_runs(tmp_path)
    assert (runs.plans, runs.drift, runs.devices) == ((), 0.0, ())


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "nonsense"])
def test_a_folder_without_a_measurement_says_how_to_make_one(tmp_path, text):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(MeasureError, match="fastplan measure -o"):
        read_runs(tmp_path)


def test_another_version_is_refused(tmp_path, plans):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02}, version=2)
    with pytest.raises(MeasureError, match="version 2"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line["ranks"].clear(),
        lambda line: line["ranks"][0].pop("steps"),
        lambda line: line["ranks"][0]["steps"].pop(),
        lambda line: line["ranks"][0]["parts"].update(lookup=["x"]),
    ],
)
def test_damaged_lines_name_the_file(tmp_path, plans, change):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02})
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    change(lines[0])
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(MeasureError, match=r"rounds.jsonl is damaged"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("rounds.jsonl", b"\xff\xfe\n"),
        ("rounds.jsonl", b'{"round": 0}\n'),
        ("rounds.jsonl", b"[" * 5000),
        ("rounds.jsonl", b"5\n"),
        ("failures.jsonl", b"{}\n"),
        ("failures.jsonl", b'{"text": 5}\n'),
    ],
)
def test_lines_that_are_anything_else_are_skipped_or_damaged(tmp_path, plans, file, data):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02})
    (tmp_path / file).write_bytes(data)
    try:
        read_runs(tmp_path)
    except MeasureError as error:
        assert f"{file} is damaged" in str(error)


@pytest.mark.parametrize(
    "change", [{"batch_size": "\x1b[2J"}, {"ranks": -1}, {"model": None}, {"scale_rows": 1e400}]
)
def test_what_is_told_of_the_run_has_its_type(tmp_path, plans, change):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02}, **change)
    with pytest.raises(MeasureError, match=r"run\.json is damaged|has no measurement"):
        read_runs(tmp_path)


@pytest.mark.parametrize("file", ["run.json", "rounds.jsonl", "failures.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, plans, file):
    write_runs(tmp_path, plans, {"table_wise": 0.01, "row_wise": 0.02})
    (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / file)
    with pytest.raises(MeasureError):
        read_runs(tmp_path)
