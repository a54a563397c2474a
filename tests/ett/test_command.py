"""`fastplan ett`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastplan.cli.main import main
from tests.ett.processes import environment
from tests.ett.runs import Rank

GIVEN = [word for name in ("work", "start", "lost", "plan") for word in (f"--{name}", "1")]


@pytest.fixture
def runs(tmp_path):
    Rank(tmp_path / "runs", launched=0.0).do("plan", 4.0).steps(1, 20, 1.0).recorder.stop()
    return str(tmp_path / "runs")


def test_a_report(runs, capsys):
    assert main(["ett", "report", runs]) == 0
    assert "ETT" in capsys.readouterr().out


def test_a_report_as_json(runs, capsys):
    assert main(["ett", "report", runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ett"] == pytest.approx(20 / 24)


def test_pages_and_traces_are_written(runs, tmp_path, capsys):
    page, trace = tmp_path / "ett.html", tmp_path / "trace.json"
    assert main(["ett", "report", runs, "--html", str(page), "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(f"written: {page}, {trace}")
    main(["ett", "report", runs])
    report = capsys.readouterr().out
    assert report.strip()
    assert out.startswith(report)
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]


def test_json_stays_json_when_files_are_written(runs, tmp_path, capsys):
    assert main(["ett", "report", runs, "--json", "--html", str(tmp_path / "ett.html")]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 20


def test_several_jobs_are_reported_one_after_the_other(tmp_path, capsys):
    for name in ("one", "two"):
        Rank(tmp_path / name).steps(1, 2, 1.0).recorder.stop()
    assert main(["ett", "report", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.index("/one") < output.index("/two")
    assert main(["ett", "report", str(tmp_path), "--html", "x.html"]) == 1
    assert "about one job" in capsys.readouterr().err


def test_a_difference(runs, capsys):
    assert main(["ett", "diff", runs, runs]) == 0
    assert "(+0.00 points)" in capsys.readouterr().out


def test_a_projection(capsys):
    words = "--work 800 --failures 2 --start 10s --lost 20s --plan 20s --loader 5s --cached 500ms"
    assert main(["ett", "project", *words.split(), "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["ett"] for case in cases] == [800 / 930, 800 / 885, 800 / 871.5]
    assert main(["ett", "project", *words.split()]) == 0
    assert "assuming that" in capsys.readouterr().out


def test_a_projection_takes_weeks(capsys):
    words = "--work 2w --failures 2 --start 10s --lost 20s --plan 20s"
    assert main(["ett", "project", *words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"]["work"] == 14 * 86400


def test_a_projection_of_a_recorded_job(runs, capsys):
    assert main(["ett", "project", "--from", runs, "--failures", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["costs"]["work"] == pytest.approx(20.0)
    assert found["costs"]["failures"] == 3
    assert found["plans"]["full"] == pytest.approx(4.0)


def test_a_job_without_torchrecs_planner_needs_its_time_as_an_option(tmp_path, capsys):
    runs = str(tmp_path / "none")
    Rank(Path(runs)).steps(1, 20, 1.0).recorder.stop()
    assert main(["ett", "project", "--from", runs]) == 1
    assert f"{runs}: no planning was recorded; give" in capsys.readouterr().err
    runs = str(tmp_path / "fast")
    rank = Rank(Path(runs)).do("plan", 0.5, engine="native", cache="off")
    rank.steps(1, 20, 1.0).recorder.stop()
    assert main(["ett", "project", "--from", runs]) == 1
    expected = f"{runs}: its planning is fastplan's, 500.0 ms without a hit of its cache; give"
    assert expected in capsys.readouterr().err
    assert main(["ett", "project", "--from", runs, "--plan", "4s", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert (plans["full"], plans["cold"]) == (4.0, pytest.approx(0.5))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["report", "nowhere"], "nowhere: no such directory"),
        (["project", "--work", "3d"], "--failures and --start and --lost and --plan must be given"),
        (["project", "--work", "soon"], "must be a time such as"),
        (["project", *GIVEN, "--failures", "-1"], "--failures must be"),
        (["reprot", "runs"], "did you mean `report`?"),
    ],
)
def test_errors_name_the_problem(words, expected, capsys):
    assert main(["ett", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("fastplan: error: ")
    assert expected in error


def test_looking_loads_no_torch_and_records_nothing(runs, tmp_path):
    code = """
import sys
from pathlib import Path
from fastplan.cli.main import main
main(["ett", "report", sys.argv[1]])
print([m for m in ("torch", "torchrec", "numba", "numpy") if m in sys.modules], file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", code, runs],
        capture_output=True,
        text=True,
        env=environment(FASTPLAN_ETT=str(tmp_path / "other")),
    )
    assert result.stderr.strip() == "[]"
    assert not (tmp_path / "other").exists()
