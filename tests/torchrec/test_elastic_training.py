"""The job of the manual under an elastic torchrun: its losses are those of one that never stops."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import examples
from tests.torchrec.test_replan_processes import host

_SECONDS = 400
_STEPS = 15  # on each number of ranks: more than lie between two checkpoints


def losses(folder: Path) -> list[dict[str, Any]]:
    """What the job has written: steps in the order in which they were done."""
    file = folder / "losses"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def wait_for(folder: Path, ranks: int, first_host: subprocess.Popen[bytes]) -> None:
    """Returns when so many ranks have trained for some steps."""
    end = time.monotonic() + _SECONDS
    while sum(line["ranks"] == ranks for line in losses(folder)) < _STEPS:
        log = (folder / "log").read_text(errors="replace")[-5000:]
        assert first_host.poll() is None, f"the job has ended: {log}"
        assert time.monotonic() < end, f"no steps on {ranks} ranks: {log}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def script(tmp_path_factory: Any) -> Path:
    """The job of the manual."""
    [code] = [each.code for each in examples("replan.md") if each.title.endswith("other hosts")]
    path: Path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(code)
    return path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: Any, script: Path) -> Path:
    """A job on two hosts of a rank each; one is lost; another one comes, with three ranks."""
    folder = tmp_path_factory.mktemp("job")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = ("-m", "tests.torchrec.tied_script", str(script), str(folder), "1000000")
    with ExitStack() as hosts:
        first = hosts.enter_context(host(folder, port, 1, run=run, is_host=1))
        with host(folder, port, 1, run=run, is_host=0):
            wait_for(folder, 2, first)
        wait_for(folder, 1, first)
        hosts.enter_context(host(folder, port, 3, run=run, is_host=0))
        wait_for(folder, 4, first)
    return Path(folder)


def test_losses_are_those_of_a_job_that_never_stops(stopped, script, tmp_path):
    told = losses(stopped)
    steps = 1 + max(line["step"] for line in told)
    shutil.copytree(stopped / "checkpoints" / "0", tmp_path / "checkpoints" / "0")
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    environment = {**os.environ, **alone, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path), str(steps)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=_SECONDS)
    whole = {line["step"]: line["loss"] for line in losses(tmp_path)}
    assert [*whole] == [*range(steps)]
    for line in told:
        assert line["loss"] == whole[line["step"]], line
    assert whole[steps - 1] < 0.9 * whole[0]  # it learns


def test_each_restart_loads_the_last_checkpoint_and_follows_the_plan_before(stopped):
    told = losses(stopped)
    starts = [line for line in told if line["step"] == line["first"]]
    by_ranks = {line["ranks"]: line for line in reversed(starts)}
    assert not by_ranks[2]["followed"]
    for ranks in (1, 4):
        assert by_ranks[ranks]["followed"]
        assert by_ranks[ranks]["first"] >= 10
    done = {ranks: [line["step"] for line in told if line["ranks"] == ranks] for ranks in (2, 1)}
    assert max(done[2]) - by_ranks[1]["first"] < 10 + 1  # no more is lost than since a checkpoint
