"""The Chrome trace: valid, nested, complete."""

import json
from itertools import pairwise

import pytest

from fastplan.ett.building import load
from fastplan.ett.reading import Phase
from fastplan.ett.trace import chrome_trace, lanes
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
        ("thread_name", "rank 0 besides"),
    } <= named


def test_every_thread_is_named(events):
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(spans(events)) <= named


def test_the_job_has_no_gaps(events):
    job = sorted(spans(events)[1, 1], key=lambda event: event["ts"])
    for before, after in pairwise(job):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"], abs=1e-3)


def test_phases_carry_what_was_told_and_the_names_of_other_tools(events):
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
