"""Rows and the file that keeps them."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fastplan.sweep.rows import ResultsFile, SweepResult
from fastplan.sweep.sweep import SweepError
from tests.sweep.samples import failure, row, unfit


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "r.jsonl")
    rows = [row(id="a"), unfit(id="b"), failure(id="c", model='<b>"\n\x1b[31m\u202e\udc80')]
    assert file.read() == {}
    file.append(rows[:1])
    file.append([])
    file.append(rows[1:])
    assert list(file.read().values()) == rows


def test_the_last_row_of_a_cell_counts(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "r.jsonl")
    file.append([failure(), row()])
    assert file.read() == {row().id: row()}


def test_a_torn_line_is_skipped_and_the_next_row_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = ResultsFile(path)
    file.append([row(id="a"), row(id="b")])
    whole = path.read_bytes()
    for cut in (1, 2, 40, len(whole) // 2 - 1):
        path.write_bytes(whole[:-cut])
        file.append([row(id="c")])
        assert set(file.read()) == ({"a", "b", "c"} if cut == 1 else {"a", "c"})


def test_files_can_be_concatenated(tmp_path: Path) -> None:
    parts = [ResultsFile(tmp_path / name) for name in "xy"]
    parts[0].append([row(id="a"), row(id="b")])
    parts[1].append([row(id="c")])
    joined = tmp_path / "joined"
    joined.write_bytes(b"".join(Path(part.path).read_bytes() for part in parts))
    assert set(ResultsFile(joined).read()) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "3",
        "null",
        "[" * 100_000,
        '{"id": "x"}',
        json.dumps({**asdict(row()), "unknown": 1}),
        json.dumps({**asdict(row()), "rating": "fast"}),
        json.dumps({**asdict(row()), "world_size": None}),
        json.dumps({**asdict(row()), "model": ["m"]}),
        json.dumps({**asdict(row()), "rating": float("nan")}),
        json.dumps({**asdict(row()), "model": "m" * 100_000}),
    ],
)
def test_what_is_no_row_is_skipped(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"\n{line}\n{json.dumps(asdict(row(id='after')))}\n")
    assert set(ResultsFile(path).read()) == {"after"}


def test_bytes_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n" + json.dumps(asdict(row())).encode() + b"\n")
    assert len(ResultsFile(path).read()) == 1


@pytest.mark.parametrize("text", ["models: [small.yaml]\n", "\n\n[1]\n", "\0", '{"model": 3}\n'])
def test_somebody_elses_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(SweepError, match="is not a results file: choose another file"):
        ResultsFile(path).read()


def test_a_file_with_the_beginning_of_a_row_is_a_results_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for text in ("", '{"', '{"id": "12', '{"id": "12"}\n{"id": "'):
        path.write_text(text)
        assert ResultsFile(path).read() == {}


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        ResultsFile(tmp_path).append([row()])
    with pytest.raises(FileNotFoundError):
        ResultsFile(tmp_path / "no" / "r.jsonl").append([])


def test_a_disk_that_is_full_half_way_is_an_error_that_names_the_file(tmp_path):
    file = ResultsFile(tmp_path / "r.jsonl")
    file.append([row(id="a")])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(file.path) + 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"r\.jsonl"):
            file.append([row(id="b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(file.read()) == ["a"]
    file.append([row(id="b")])
    assert list(file.read()) == ["a", "b"]


def test_each_append_is_one_write_at_the_end(tmp_path: Path) -> None:
    """So rows of two writers never mix."""
    path = tmp_path / "r.jsonl"
    one, two = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), ResultsFile(path)
    two.append([row(id="a")])
    os.write(one, json.dumps(asdict(row(id="b"))).encode() + b"\n")
    two.append([row(id="c"), row(id="d")])
    os.close(one)
    assert list(two.read()) == ["a", "b", "c", "d"]


def test_answers_are_compared_without_how_they_were_found() -> None:
    assert row().same_answer(row(cache="hit", seconds=9.0, warning="x"))
    assert not row().same_answer(row(rating=11.0))
    assert not row().same_answer(row(batch=1))
    answer = row().answer()
    assert "id" not in answer and answer["rating"] == 10.0


def test_a_result_sorts_its_rows() -> None:
    rows = (row(), unfit(), failure(), replace(row(), cache="failed"))
    result = SweepResult(rows=rows)
    assert result.fitting == (rows[0], rows[3])
    assert result.failed == (rows[2],)
    assert result.unstored == (rows[3],)
