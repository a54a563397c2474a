"""Groups that end well, die, hang and are interrupted: what is told, and that nobody is left."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastplan.measure.launch import run_group
from fastplan.measure.processes import descendants, status
from fastplan.measure.settings import LaunchSettings, WorkerConfig

WORKER = "tests.measure.light_worker"
ROOT = Path(__file__).resolve().parents[2]


def launched(folder, do, timeout=60.0):
    WorkerConfig(task="test", device="cpu", timeout=timeout, settings={"do": do}).write(folder)
    group = LaunchSettings(device="cpu", ranks_per_host=2, timeout=timeout)
    return run_group(folder, group, worker=WORKER)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What came of every case, all at once: most of the time goes into torchrun's start."""
    limits = {"stop": 12.0, "lag": 12.0}
    cases = ("end", "kill", "fault", *limits)
    folders = {case: tmp_path_factory.mktemp(case) for case in cases}
    with ThreadPoolExecutor(4) as pool:
        found = {
            case: pool.submit(launched, folders[case], case, limits.get(case, 60.0))
            for case in cases
        }
        return {case: (folders[case], future.result()) for case, future in found.items()}


def left(folder):
    """The processes of a folder that are still there."""
    pids = [int(file.read_text()) for file in folder.glob("pid-*")]
    assert pids
    return [pid for pid in pids if status(pid) not in ("", "zombie")]


def test_a_group_that_ends_well_has_no_failure(ended):
    assert ended["end"][1] is None


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("kill", "killed by SIGKILL"),
        ("fault", "out of memory: MemoryError"),
        ("stop", "no progress for 12 s while sharding the model (stopped)"),
        ("lag", "no progress for 12 s while sharding the model"),
    ],
)
def test_the_rank_the_plan_and_the_reason_are_named(ended, case, words):
    failure = ended[case][1]
    assert failure.ranks == (1,)
    assert (failure.plan, failure.round) == (1, 2)
    assert words in failure.reason


@pytest.mark.parametrize("case", ["end", "kill", "fault", "stop", "lag"])
def test_no_process_is_left_behind(ended, case):
    assert left(ended[case][0]) == []


def interrupted(folder, number):
    """Starts a group that hangs in a process of its own, and ends that by a signal."""
    WorkerConfig(task="test", device="cpu", timeout=300, settings={"do": "lag"}).write(folder)
    code = (
        "from pathlib import Path\n"
        "from fastplan.measure.launch import run_group\n"
        "from fastplan.measure.settings import LaunchSettings\n"
        "group = LaunchSettings(device='cpu', ranks_per_host=2, timeout=300)\n"
        f"run_group(Path({str(folder)!r}), group, worker={WORKER!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while len(list(folder.glob("pid-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    below = [each.pid for each in descendants(process.pid)]
    process.send_signal(number)
    process.wait(60)
    return below


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_an_interrupt_leaves_nobody_behind(tmp_path, number):
    below = interrupted(tmp_path, number)
    assert len(below) >= 3
    end = time.monotonic() + 30
    while any(status(pid) not in ("", "zombie") for pid in below) and time.monotonic() < end:
        time.sleep(0.1)
    assert [pid for pid in below if status(pid) not in ("", "zombie")] == []
    assert left(tmp_path) == []
