"""Files are read in any state."""

import json
import os
import random
from functools import partialmethod

import pytest

from fastplan.ett.arithmetic import job_report, read_report
from fastplan.ett.building import build
from fastplan.ett.export import chrome_trace
from fastplan.ett.html import html_report
from fastplan.ett.reading import RecordError, jobs_in, read, read_job
from fastplan.ett.record import Record
from fastplan.ett.text import report_text
from tests.ett.runs import Rank

START = {
    "e": "start",
    "format": 1,
    "t": 1000,
    "wall": 2000,
    "watched": None,
    "run": "job",
    "attempt": 0,
    "rank": 0,
    "world": 1,
    "host": "a",
    "boot": "b",
    "pid": 1,
    "launched": None,
    "process": 500,
}


def write(path, *entries):
    lines = [e if isinstance(e, str) else json.dumps(e) for e in (START, *entries)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.ett.jsonl"


def test_joining_lines_of_steps_early_changes_nothing(tmp_path, monkeypatch):
    rank = Rank(tmp_path).steps(1, 1, 1.0)
    for number in range(2, 400):
        rank.steps(number, number, 1.0).short("lookup", 0.25)
        if number % 100 == 0:
            rank.recorder.checkpoint(number)
    rank.recorder.failure("killed")
    whole = read(rank.path)
    monkeypatch.setattr(Record, "__init__", partialmethod(Record.__init__, join_at=16))
    early = read(rank.path)
    assert early.join_at >= 16
    assert early.steps == whole.steps


def test_phases_beyond_a_limit_are_added_up_and_the_account_stays_the_same(tmp_path, monkeypatch):
    def write(folder):
        rank = Rank(folder).do("shard", 1.0).steps(1, 1, 1.0)
        for number in range(2, 60):
            with rank.phase("eval", 0.25):
                rank.do("data_wait", 0.5)
            rank.do("lookup", 0.125).steps(number, number, 1.0)
        rank.do("publish", 2.0).recorder.stop()
        lines = rank.path.read_text().splitlines(keepends=True)
        # As if none of them had been announced.
        rank.path.write_text("".join(line for line in lines if '"begin"' not in line))
        return folder

    folder = write(tmp_path / "runs")
    whole = read_report(folder)
    monkeypatch.setattr("fastplan.ett.reading.PHASES_KEPT", 10)
    record = read(next(folder.iterdir()))
    assert len(record.phases) == 10
    found = read_report(folder)
    assert found.phases == pytest.approx(whole.phases)
    assert found.ett == pytest.approx(whole.ett)
    assert "166 phases after the first 10 are added up by name" in " ".join(found.notes)


def test_a_missing_directory_is_an_error_with_the_way_out(tmp_path):
    with pytest.raises(RecordError, match="no such directory; run the job with FASTPLAN_ETT"):
        read_job(tmp_path / "none")
    with pytest.raises(RecordError, match="run the job with FASTPLAN_ETT"):
        read_job(tmp_path)


def test_a_directory_of_jobs_is_several_jobs(tmp_path):
    for name in ("one", "two"):
        Rank(tmp_path / name).steps(0, 1, 1.0).recorder.stop()
    assert [job.name for job in jobs_in(tmp_path)] == ["one", "two"]
    assert jobs_in(tmp_path / "one") == [tmp_path / "one"]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "{}\n", "[]\n", "null\n", '{"e": "steps"}\n', "\x00\x00\n", "x" * 100 + "\n"],
)
def test_what_is_no_record_is_named(path, text):
    path.write_text(text)
    with pytest.raises(RecordError, match=r"a\.ett\.jsonl"):
        read(path)


def test_a_file_of_another_format_is_refused_by_name(path):
    path.write_text(json.dumps({**START, "format": 2}) + "\n")
    with pytest.raises(RecordError, match="format 2 is unknown"):
        read(path)


def test_a_bad_file_does_not_spoil_the_others(tmp_path):
    Rank(tmp_path).steps(0, 5, 1.0).recorder.stop()
    (tmp_path / "b.ett.jsonl").write_text("nonsense\n")
    records, problems = read_job(tmp_path)
    assert len(records) == 1
    assert "b.ett.jsonl" in problems[0]


