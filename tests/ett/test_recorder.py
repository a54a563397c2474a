"""The recorder: what it writes, when, and how little."""

import threading

import pytest

from fastplan.ett.events import Frame
from tests.ett.runs import Rank, entries, ns


@pytest.fixture
def rank(tmp_path):
    return Rank(tmp_path, begin=0.0, recorded=2.0)


def names(rank, kind="phase"):
    return [entry["name"] for entry in rank.lines() if entry["e"] == kind]


def step_lines(rank):
    found = [entry for entry in rank.lines() if entry["e"] == "steps"]
    return [(entry["first"], entry["last"], entry["d"]) for entry in found]


def test_the_first_line_identifies_the_process(rank):
    first = rank.lines()[0]
    assert (first["e"], first["format"], first["rank"], first["host"]) == ("start", 1, 0, "a")
    assert first["t"] - first["process"] == ns(2.0)


def test_a_phase_at_the_start_is_on_disk_before_it_ends(rank):
    with rank.phase("plan"):
        assert names(rank, "begin") == ["plan"]
        assert names(rank) == []
    assert names(rank) == ["plan"]


def test_a_phase_has_its_details(rank):
    rank.do("plan", 1.0, engine="native", parts={"search": 0.5})
    assert rank.lines()[-1]["more"] == {"engine": "native", "parts": {"search": 0.5}}


def test_short_phases_with_details_do_not_fill_the_disk(rank):
    rank.steps(1, 1, 0.1)
    for number in range(5000):
        frame = Frame("lookup", {"batch": number})
        rank.recorder.begin(frame)
        rank.wait(0.001)
        rank.recorder.end(frame)
    rank.steps(2, 2, 0.1)
    rank.do("lookup", 2.0, batch="a long one").recorder.stop()
    lines = [line for line in rank.lines() if line.get("name") == "lookup" and "d" in line]
    assert len(lines) == 1001
    assert lines[-1]["more"] == {"batch": "a long one"}
    sums = [line["in"]["lookup"] for line in rank.lines() if "in" in line]
    assert sums == [[4000, ns(0.001) * 4000]]


def test_the_first_step_is_on_disk_at_once(rank):
    rank.steps(1, 1, 0.1)
    assert step_lines(rank) == [(1, 1, ns(0.1))]


def test_consecutive_steps_are_one_line(rank):
    rank.steps(0, 8, 0.1)
    assert len(step_lines(rank)) == 1
    rank.steps(9, 1000, 0.1)
    lines = step_lines(rank)
    assert [first for first, _, _ in lines[1:]] == [last + 1 for _, last, _ in lines[:-1]]
    assert sum(d for _, _, d in lines) == ns(0.1) * (lines[-1][1] + 1)
    assert len(lines) < 110


