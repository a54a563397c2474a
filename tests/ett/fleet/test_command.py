"""`fastplan ett fleet` and `ett diff --html` as users call them."""

import json
import os

import pytest

from tests.cli.command import call
from tests.ett.fleet.samples import mlperf_run, text
from tests.ett.runs import Rank

pytest.importorskip("duckdb")
NEEDED = {"source", "job", "time_to_start_s", "train_s", "ett", "failures", "phases"}


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(3):
        run = mlperf_run(init=60_000 + 1000 * number)
        path = folder / f"v4.{number % 2}-Box-result_{number}.log"
        path.write_bytes(text(run))
        os.utime(path, (1_700_000_000, 1_700_000_000))  # not just now
    return str(folder)


@pytest.fixture
def fleet(capsys, tmp_path, logs):
    def run(*words):
        return call(capsys, "ett", "fleet", logs, "--db", str(tmp_path / "db"), *words)

    return run


def test_json_has_every_job(fleet):
    code, out, _ = fleet("--json")
    document = json.loads(out)
    assert code == 0
    assert all(job.keys() >= NEEDED for job in document["jobs"])
    assert sorted(job["time_to_start_s"] for job in document["jobs"]) == [60.0, 61.0, 62.0]
    assert document["summary"]["jobs"] == 3
    assert (document["read"], document["unchanged"]) == (3, 0)
    assert json.loads(fleet("--json")[1])["unchanged"] == 3


def test_labels_from_paths_group_and_filter(fleet):
    rule = ("--path-labels", "{round}-Box-*.log")
    _, out, _ = fleet(*rule, "--by", "round")
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith("  v4")]
    assert rows[:2] == [["v4.0", "2"], ["v4.1", "1"]]
    assert json.loads(fleet(*rule, "--where", "round=v4.1", "--json")[1])["summary"]["jobs"] == 1
    code, _, error = fleet(*rule, "--where", "round=v9")
    assert code == 1
    assert "no job has these labels" in error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--where", "round"), "--where must be LABEL=VALUE"),
        (("--since", "never"), "--since must be a date"),
        (("--path-labels", "none"), "--path-labels must name labels"),
    ],
)
def test_mistakes_are_named(fleet, words, error):
    code, _, told = fleet(*words)
    assert code == 1
    assert error in told


def test_what_cannot_be_read_is_reported_within_limits(fleet, logs, capsys, tmp_path):
    (tmp_path / "logs" / "loop").symlink_to("loop")
    reason = "logs/loop: Too many levels of symbolic links\n"
    assert fleet()[2].endswith(reason)
    words = ("ett", "gate", logs, logs, "--db", ":memory:")
    assert reason in call(capsys, *words)[2]
    for number in range(22):
        (tmp_path / "logs" / f"{number}").symlink_to("/nowhere")
    _, out, error = fleet("--json")
    assert len(json.loads(out)["problems"]) == 23
    assert error.count("\n") == 21
    assert "3 more paths can't be read; `fastplan ett fleet --json` lists all" in error


def test_a_directory_without_recordings_says_what_to_do(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    words = ("ett", "fleet", str(tmp_path / "empty"), "--db", ":memory:")
    code, _, error = call(capsys, *words)
    assert code == 1
    assert "record jobs with FASTPLAN_ETT=DIR" in error


def test_parquet_has_a_row_per_job(fleet, tmp_path):
    import duckdb

    path = tmp_path / "fleet.parquet"
    assert fleet("--parquet", str(path))[0] == 0
    query = f"SELECT count(*), max(time_to_start_s), max(phases['run']) FROM '{path}'"
    assert duckdb.sql(query).fetchall() == [(3, 62.0, 240.007)]


def test_launches_are_added_and_a_file_that_is_none_is_named(fleet, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("hello")
    code, _, error = fleet("--launches", str(other))
    assert code == 1
    assert "sacct -P" in error
    other.write_text("JobID|Submit|Start\n7|1|2\n")
    assert "no job has a label slurm_job or pod" in fleet("--launches", str(other))[2]


def test_diff_writes_a_page(capsys, tmp_path):
    nasty = "<script>alert(1)</script>"
    for name, plan in (("before", 2.0), ("after", 5.0)):
        rank = Rank(tmp_path / name).do("plan", plan).do(nasty, 1.0).steps(0, 9, 1.0)
        rank.recorder.stop()
    page = tmp_path / "diff.html"
    words = ("ett", "diff", str(tmp_path / "before"), str(tmp_path / "after"))
    assert call(capsys, *words, "--html", str(page))[0] == 0
    shown = page.read_text()
    assert "<script" not in shown
    assert "+150.0 %" in shown
    assert shown.count('class="pair"') == 3