@pytest.mark.parametrize(
    "entry",
    [
        "not json",
        "[" * 100_000,
        [1, 2],
        {"e": "phase", "name": "plan", "t": 1},
        {"e": "phase", "name": "plan", "t": 1, "d": -5},
        {"e": "phase", "name": "plan", "t": "1", "d": 5},
        {"e": "phase", "name": "plan", "t": 10**40, "d": 5},
        {"e": "phase", "name": "plan", "t": 1.5, "d": 5},
        {"e": "phase", "name": "plan", "t": True, "d": 5},
        {"e": "phase", "name": "plan", "t": 1, "d": 5, "in": {"x": 3}},
        {"e": "phase", "name": "plan", "t": 1, "d": 5, "in": {"x": [1, "y"]}},
        {"e": "phase", "name": "plan", "t": 1, "d": 5, "more": 7},
        {"e": "steps", "first": 5, "last": 4, "t": 1, "d": 5},
        {"e": "steps", "first": 5, "last": 6, "t": 1, "d": 5, "mark": [1]},
        {"e": "steps", "first": None, "last": 6, "t": 1, "d": 5},
        {"e": "checkpoint", "t": 1},
        {"e": "failure", "t": 1},
        {"e": "rank", "t": 1, "rank": 1, "world": None},
        {"e": "lost", "t": 1, "lines": "many"},
        {"t": 1},
    ],
)
def test_damaged_lines_are_counted_and_skipped(path, entry):
    good = {"e": "steps", "first": 0, "last": 0, "t": 1000, "d": 10}
    record = read(write(path, entry, good))
    assert [problem for problem in record.problems if "1 damaged line" in problem]
    assert record.phases == []
    assert len(record.steps) == 1


def test_lines_of_a_later_fastplan_are_passed_over(path):
    record = read(write(path, {"e": "weather", "t": 5, "sky": "blue"}))
    assert record.problems == []


def test_a_damaged_line_of_any_length_is_passed_over(path):
    good = {"e": "checkpoint", "t": 5, "step": 3}
    record = read(write(path, "x" * (5 << 20), good))
    assert record.checkpoints == [(3, 5)]


def test_the_rank_may_turn_out_late(path):
    record = read(write(path, {"e": "rank", "t": 5, "rank": 3, "world": 4}))
    assert (record.rank, record.world) == (3, 4)


def test_random_damage_never_raises(tmp_path):
    """Whatever is left of the files, there is an answer, and it adds up."""
    paths = []
    for attempt in range(2):
        for number in range(2):
            rank = Rank(tmp_path, number, world=2, attempt=attempt, begin=60.0 * attempt)
            with rank.phase("broadcast", 0.5):
                rank.do("plan", 2.0, engine="native", parts={"search": 1.0})
            rank.steps(10 * attempt, 10 * attempt + 12, 1.0).short("data_wait", 0.5)
            rank.recorder.checkpoint(10 * attempt + 9)
            rank.do("eval", 3.0).steps(10 * attempt + 13, 10 * attempt + 15, 1.0)
            paths.append(rank.path)
    generator = random.Random(0)
    whole = [path.read_bytes() for path in paths]
    for _ in range(150):
        records = []
        for path, data in zip(paths, whole, strict=True):
            damaged = bytearray(data)
            for _ in range(generator.choice([0, 1, 3, 30])):
                damaged[generator.randrange(len(damaged))] = generator.choice(b'0123456789"{}[],:-')
            lines = damaged.splitlines(keepends=True)
            if generator.random() < 0.3:
                generator.shuffle(lines)
            path.write_bytes(
                b"".join(lines)[: generator.randrange(len(damaged) // 2, len(damaged))]
            )
            try:
                records.append(read(path))
            except RecordError:
                continue
        if records:
            job = build(records, "damaged")
            report = job_report(job)
            assert sum(report.phases.values()) == pytest.approx(report.seconds, rel=1e-9, abs=1e-6)
            assert report_text(report)
            assert html_report(job, report)
            json.dumps(chrome_trace(job))


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path):
    Rank(tmp_path).steps(0, 5, 1.0).recorder.stop()
    os.mkfifo(tmp_path / "b.ett.jsonl")
    records, problems = read_job(tmp_path)
    assert len(records) == 1
    assert "it is a pipe or a device" in problems[0]
