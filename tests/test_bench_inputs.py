"""The benchmark of inputs: what its rows plan, and what it says about slow ones."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from torchrec.distributed.planner.proposers import GreedyProposer

import fastplan
from bench.figures.inputs import replans
from bench.input_kinds import COLD, FOLLOWING, KINDS, LOOSE, Input, Kind, Setting, plan_case
from bench.inputs import Row, measure_size, report, result_of


class OwnProposer(GreedyProposer):
    """A custom proposer, for which TorchRec's own code plans."""

    def propose(self):
        return super().propose()


@pytest.fixture(scope="module")
def result():
    """Every row, measured on a small model."""
    return result_of([measure_size(40, 8, KINDS, runs=2)])


def row_of(result, name):
    (row,) = [row for row in result["sizes"][0]["rows"] if row["name"] == name]
    return row


def test_every_kind_of_input_is_measured_and_shown(result):
    rows = result["sizes"][0]["rows"]
    assert [row["name"] for row in rows] == [kind.name for kind in KINDS]
    assert all(row["n"] == 2 and row["median_seconds"] > 0 for row in rows)
    assert row_of(result, LOOSE)["ratio"] == 1
    shown = report(result)
    assert all(f"\n{kind.name}  " in shown for kind in KINDS)


def test_re_plans_are_shown_relative_to_the_cold_plan(result):
    for name in (COLD, *FOLLOWING.values()):
        row = row_of(result, name)
        row["median_seconds"] = {COLD: 0.02}.get(name, 0.03)
    text = replans(result)
    assert text.count(": 1.50 x |") == len(FOLLOWING)
    assert all(f"| {words} |" in text for words in FOLLOWING)


def test_an_input_far_slower_than_the_loose_one_is_flagged():
    size = {"tables": 1000, "ranks": 64, "rows": []}
    for name, ratio in (
        (LOOSE, 1.0),
        ("towers of 4 tables", 101.0),
        ("distinct constraints", 99.0),
    ):
        times = {"median_seconds": ratio, "quartiles_seconds": [ratio, ratio], "ratio": ratio}
        size["rows"].append({"name": name, "note": "", "n": 3, "placements": 7, **times})
    lines = report(result_of([size])).splitlines()
    assert [line.split()[0] for line in lines if line.endswith("OVER")] == ["towers"]
    assert (
        "(towers of 4 tables) relative to loose: 101 x (at most 100 x: DOES NOT HOLD)" in lines[-1]
    )


class WatchedPath(os.PathLike):
    """A path that records when it is opened."""

    def __init__(self, path, events):
        self._path, self._events = path, events

    def __fspath__(self):
        self._events.append("read")
        return os.fspath(self._path)


def test_the_clock_runs_while_the_previous_plan_is_read(tmp_path, monkeypatch):
    events = []
    setting = Setting(8, 8, tmp_path)
    planner, plan = plan_case(setting.loose)
    fastplan.save_plan(plan, tmp_path / "plan.json", planner=planner)
    previous = WatchedPath(tmp_path / "plan.json", events)
    given = Input(case=setting.loose, arguments=lambda: {"previous": previous})
    clock = SimpleNamespace(process_time=lambda: events.append("clock") or 0.0)
    monkeypatch.setattr("bench.inputs.time", clock)
    Row(Kind("file", lambda _: given), given, "8 x 8").plan_once()
    assert events[0] == events[-1] == "clock"
    assert events.count("clock") == 2
    assert "read" in events


def test_a_row_that_another_engine_plans_is_an_error(tmp_path: Path):
    case = Setting(8, 8, tmp_path).loose
    given = Input(case=case, arguments=lambda: {"proposer": OwnProposer()})
    with pytest.raises(RuntimeError, match=r"8 x 8, own: expected .*'native'.*OwnProposer"):
        Row(Kind("own", lambda _: given), given, "8 x 8").plan_once()
    fails = replace(given, arguments=dict, fails=True)
    with pytest.raises(RuntimeError, match=r"'fails': True.* found .*'fails': False"):
        Row(Kind("own", lambda _: fails), fails, "8 x 8").plan_once()