def test_lines_of_steps_become_rarer_but_never_cost_a_killed_job_more_than_a_thousandth(rank):
    rank.steps(0, 86_400, 1.0)
    waits = [d for _, _, d in step_lines(rank)]
    assert max(waits) <= ns(61)
    assert len(waits) < 7000
    age = 0
    for wait in waits:
        age += wait
        assert wait <= max(ns(2), age // 1000 + ns(2))


def test_other_step_numbers_begin_another_line(rank):
    rank.steps(5, 7, 0.1).steps(3, 4, 0.1)
    rank.recorder.stop()
    assert [(first, last) for first, last, _ in step_lines(rank)] == [(5, 5), (6, 7), (3, 4)]


def test_a_checkpoint_ends_the_line_of_steps(rank):
    rank.steps(1, 5, 0.01)
    rank.recorder.checkpoint(5)
    rank.steps(6, 8, 0.01)
    rank.recorder.failure("out of memory")
    kinds = [(e["e"], e.get("last"), e.get("step"), e.get("cause")) for e in rank.lines()[1:]]
    assert kinds == [
        ("steps", 1, None, None),
        ("steps", 5, None, None),
        ("checkpoint", None, 5, None),
        ("steps", 8, None, None),
        ("failure", None, None, "out of memory"),
    ]


def test_short_phases_of_steady_training_are_summed(rank):
    rank.steps(0, 0, 0.1)
    for number in range(1, 21):
        rank.short("data_wait", 0.02).steps(number, number, 0.1)
    rank.recorder.stop()
    assert names(rank) == []
    sums = [entry["in"]["data_wait"] for entry in rank.lines() if "in" in entry]
    assert [sum(column) for column in zip(*sums, strict=True)] == [20, 20 * ns(0.02)]


def test_a_long_phase_of_steady_training_has_its_own_line(rank):
    rank.steps(0, 0, 0.1).short("eval", 1.5).steps(1, 1, 0.1)
    assert names(rank) == ["eval"]


def test_nested_short_phases_count_their_own_time(rank):
    rank.steps(0, 0, 0.1)
    frame = Frame("data_wait")
    rank.recorder.begin(frame)
    rank.wait(0.1).short("decode", 0.2)
    rank.recorder.end(frame)
    rank.recorder.stop()
    rest = rank.lines()[-2]
    assert rest["e"] == "rest"
    assert rest["in"] == {"data_wait": [1, ns(0.1)], "decode": [1, ns(0.2)]}


def test_short_phases_within_a_long_one_are_summed_into_it(rank):
    rank.steps(0, 0, 0.1)
    with rank.phase("eval", 2.0):
        rank.short("data_wait", 0.5).short("data_wait", 0.25)
    assert rank.lines()[-1]["in"] == {"data_wait": [2, ns(0.75)]}


def test_endless_names_take_bounded_memory(rank):
    rank.steps(0, 0, 0.001)
    for number in range(5000):
        rank.short(f"phase {number}", 1e-6)
    rank.recorder.stop()
    sums = rank.lines()[-2]["in"]
    assert len(sums) == 1001
    assert sums["(other names)"][0] == 4000


def test_phases_may_end_in_any_order(rank):
    outer, inner = Frame("outer"), Frame("inner")
    rank.recorder.begin(outer, True)
    rank.recorder.begin(inner, True)
    rank.recorder.end(outer)
    rank.recorder.end(inner)
    assert names(rank) == ["outer", "inner"]
    assert not rank.recorder.is_open()


def test_phases_of_other_threads_are_in_the_background(rank):
    def work():
        frame = Frame("checkpoint_upload")
        rank.recorder.begin(frame)
        assert rank.recorder.in_background()
        rank.recorder.end(frame)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert rank.lines()[-1]["background"] is True
    assert not rank.recorder.in_background()


def test_the_thread_that_trains_holds_training_up(rank):
    def train():
        rank.steps(0, 0, 0.1).short("data_wait", 0.1).steps(1, 1, 0.1)
        assert not rank.recorder.in_background()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    rank.recorder.stop()
    assert any("data_wait" in entry.get("in", {}) for entry in rank.lines())


def test_short_phases_in_the_background_are_kept_apart(rank):
    rank.steps(0, 0, 0.1)
    thread = threading.Thread(target=lambda: rank.short("prefetch", 0.2))
    thread.start()
    thread.join()
    rank.recorder.stop()
    assert rank.lines()[-2]["aside"] == {"prefetch": [1, ns(0.2)]}


def test_names_and_causes_can_hold_anything(rank):
    rank.do('a\n"b"\x00\ud800<script>', 0.1)
    rank.recorder.failure("line one\nline two" + "x" * 10_000)
    lines = rank.lines()
    assert lines[-2]["name"] == 'a\n"b"\x00\ud800<script>'
    assert lines[-1]["cause"].startswith("line one\nline two")
    assert len(lines[-1]["cause"]) == 2000


def test_marks_let_hosts_compare_their_clocks(rank):
    rank.steps(0, 600, 0.01)
    rank.recorder.stop()
    marks = [entry["mark"][0] for entry in rank.lines() if "mark" in entry]
    assert marks[0] == 0
    assert {256, 512} <= set(marks)


def test_nothing_is_written_after_the_end(rank):
    rank.recorder.stop()
    size = rank.path.stat().st_size
    rank.steps(0, 10, 1.0).do("plan", 1.0)
    rank.recorder.checkpoint(3)
    rank.recorder.stop()
    assert rank.path.stat().st_size == size
    assert entries(rank.path)[-1]["e"] == "end"


def test_the_last_step_is_known_at_any_time(rank):
    assert rank.recorder.last_step is None
    rank.steps(4, 4, 0.1)
    assert rank.recorder.last_step == 4
    rank.steps(5, 6, 0.1)
    assert rank.recorder.last_step == 6


def test_threads_lose_nothing(tmp_path):
    rank = Rank(tmp_path)
    rank.steps(0, 0, 0.001)

    def work(name):
        for _ in range(2000):
            frame = Frame(name)
            rank.recorder.begin(frame)
            rank.recorder.end(frame)

    threads = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for number in range(1, 5000):
        rank.recorder.step(number)
    for thread in threads:
        thread.join()
    rank.recorder.stop()
    counted = {}
    for entry in rank.lines():
        for name, (count, _) in entry.get("aside", {}).items():
            counted[name] = counted.get(name, 0) + count
    assert counted == {f"thread {i}": 2000 for i in range(8)}
    assert sum(e["last"] + 1 - e["first"] for e in entries(rank.path, "steps")) == 5000


def test_a_phase_that_is_over_already_counts_within_the_open_one(rank):
    rank.steps(0, 0, 0.1)
    frame = Frame("data_wait")
    rank.recorder.begin(frame)
    begin = rank._monotonic(rank._now)
    rank.wait(0.5)
    rank.recorder.add("imports", begin, begin + ns(0.3))
    rank.recorder.end(frame)
    rank.recorder.stop()
    assert names(rank) == ["imports"]
    assert rank.lines()[-2]["in"] == {"data_wait": [1, ns(0.2)]}
