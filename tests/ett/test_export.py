"""Exports: the Chrome trace is valid, nested and complete; TensorBoard gets all scalars."""

import json
import sys
import types
from itertools import pairwise

import pytest

from fastplan.ett.arithmetic import read_report
from fastplan.ett.building import load
from fastplan.ett.export import NoTensorBoard, chrome_trace, lanes, scalars, write_scalars
from fastplan.ett.record import Phase
from tests.ett.runs import Rank


@pytest.fixture
def events(tmp_path):
    for number in range(2):
        rank = Rank(tmp_path, number, world=2, recorded=1.0, host="ab"[number], skew=2.0 * number)
        with rank.phase("broadcast", 0.5), rank.phase("plan", 2.0, engine="native"):
            rank.do("reserve", 0.5)
        rank.steps(0, 9, 1.0).short("data_wait", 0.3).do("checkpoint_save", 1.0)
        rank.recorder.checkpoint(9)
        for begin, end in ((2.0, 6.0), (4.0, 9.0)):
            times = (rank._monotonic(begin), rank._monotonic(end))
            rank.recorder.add("checkpoint_upload", *times, background=True)
        rank.steps(10, 12, 1.0)
        rank.recorder.failure("out of <memory>\n")
    Rank(tmp_path, attempt=1, world=2, begin=40.0).do("plan", 1.0).steps(10, 12, 1.0)
    return json.loads(json.dumps(chrome_trace(load(tmp_path))))["traceEvents"]


def spans(events):
    found = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append(event)
    return found


def test_every_event_has_what_the_format_asks_for(events):
    for event in events:
        assert event["ph"] in "XMi"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "t"


def test_spans_of_a_thread_nest(events):
    for own in spans(events).values():
        open_until = []
        for event in sorted(own, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 1e-3:
                open_until.pop()
            end = event["ts"] + event["dur"]
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


def test_processes_are_attempts_and_threads_are_ranks(events):
    named = {
        (event["name"], event["args"]["name"])
        for event in events
        if event["name"].endswith("_name")
    }
    assert {
        ("process_name", "attempt 0"),
        ("process_name", "attempt 1"),
        ("thread_name", "rank 0 on a"),
        ("thread_name", "rank 1 on b"),
        ("thread_name", "rank 0 background"),
    } <= named


def test_every_thread_is_named(events):
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(spans(events)) <= named


def test_the_job_has_no_gaps(events):
    job = sorted(spans(events)[1, 1], key=lambda event: event["ts"])
    for before, after in pairwise(job):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"], abs=1e-3)


def test_phases_have_their_details_and_the_names_of_other_tools(events):
    plan = next(e for e in events if e["name"] == "plan" and "engine" in e["args"])
    assert plan["args"]["goodput"] == "TRAINING_PREP"
    assert plan["args"]["one_logger"] == "model_initialization"
    moments = [event["name"] for event in events if event["ph"] == "i"]
    assert "checkpoint of step 9" in moments
    assert "failure: out of <memory>\n" in moments


def test_phases_that_overlap_get_rows_of_their_own():
    phases = [Phase("a", 0, 10), Phase("b", 2, 4), Phase("c", 8, 12), Phase("d", 12, 14)]
    assert [[p.name for p in row] for row in lanes(phases)] == [["a", "b", "d"], ["c"]]
    assert lanes([]) == []


@pytest.fixture
def report(tmp_path):
    Rank(tmp_path, launched=0.0).do("plan", 4.0).steps(1, 6, 1.0).recorder.failure("killed")
    Rank(tmp_path, attempt=1, begin=12.0).do("plan", 2.0).steps(4, 9, 1.0).recorder.stop()
    return read_report(tmp_path)


def test_there_is_a_scalar_per_attempt(report):
    found = {(tag, number): value for tag, value, number in scalars(report)}
    assert found["ett/percent", 0] == pytest.approx(100 * 3 / 10)
    assert found["ett/percent", 1] == pytest.approx(100 * report.ett)
    assert found["ett/time_to_start_seconds", 0] == pytest.approx(4.0)
    assert found["ett/time_to_recover_seconds", 1] == pytest.approx(4.0)
    assert found["ett/failures", 1] == 1
    assert found["ett_phase_seconds/plan", 0] == pytest.approx(4.0)
    assert found["ett_phase_seconds/lost", 0] == pytest.approx(3.0)


def test_without_tensorboard_the_error_says_what_to_install(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(NoTensorBoard, match="pip install tensorboard"):
        write_scalars(report, tmp_path / "board")


def test_torch_writes_them(report, tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, log_dir):
            written.append(log_dir)

        def add_scalar(self, tag, value, step):
            written.append((tag, value, step))

        def close(self):
            written.append("closed")

    module = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    write_scalars(report, tmp_path / "board")
    assert written == [str(tmp_path / "board"), *scalars(report), "closed"]


def test_event_files_hold_them(report, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_scalars(report, tmp_path / "board")
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    assert [event.step for event in read.Scalars("ett/percent")] == [0, 1]


def test_names_that_no_event_file_can_hold_are_written_as_escapes(tmp_path):
    rank = Rank(tmp_path)
    rank.do("odd \udc80", 5.0).steps(0, 3, 1.0)
    rank.recorder.stop()
    tags = {tag for tag, _, _ in scalars(read_report(tmp_path))}
    assert r"ett_phase_seconds/odd \udc80" in tags
