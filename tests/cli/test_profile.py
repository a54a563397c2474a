"""`fastplan profile`, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastplan.cli.main import main
from fastplan.profile import run
from fastplan.profile.state import read_profile
from fastplan.spec.ids import read_statistics
from tests.profile.samples import write_npz

ROOT = Path(__file__).parents[2]

SPEC = """
model: ranker
batch_size: 64
tables:
  - {name: user, rows: 1k, dim: 64}
  - {name: item, rows: 1k, dim: 64, features: [clicks, views], pooling: [1.5, 1.5]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(SPEC)
    for seed in range(4):
        write_npz(tmp_path / f"{seed}.npz", seed)
    return tmp_path


FILES = ("0.npz", "1.npz", "2.npz", "3.npz")


def profile(*words):
    return main(("profile", "model.yaml", *words))


def test_statistics_are_shown_and_written(folder, capsys):
    assert profile(*FILES, "-o", "ids.json", "--html", "ids.html") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["table", "ids", "pooling", "unique"]
    assert lines[1].split()[:3] == ["user", "1,600", "1"]
    assert lines[-1] == "written: ids.json, ids.html"
    found = read_statistics("ids.json")
    assert [*found] == ["user", "item"] and found["item"].samples == 1600
    assert (folder / "ids.html").read_text().startswith("<!doctype html>")
    assert not [*folder.glob("*.state*")]
    # A plan takes them.
    assert main(("plan", "model.yaml", "--sku", "h100", "--world-size", "8", "--quiet",
                 "--statistics", "ids.json", "--no-cache")) == 0  # fmt: skip


def test_figures_are_printed_as_json(folder, capsys):
    assert profile("0.npz", "-o", "ids.json", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in found["tables"]] == ["user", "item"]
    assert found["tables"][0]["ids"] == 400 and found["batch"] == 64


def test_ids_without_a_row_are_told(folder, capsys):
    ids = np.concatenate([np.arange(990, 1010), [-1, -1, 10**12]])
    np.savez("outside.npz", user=ids, clicks=np.arange(1000))
    assert profile("outside.npz", "-o", "ids.json", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tables"][0]["ids"] == 23
    assert "13 of 23 ids of table 'user' are outside its 1,000 rows: " in err
    assert "'item'" not in err


def test_parts_of_workers_are_merged(folder):
    for part in ("0/2", "1/2"):
        words = ("--shard", part, "--state", f"part{part[0]}", "-o", "/dev/null")
        assert profile(*FILES, *words) == 0
    assert profile("--merge", "part0", "part1", "-o", "merged.json") == 0
    assert profile(*FILES, "--jobs", "2", "-o", "ids.json") == 0
    assert read_statistics("merged.json") == read_statistics("ids.json")


def test_a_function_yields_batches(folder):
    words = ("--dataset", "tests.profile.samples:batches", "--batches", "3")
    assert profile(*words, "-o", "ids.json") == 0
    assert read_statistics("ids.json")["user"].ids == 1200


def test_an_interrupt_keeps_what_was_read(folder, capsys, monkeypatch):
    read, units = run.read_unit, []

    def interrupted(*unit):
        units.append(unit)
        if len(units) == 3:
            raise KeyboardInterrupt
        return read(*unit)

    monkeypatch.setattr(run, "read_unit", interrupted)
    assert profile(*FILES, "-o", "ids.json") == 130
    assert "What was read is in ids.json.state: run the same command again" in (
        capsys.readouterr().err
    )
    assert profile(*FILES, "-o", "ids.json") == 0
    assert len(units) == 3 + 2
    assert profile(*FILES, "-o", "again.json") == 0
    assert read_statistics("ids.json") == read_statistics("again.json")


class Interrupted:
    """The command in a process group of its own, interrupted when two workers are at work."""

    def __init__(self, pause, limit):
        words = [pause, limit, "model.yaml", *FILES, "--jobs", "2", "-o", "ids.json"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.profile.slow_profile", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun = set()
        while not {"0.npz", "2.npz"} <= begun:
            line = self._process.stdout.readline()
            assert line, self._process.communicate()
            begun.add(line.strip())
        self.interrupt()

    def interrupt(self):
        os.killpg(self._process.pid, signal.SIGINT)

    def ended(self, seconds):
        """Waits until it and its workers, which have the same stdout, are gone."""
        try:
            _, err = self._process.communicate(timeout=seconds)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.communicate()
        assert self._process.returncode == 130
        assert "Traceback" not in err
        return err


def test_an_interrupt_of_all_processes_keeps_what_workers_read(folder):
    err = Interrupted("0.3", "60").ended(50)
    states = "ids.json.state.0-of-2, ids.json.state.1-of-2"
    assert f"What was read is in {states}: run the same command again to resume" in err
    begun = [read_profile(f"ids.json.state.{part}-of-2") for part in range(2)]
    assert all(state.done == 0 and state.batches > 0 for state in begun)
    assert profile(*FILES, "--jobs", "2", "-o", "ids.json") == 0
    assert profile(*FILES, "--jobs", "2", "-o", "again.json") == 0
    assert read_statistics("ids.json") == read_statistics("again.json")
    assert not [*folder.glob("*.state*")]


def test_workers_that_do_not_stop_are_ended(folder):
    assert "fastplan: interrupted. " in Interrupted("600", "0.5").ended(50)


def test_a_second_interrupt_waits_for_no_worker(folder):
    command = Interrupted("600", "600")
    time.sleep(1.0)
    command.interrupt()
    command.ended(50)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-o", "ids.json"), "give files, --dataset or --merge"),
        (("0.npz", "--batches", "3", "-o", "ids.json"), "--batches is for --dataset"),
        (("--dataset", "a:b", "--jobs", "2", "-o", "ids.json"), "--jobs is for files"),
        (("0.npz", "--limit", "100", "-o", "ids.json"), "--limit must be a power of two"),
        (("0.npz", "--shard", "1/2", "-o", "ids.json", "--state", "0.npz"), "reads that file"),
        (("missing.npz", "-o", "ids.json"), "missing.npz: can't be read"),
        (("--merge", "model.yaml", "-o", "ids.json"), "model.yaml: is not a usable profile"),
        (("0.npz", "--shard", "0/2", "-o", "ids.json"), "--shard 0/2 has none of the 1 files"),
    ],
)
def test_mistakes_are_told(folder, capsys, words, told):
    assert profile(*words) in (1, 2)
    assert told in capsys.readouterr().err
