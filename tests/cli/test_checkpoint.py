"""`fastplan checkpoint`: what it shows and writes."""

import json
import subprocess
import sys

import pytest

from tests.checkpoint.samples import KEY, whole_plan, write, write_plan
from tests.cli.command import ROOT, call, environment


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "old")


def test_inspect_shows_tables_and_states(capsys, source):
    code, out, err = call(capsys, "checkpoint", "inspect", str(source))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    row = next(line for line in lines if KEY.format(0) in line)
    assert row.split()[1:4] == ["6", "x", "8"]
    assert "momentum1 (rowwise)" in row
    assert lines[-1].startswith("2 tables, 2 other values of ")
    assert "without a plan" in lines[-1]


def test_inspect_prints_json(capsys, source):
    code, out, _ = call(capsys, "checkpoint", "inspect", str(source), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["tables"][0]["key"] == KEY.format(0)
    assert found["tables"][0]["bytes"] == 6 * 8 * 4 + 6 * 4
    assert found["has_plan"] is False


def test_convert_writes_what_inspect_shows(capsys, tmp_path, source):
    plan = write_plan(tmp_path / "plan.json")
    words = [str(source), "--plan", str(plan), "-o", str(tmp_path / "new")]
    code, out, err = call(capsys, "checkpoint", "convert", *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"written: {tmp_path / 'new'} (")
    _, out, _ = call(capsys, "checkpoint", "inspect", str(tmp_path / "new"))
    assert "row_wise fused in 3 on ranks 0-2" in out
    assert "with its plan" in out


def test_errors_name_the_checkpoint(capsys, tmp_path, source):
    code, out, err = call(capsys, "checkpoint", "inspect", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith(f"fastplan: error: {tmp_path}: no checkpoint here")
    words = [str(source), "--plan", str(whole_plan(tmp_path / "p.json")), "-o", str(source)]
    code, _, err = call(capsys, "checkpoint", "convert", *words)
    assert code == 1
    assert "exists already" in err


def test_the_commands_run_without_torchrec(tmp_path, source):
    """They need torch only: a checkpoint may be converted where no job runs."""
    plan = write_plan(tmp_path / "plan.json")
    code = (
        "import sys; sys.modules['torchrec'] = None; from fastplan.cli.main import main; "
        f"sys.exit(main(['checkpoint', 'convert', {str(source)!r}, '--plan', {str(plan)!r}, "
        f"'-o', {str(tmp_path / 'new')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / ".metadata").exists()
