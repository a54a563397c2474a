"""Hosts that are lost and found under an elastic torchrun: each start follows the cached plan."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_SECONDS = 240
# A host without a sign of life for five seconds is lost, and a smaller job waits a second for more.
_TIMES = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a host of the job runs: by default, all hosts are this one."""

    first: str = "127.0.0.1"  # the address of the first host
    own: str = "127.0.0.1"
    command: tuple[str, ...] = ()  # before the host's own
    environment: dict[str, str] = field(default_factory=dict)


HERE = Place()


@contextmanager
def host(
    folder: Path,
    port: int,
    workers: int,
    place: Place = HERE,
    *,
    run: tuple[str, ...] = (),
    **more: int,
) -> Iterator[subprocess.Popen[bytes]]:
    """A torchrun as a host of the job has it; it and its workers end with the context.

    `run` is what the workers run, if not the worker of this test.
    """
    settings = ",".join([_TIMES, *(f"{name}={value}" for name, value in more.items())])
    command = [
        *place.command,
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes=1:2", f"--nproc-per-node={workers}", "--max-restarts=3"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={place.first}:{port}", "--rdzv-id=job"),
        *(f"--rdzv-conf={settings}", f"--local-addr={place.own}"),
        *(run or ("-m", "tests.torchrec.elastic_worker", str(folder))),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "OMP_NUM_THREADS": "1",
        # Without it, a host that comes later waits for an address that only the first start tells.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **place.environment,
    }
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def started(folder: Path, world: int, first_host: subprocess.Popen[bytes]) -> Any:
    """What the job's first rank has told once it has trained a step on so many ranks."""
    told = folder / f"{world}.json"
    end = time.monotonic() + _SECONDS
    while not told.exists():
        log = (folder / "log").read_text(errors="replace")[-5000:]
        assert first_host.poll() is None, f"the job has ended: {log}"
        assert time.monotonic() < end, f"no start on {world} ranks: {log}"
        time.sleep(0.1)
    return json.loads(told.read_text())


@pytest.fixture(scope="module")
def starts(tmp_path_factory: Any) -> dict[int, Any]:
    """A job on two hosts of a rank each; one is lost; another comes, with two ranks."""
    folder = tmp_path_factory.mktemp("job")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ExitStack() as hosts:
        first = hosts.enter_context(host(folder, port, 1, is_host=1))
        with host(folder, port, 1, is_host=0):
            both = started(folder, 2, first)
        alone = started(folder, 1, first)
        hosts.enter_context(host(folder, port, 2, is_host=0))
        return {2: both, 1: alone, 3: started(folder, 3, first)}


def test_the_first_start_is_planned_and_kept(starts):
    told = {**starts[2]}
    assert told.pop("key")
    assert told == {"status": "miss", "again": "hit", "plans": 1}


@pytest.mark.parametrize(
    ("world", "ranks"), [(1, [[1], []]), (3, [[], [1, 2]])], ids=["a host lost", "a host more"]
)
def test_a_restart_on_other_hosts_follows_the_plan_before(world, ranks, starts):
    told = starts[world]
    assert (told["status"], told["followed"], told["ranks"]) == ("miss", True, ranks)
    least, moved, from_scratch = told["moved"]
    assert least <= moved <= from_scratch
    assert told["listed"] == moved
    assert (told["again"], told["plans"]) == ("hit", 1)


def test_the_plan_that_was_followed_is_named(starts):
    assert starts[1]["previous"] == f"entry {starts[2]['key'][:12]}"
    # A plan that follows another one has a key of its own, which the planner tells.
    assert starts[3]["previous"] == f"entry {starts[1]['key'][:12]}"
