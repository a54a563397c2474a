"""`--optimize`, as a user runs it."""

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import DirectoryStore
from fastplan.cli import output
from fastplan.cli.main import main
from fastplan.cli.output import Countdown, Progress
from fastplan.plans.file import read_plan

SPEC = """
model: dlrm
batch_size: 4096
tables:
  - {name: t0, rows: 40M, dim: 128, pooling: 3}
  - {name: t1, rows: 4M, dim: 64, pooling: 30}
  - {name: t2, rows: 8M, dim: 64, pooling: 11}
  - {name: t3, rows: 9M, dim: 128, pooling: 7}
  - {name: t4, rows: 9M, dim: 32, pooling: 9}
"""
# Too large for a search that ends by itself.
LARGE = "model: dlrm\nbatch_size: 4096\ntables:\n" + "".join(
    f"  - {{name: t{i}, rows: {3_000_017 * (i % 7 + 1) + i}, dim: {32 * (i % 4 + 1)}, "
    f"pooling: {i % 11 + 1}}}\n"
    for i in range(60)
)
MOVES = ("--optimize", "--move-budget", "20000")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def rest_of(screen):
    """What is left to read of a terminal whose other end is closed."""
    told = b""
    with contextlib.suppress(OSError):  # Linux's answer at the end
        while more := os.read(screen, 4096):
            told += more
    os.close(screen)
    return told.decode()


def plan(spec, *words):
    return main(("plan", spec, "--sku", "h100", "--world-size", "8", "--no-cache", *words))


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_the_plan_is_better_and_its_gap_is_told(spec, tmp_path, capsys):
    assert plan(spec, "--json") == 0
    torchrec = printed(capsys)
    file = str(tmp_path / "plan.json")
    assert plan(spec, *MOVES, "--json", "-o", file) == 0
    better = printed(capsys)
    assert torchrec["gap"] is None
    assert better["rating"] < torchrec["rating"]
    assert better["lower_bound"] <= better["rating"]
    assert better["gap"] == pytest.approx(better["rating"] / better["lower_bound"] - 1)
    assert float(better["notes"]["torchrec_default"]) == torchrec["rating"]
    assert better["notes"]["stopped_by"] in ("moves", "optimal")
    assert float(read_plan(file).notes["lower_bound"]) == better["lower_bound"]
    assert main(("inspect", file)) == 0
    assert "no plan is below" in capsys.readouterr().out


def test_moves_repeat_to_the_bit_on_any_number_of_threads(spec, capsys):
    for threads in ("1", "2"):
        texts = []
        for _ in range(2):
            assert plan(spec, *MOVES, "--threads", threads, "--seed", "5", "--json") == 0
            found = printed(capsys)
            texts.append([found["rating"], found["tables"]])
        assert texts[0] == texts[1]


def test_a_cache_keeps_the_bound(spec, tmp_path, capsys):
    words = ("plan", spec, "--sku", "h100", "--world-size", "8", "--cache", str(tmp_path / "plans"))
    found = []
    for more in ((), MOVES, MOVES):
        assert main((*words, *more, "--json")) == 0
        found.append(printed(capsys))
    assert [each["notes"]["cache"] for each in found] == ["miss", "miss", "hit"]
    assert found[1]["lower_bound"] == found[2]["lower_bound"]
    assert found[0]["lower_bound"] is None


def test_a_bundle_of_a_plan_file_keeps_the_bound(spec, tmp_path, capsys):
    file, bundle, cache = (str(tmp_path / name) for name in ("plan.json", "start.bundle", "plans"))
    assert plan(spec, *MOVES, "-o", file, "--json") == 0
    made = printed(capsys)
    assert main(("bundle", "save", "-o", bundle, "--plans", file)) == 0
    assert main(("bundle", "load", bundle, "--cache", cache)) == 0
    capsys.readouterr()
    words = ("plan", spec, "--sku", "h100", "--world-size", "8", "--cache", cache)
    assert main((*words, *MOVES, "--json")) == 0
    found = printed(capsys)
    assert found["notes"]["cache"] == "hit"
    assert found["lower_bound"] == made["lower_bound"]


@pytest.mark.parametrize("rules", [(), ("--pin", "t0=3"), ("--together", "t1,t2")])
def test_a_cached_plan_has_the_bound_that_its_certificate_proves(spec, tmp_path, rules, capsys):
    words = ("plan", spec, "--sku", "h100", "--world-size", "8", "--json", *MOVES, *rules)
    words += ("--cache", str(tmp_path / "plans"))
    store = DirectoryStore(tmp_path / "plans")
    found = []
    for certificate in (None, b"forged", b""):
        assert main(words) == 0
        found.append(printed(capsys))
        (stored,) = store.entries()
        ((name, data),) = store.read(stored.key)
        entry = decode(data)
        assert "lower_bound" not in entry.provenance
        if certificate is not None:
            told = {**entry.provenance, "lower_bound": found[0]["rating"]}
            changed = replace(entry, certificate=certificate, provenance=told)
            store.write(stored.key, name, encode(changed))
    assert main(words) == 0
    found.append(printed(capsys))
    assert [each["notes"]["cache"] for each in found] == ["miss", "hit", "hit", "hit"]
    assert found[1]["lower_bound"] == found[0]["lower_bound"]
    assert found[2]["lower_bound"] is found[3]["lower_bound"] is None
    assert {each["rating"] for each in found} == {found[0]["rating"]}
    assert main(("cache", "show", stored.key, "--cache", str(tmp_path / "plans"))) == 0
    assert "lower_bound" not in capsys.readouterr().out


