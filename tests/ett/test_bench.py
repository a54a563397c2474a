"""The benchmark of a real job: what it checks, what it shows, and that it leaves nothing behind."""

import argparse
import json
import signal
import subprocess
import sys
import time

from bench import ett_fake, restart
from bench.ett_check import differing_losses, wrong_starts
from bench.ett_launch import Steps
from bench.ett_report import SHOWN, checks, report
from bench.figures import restart as figures
from bench.results_file import measured_or_shown
from fastplan.measure.processes import descendants, start_time
from tests.cli.command import ROOT
from tests.ett.processes import environment

STEPS = Steps(last=4, saved=2, killed=3)


def leave(folder, attempt, rank=0, **changed):
    """What a rank tells about its start."""
    told = {"searched": False, "hits": 0, "misses": 2, "taken": None, "notes": [], **changed}
    (folder / f"start.{attempt}.{rank}").write_text(json.dumps(told))


def library(folder, attempt, text):
    path = folder / f"compiled.{attempt}" / "ab" / "kernel.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_restart_that_did_what_it_should_is_right(tmp_path):
    leave(tmp_path, 0)
    leave(tmp_path, 1)
    assert wrong_starts("cached", tmp_path, 1) == []
    leave(tmp_path, 1, hits=2, misses=0)
    assert wrong_starts("bundle", tmp_path, 1) == []


def test_a_restart_that_searches_or_compiles_again_is_named(tmp_path):
    for rank in (0, 1):
        leave(tmp_path, 0, rank)
        leave(tmp_path, 1, rank, searched=True, hits=1, misses=rank, notes=["no plan"] * rank)
    library(tmp_path, 0, "one")
    library(tmp_path, 1, "another")
    assert wrong_starts("bundle", tmp_path, 2) == [
        "bundle: the restart searched for a plan",
        "bundle, rank 1: the restart compiled 1 graphs and found 1",
        "bundle, rank 1: no plan",
        "bundle: the restart built ab/kernel.so",
    ]


def test_unexpected_compiled_code_is_named(tmp_path):
    leave(tmp_path, 0, misses=0)
    leave(tmp_path, 1, misses=0)
    assert wrong_starts("fastplan", tmp_path, 1) == [
        "fastplan: the first start compiled nothing",
        "fastplan: the restart found compiled code, although no start saved any",
    ]


def test_another_loss_is_named_by_variant_rank_and_step(tmp_path):
    folders = {name: tmp_path / name for name in ("torchrec", "bundle")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "losses.0.0").write_text("1 0x1p0\n2 0x1p0\n3 0x1p0\n")
        third = "0x1p0" if name == "torchrec" else "0x1p1"
        (folder / "losses.1.0").write_text(f"3 {third}\n4 0x1p0\n")
    assert differing_losses(folders, 1, STEPS) == ["bundle, rank 0, step 3: another loss"]


def job(plan, ett=0.5, scale=1.0):
    start = {"imports": 10.0, "plan": plan, "shard": 0.75, "compile": 1.0, "training": 0.25}
    return {
        "ett": ett,
        "time_to_start": 12.0 * scale,
        "time_to_recover": 6.0 * scale,
        "starts": [{"until_first_step": start}, {"until_first_step": start}],
    }


def result(scales=(1.0,)):
    plans = dict(zip(SHOWN, (8.0, 2.0, 0.5, 0.02, 0.02), strict=True))
    cells = [
        {
            "ranks": 4,
            "jobs": {name: job(plan, 0.5 - plan / 100, scale) for name, plan in plans.items()},
            "differences": [],
        }
        for scale in scales
    ]
    about = {"tables": 9, "steps": {"all": 4, "saved": 2, "killed": 3}, "cpu_count": 2, "cpu": "x"}
    return {**about, "cells": cells, "checks": checks(cells)}


def test_the_tables_have_shares_and_points_over_both_baselines():
    text = report(result())
    row = next(line for line in text.splitlines() if line.startswith(SHOWN["bundle"]))
    assert row.split()[2:] == ["49.98", "%", "+7.98", "+1.98", "12.0", "s", "6.00", "s"]
    share = next(line for line in text.splitlines() if line.startswith("plan, of all"))
    assert share.split()[-10::2] == ["80.00", "50.00", "20.00", "0.99", "0.99"]
    assert "to the bit" in text


def test_repetitions_are_shown_with_their_spread():
    text = report(result((1.0, 2.0, 4.0)))
    assert "n = 3: median (least - most)" in text
    assert "24.0 s (12.0 s - 48.0 s)" in text


def test_differences_take_the_place_of_the_good_news():
    found = result()
    found["cells"][0]["differences"] = ["bundle, rank 0, step 3: another loss"]
    assert report(found).endswith("\nbundle, rank 0, step 3: another loss")


