"""Processes of this host: their state, their progress, their descendants, how to end all of them.

A rank notes every stage in a small file, so that others see it hang. A note is one write over the
old one: readers see the one or the other, and a rank that is killed leaves its last.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import psutil


_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl's PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER
_END_TIMEOUT = 5.0  # seconds for an orderly end
_POLL = 0.05


def start_time(pid: int) -> int:
    """Returns the start time of a process in kernel ticks; 0 if unknown.

    Ranks write it to files for other processes. psutil derives its time from the clock, which may
    be set between two readings.
    """
    try:
        # The name before the last bracket may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19])


def status(pid: int) -> str:
    """Returns psutil's status of a process, such as "running" or "zombie"; empty if it is gone."""
    import psutil

    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""


def descendants(pid: int) -> list[psutil.Process]:
    """Returns everything that a process has started, directly or not."""
    import psutil

    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Lets the kernel send a signal to this process when its parent ends for any reason."""
    _prctl(_DEATH_SIGNAL, int(number))


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that it can find them."""
    _prctl(_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def stop(process: subprocess.Popen[bytes], known: Iterable[int] = ()) -> None:
    """Ends a process and everything that it has started: with SIGTERM first, then SIGKILL.

    Args:
        process: The process.
        known: The numbers of more processes that belong to it and may have lost their parent.
    """
    import psutil

    tree = set(descendants(process.pid))
    for pid in known:
        with suppress(psutil.Error):
            tree.add(psutil.Process(pid))
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_TIMEOUT)
    # Processes that were started meanwhile are found only while their parent is alive.
    tree.update(descendants(process.pid))
    process.kill()
    process.wait()
    _kill(tree)


def kill_descendants() -> None:
    """Kills everything that this process has started or adopted."""
    _kill(descendants(os.getpid()))


def _kill(tree: Iterable[psutil.Process]) -> None:
    import psutil

    end = time.monotonic() + _END_TIMEOUT
    while (alive := [each for each in tree if _is_alive(each)]) and time.monotonic() < end:
        for each in alive:
            with suppress(psutil.Error):
                each.kill()
        time.sleep(_POLL)


def _is_alive(process: psutil.Process) -> bool:
    """Returns whether a process runs. psutil.wait_procs would wait for zombies of other parents."""
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


_BYTES = 512


class Heartbeat(NamedTuple):
    """A rank's last note."""

    rank: int
    pid: int
    started: int  # the process's start, which tells it from a later one of the same number
    host: str
    plan: int  # -1 before the first
    round: int
    stage: str
    stages: int  # so far


class Heartbeats:
    """A rank's own notes."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = os.open(folder / f"rank-{rank}.json", os.O_CREAT | os.O_WRONLY, 0o644)
        pid = os.getpid()
        self.last = Heartbeat(rank, pid, start_time(pid), socket.gethostname(), -1, -1, "", 0)
        self.stage("start")

    def turn(self, plan: int, round: int) -> None:
        self.last = self.last._replace(plan=plan, round=round)

    def stage(self, stage: str) -> None:
        """Notes that the rank has come so far."""
        self.last = self.last._replace(stage=stage, stages=self.last.stages + 1)
        os.pwrite(self._file, json.dumps(self.last._asdict()).ljust(_BYTES).encode(), 0)


def read_heartbeats(folder: Path) -> dict[int, Heartbeat]:
    """The last note of every rank that has made one."""
    found = {}
    for file in folder.glob("rank-*.json"):
        try:
            beat = Heartbeat(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError):
            continue  # just being written for the first time
        found[beat.rank] = beat
    return dict(sorted(found.items()))
