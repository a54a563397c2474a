"""Processes of this host: what they do, whom they started, and how to end all of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl's PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER
_PATIENCE = 5.0  # seconds for an orderly end
_POLL = 0.05


def born(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 if it is gone or nobody tells."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def state(pid: int) -> str:
    """The kernel's letter for what a process does, such as R, S, T or Z; empty if it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int | str) -> list[str]:
    """Fields of /proc/<pid>/stat behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Everything that a process has started, nearest first."""
    below: dict[int, list[int]] = {}
    with suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (fields := _stat(entry)):
                below.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        own = below.get(waiting.pop(0), [])
        found += own
        waiting += own
    return found


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Has the kernel end this process when the one that started it ends, however that happens."""
    _prctl(_DEATH_SIGNAL, int(number))


def adopt_orphans() -> None:
    """Makes what descendants leave behind this process's own, so that it can be found."""
    _prctl(_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def stop(process: subprocess.Popen[bytes], known: Iterable[tuple[int, int]] = ()) -> None:
    """Ends a process and all that it has started: asked first, then killed.

    `known` are further processes of it, as (number, start), which may have lost their parent.
    """
    tree = {pid: born(pid) for pid in descendants(process.pid)} | dict(known)
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    # What was started since is found while its parent is alive; later it is killed with it.
    tree |= {pid: born(pid) for pid in descendants(process.pid)}
    process.kill()
    process.wait()
    _kill(tree)


def kill_descendants() -> None:
    """Kills everything that this process has started or adopted."""
    _kill({pid: born(pid) for pid in descendants(os.getpid())})


def _kill(tree: dict[int, int]) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        alive = [pid for pid, start in tree.items() if start and born(pid) == start]
        alive = [pid for pid in alive if state(pid) != "Z"]
        if not alive:
            return
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)