def test_pins_and_other_measures(spec, capsys):
    words = ("--pin", "t0=3", "--together", "t1,t2", "--minimize", "memory", "--within", "5%")
    assert plan(spec, *MOVES, *words, "--json") == 0
    found = printed(capsys)
    assert found["rating"] >= found["lower_bound"]
    assert plan(spec, *MOVES, "--pin", "nobody=3") == 1
    assert "no table nobody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seed", "3"), "--seed is for --optimize"),
        (("--optimize", "--threads", "0"), "--threads must be between 1 and 256, not 0"),
        (("--optimize", "--time-budget", "-1"), "--time-budget must be a positive number, not -1"),
        (("--optimize", "--within", "much"), "--within: must be a part such as 5% or 0.05"),
        (("--optimize", "--within", "2"), "write 2% or 0.02"),
        (("--optimize", "--pin", "t0=x"), "TABLE=RANK"),
        (("--optimize", "--pin", "t0"), "'t0' must be TABLE=RANK"),
        (("--optimize", "--pin", "=3"), "'=3' must be TABLE=RANK"),
        (("--optimize", "--pin", "t0=3", "--pin", "t0=4"), "the table 't0' twice, with 3 and 4"),
        (("--optimize", "--together", "t0"), "--together must name two tables"),
        (("--optimize", "--minimize", "cost"), "unknown --minimize `cost`"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(spec, words, told, capsys):
    assert plan(spec, *words) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("follows", [False, True], ids=["new", "follows"])
def test_an_interrupt_gives_the_best_plan_so_far(follows, tmp_path):
    spec = str(tmp_path / "large.yaml")
    Path(spec).write_text(LARGE)
    words = ("plan", spec, "--sku", "h100", "--world-size", "8", "--no-cache", "--json")
    if follows:
        file = str(tmp_path / "old.json")
        assert plan(spec, "-o", file, "--quiet") == 0
        words += ("--previous", file)
    screen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fastplan", *words, "--optimize", "--time-budget", "15"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    # The progress on the terminal shows that it is at work.
    told = ""
    while "improving the plan" not in told:
        told += os.read(screen, 4096).decode()
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    told += rest_of(screen)
    assert process.returncode == 130
    assert "interrupted; this is the best plan so far" in told
    found = json.loads(out)
    assert found["notes"]["stopped_by"] == "interrupted"
    assert found["lower_bound"] <= found["rating"]


def test_precompute_takes_it_too(spec, tmp_path, capsys):
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(f"models: [{spec}]\nskus: [h100]\nworld_sizes: [8]\n")
    words = ("precompute", str(sweep), "--json", "--jobs", "1", "--no-cache")
    rows = []
    for more in ((), MOVES):
        assert main((*words, *more)) == 0
        rows += printed(capsys)["rows"]
    assert rows[1]["rating"] < rows[0]["rating"]
    assert rows[0]["lower_bound"] is None
    assert rows[1]["lower_bound"] <= rows[1]["rating"]
    assert rows[0]["id"] != rows[1]["id"]


def test_a_sweep_has_the_bounds_of_cached_plans(spec, tmp_path, capsys):
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(f"models: [{spec}]\nskus: [h100]\nworld_sizes: [8]\n")
    words = ("precompute", str(sweep), "--json", "--jobs", "1", *MOVES)
    rows = []
    for _ in range(2):
        assert main((*words, "--cache", str(tmp_path / "plans"))) == 0
        rows += printed(capsys)["rows"]
    assert [row["cache"] for row in rows] == ["miss", "hit"]
    assert rows[0]["lower_bound"] == rows[1]["lower_bound"] > 0


def test_a_countdown_shows_what_is_left_of_long_work(monkeypatch):
    monkeypatch.setattr(output, "_PATIENCE", 0.0)
    monkeypatch.setattr(output, "_REFRESH", 0.001)
    shown = Screen()
    with Countdown("working", 0.01, stream=shown):
        deadline = time.monotonic() + 60
        while "100 %" not in shown.getvalue() and time.monotonic() < deadline:
            time.sleep(0)
    assert "working 100 % (0 s left)" in shown.getvalue()


def test_a_pipe_gets_no_progress():
    for stream, is_shown in ((Screen(), True), (io.StringIO(), False)):
        times = itertools.count(0, 100)
        with Progress("working", 10, stream=stream, clock=lambda times=times: next(times)) as work:
            work.reach(5)
        assert ("working" in stream.getvalue()) == is_shown


def test_a_countdown_of_unknown_length_shows_nothing():
    shown = io.StringIO()
    with Countdown("working", None, stream=shown):
        pass
    assert shown.getvalue() == ""