def test_a_result_is_shown_again_without_running_anything(tmp_path):
    (tmp_path / "ett.json").write_text(json.dumps(result()))
    shown = subprocess.run(
        [sys.executable, "-m", "bench.ett", "--show", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    assert shown.stdout == report(result()) + "\n"


def test_a_result_that_is_not_there_cannot_be_shown(tmp_path, capsys):
    arguments = argparse.Namespace(show=True, output=tmp_path)
    assert measured_or_shown(arguments, "ett.json", dict, report) == 2
    assert "measure first" in capsys.readouterr().err


def test_what_recording_costs_is_measured_and_shown_again(tmp_path):
    words = [sys.executable, "-m", "bench.ett_recorder", "--output", str(tmp_path)]
    few = ["--events=2000", "--loops=100", "--repetitions=2"]
    printed, again = (
        subprocess.run(
            words + more, capture_output=True, text=True, check=True, cwd=ROOT, env=environment()
        ).stdout
        for more in (few, ["--show"])
    )
    assert printed == again
    assert "2,000 events in" in printed


def fake_cells(monkeypatch, digests):
    """Two cells of starts that are made up: a digest by variant, None for one that takes long."""
    asked = []

    def run(words, limit):
        asked.append((words[0], words[2]))
        digest = digests.get(words[0], "same")
        return None if digest is None else {"plan": 0.5, "dmp": 0.5, "digest": digest}

    monkeypatch.setattr(ett_fake, "_run", run)
    arguments = argparse.Namespace(
        variants=ett_fake.VARIANTS, grid=[(2, 8), (2, 16)], repetitions=2, limit=60.0
    )
    return ett_fake._measure(arguments), asked


def test_a_planner_that_takes_too_long_is_not_asked_again(monkeypatch):
    result, asked = fake_cells(monkeypatch, {"torchrec": None})
    assert asked.count(("torchrec", "8")) == 1
    assert ("torchrec", "16") not in asked
    assert asked.count(("cached", "16")) == 2
    row = next(line for line in ett_fake._report(result).splitlines() if "2 x 16, TorchRec" in line)
    assert row.split()[4:] == ["over", "60.0", "s", "-", "-", "-"]


def test_another_plan_on_many_ranks_is_named(monkeypatch):
    result, _ = fake_cells(monkeypatch, {"cached": "other"})
    assert result["cells"][0]["differences"] == ["2 x 8: plan cache has another plan than fastplan"]
    assert "has another plan" in ett_fake._report(result)


def restart_result():
    def start(seconds, imports):
        return {"to_first_step": seconds, "until_first_step": {"imports": imports, "compile": 1.0}}

    def job(first, later, cpu):
        starts = [start(first, 8.0), *(start(seconds, seconds - 3) for seconds in later)]
        return {"cpu": cpu, "starts": starts}

    cells = [
        {
            "ranks": 2,
            "repetition": repetition,
            "jobs": {"torchrun": job(20.0, [10.0, 12.0], 50.0), "run": job(16.0, [5.0, 4.0], 30.0)},
            "differences": [],
        }
        for repetition in range(2)
    ]
    return {"tables": 200, "kills": 2, "cpu_count": 2, "cpu": "a CPU", "cells": cells}


def test_restarts_are_shown_with_n_and_spread():
    text = restart.report(restart_result())
    assert "recovery, n = 4, to the first step" in text
    assert "11.0 s (10.0 s - 12.0 s)  4.50 s (4.00 s - 5.00 s)  2.44 x (2.00 x - 3.00 x)" in text
    assert "first start, n = 2, to the first step" in text
    assert "all losses are the same to the bit" in text
    page = figures.recovery(restart_result())
    assert "**2 ranks, recovery, n = 4** | 11.0 s (10.0 s - 12.0 s)" in page
    assert "2 ranks, recovery: Python and imports | 8.00 s | 1.50 s" in page


def test_restarts_with_another_loss_are_named():
    result = restart_result()
    result["cells"][0]["differences"] = ["run, rank 0, step 3: another loss"]
    assert "run, rank 0, step 3: another loss" in restart.report(result)


def test_an_interrupt_leaves_no_process_and_no_result(tmp_path):
    words = ["--tables=4", "--ranks=2", "--variants", "fastplan", f"--output={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.ett", *words, f"--pages={tmp_path}"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as in the background
    )
    tree = {}
    while len(tree) < 3 and process.poll() is None:  # torchrun and two ranks
        tree = {each.pid: start_time(each.pid) for each in descendants(process.pid)}
        time.sleep(0.1)
    process.terminate()  # which goes the way of Ctrl-C
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert told.endswith("interrupted: nothing was written\n")
    assert [pid for pid, start in tree.items() if start_time(pid) == start] == []
    assert list(tmp_path.iterdir()) == []
