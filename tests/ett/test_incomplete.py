"""Incomplete jobs: killed, running, or without some of their files."""

import json

import pytest

from fastplan.ett.arithmetic import job_report, read_report
from fastplan.ett.building import build
from fastplan.ett.reading import RecordError, read
from tests.ett.runs import Rank


def close(value):
    return pytest.approx(value, rel=0, abs=1e-9)


def test_a_failed_job_without_checkpoints_has_lost_everything_and_says_so(tmp_path):
    Rank(tmp_path).steps(1, 6, 1.0).recorder.failure("no more")
    report = read_report(tmp_path)
    assert (report.ett, report.lost_steps) == (0.0, 6)
    assert any("no checkpoint was recorded" in note for note in report.notes)


def test_a_rank_that_was_killed_in_a_phase_was_in_it_until_the_end(tmp_path):
    killed = Rank(tmp_path, 0, world=2).steps(1, 3, 1.0)
    phase = killed.phase("checkpoint_save")
    phase.__enter__()
    other = Rank(tmp_path, 1, world=2).steps(1, 3, 1.0)
    other.wait(4.0).recorder.failure("connection closed")
    report = read_report(tmp_path)
    assert report.phases["checkpoint_save"] == close(4.0)
    assert report.attempts[0].cause == (
        "rank 0 stopped without an error message in checkpoint save (killed?); rank 1 noticed: "
        "connection closed"
    )


def test_the_phase_that_a_job_died_in_is_named(tmp_path):
    for number in range(2):
        rank = Rank(tmp_path, number, world=2)
        rank.phase("restore").__enter__()
    report = read_report(tmp_path)
    assert report.attempts[0].cause == (
        "all ranks stopped without an error message in checkpoint restore (killed?)"
    )


def test_a_job_that_still_runs_is_counted_up_to_now(tmp_path):
    Rank(tmp_path).do("plan", 1.0).steps(1, 100, 0.1)
    report = read_report(tmp_path)
    assert report.failures == 0
    assert report.ett > 0.8
    assert any("still running, or killed" in note for note in report.notes)


def test_missing_ranks_are_named(tmp_path):
    for number in (0, 2):
        Rank(tmp_path, number, world=4).steps(1, 3, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.attempts[0].ranks == 2
    assert any("no file of 2 of 4 ranks (1, 3)" in note for note in report.notes)


def test_missing_restarts_are_named_and_counted(tmp_path):
    Rank(tmp_path).steps(1, 3, 1.0)
    Rank(tmp_path, attempt=3, begin=10.0).steps(4, 6, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.failures == 3
    assert any("restarts 1 to 2 left no file" in note for note in report.notes)


def test_a_job_without_steps_says_what_to_do(tmp_path):
    Rank(tmp_path).do("plan", 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.ett == 0.0
    assert report.time_to_start is None
    assert any("call `ett.step(number)`" in note for note in report.notes)


def test_steps_whose_lines_are_damaged_were_trained_on(tmp_path):
    rank = Rank(tmp_path).steps(1, 100, 1.0)
    rank.recorder.stop()
    lines = rank.path.read_text().splitlines(keepends=True)
    middle = next(i for i, line in enumerate(lines) if json.loads(line).get("last", 0) > 40)
    lines[middle] = "x" * len(lines[middle].strip()) + "\n"
    rank.path.write_text("".join(lines))
    report = read_report(tmp_path)
    assert report.productive == close(100.0)
    assert any("1 damaged line" in note for note in report.notes)


def test_two_jobs_in_one_directory_at_the_same_time_are_reported(tmp_path):
    Rank(tmp_path, run="one").steps(1, 30, 1.0).recorder.stop()
    Rank(tmp_path, run="two", begin=10.0).steps(1, 30, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert any("use a separate directory for every job" in note for note in report.notes)
    assert sum(report.phases.values()) == close(report.seconds)


def test_a_helper_process_of_a_rank_is_in_its_background(tmp_path):
    Rank(tmp_path, begin=0.0).do("plan", 2.0).steps(1, 10, 1.0).recorder.stop()
    helper = Rank(tmp_path, begin=3.0).do("decode", 4.0)
    helper.recorder.stop()
    report = read_report(tmp_path)
    assert len(report.attempts) == 1
    assert report.background == {"decode": close(4.0)}
    assert report.phases["training"] == close(10.0)


def test_the_order_of_files_does_not_matter(tmp_path):
    paths = []
    for attempt in range(3):
        for number in range(3):
            rank = Rank(tmp_path, number, world=3, attempt=attempt, begin=20.0 * attempt)
            rank.do("plan", 1.0 + number).steps(5 * attempt, 5 * attempt + 8, 1.0)
            paths.append(rank.path)
    expected = job_report(build([read(path) for path in paths]))
    assert job_report(build([read(path) for path in reversed(paths)])) == expected


@pytest.mark.parametrize(
    "content",
    [b"<!doctype html>\n<p>a page</p>\n" * 1000, b"<p>a page</p>" * 1000, b'{"e":"start\n'],
    ids=["lines", "one line", "damaged"],
)
def test_a_file_of_something_else_is_no_recording_of_a_killed_process(tmp_path, content):
    path = tmp_path / "a.ett.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="not a recording: no line of it can be read"):
        read(path)


@pytest.mark.parametrize("content", [b"", b'{"e":"sta', b"\0" * 4096], ids=["", "cut", "zeros"])
def test_a_recording_without_its_first_line_is_told(tmp_path, content):
    path = tmp_path / "a.ett.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="the process ended before its first line was written"):
        read(path)
