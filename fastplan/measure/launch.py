"""Runs workers under torchrun and watches them: a rank that dies or hangs ends the group.

Nothing is left behind, however it ends: workers end with torchrun, torchrun with this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fastplan.measure.failures import Failure, died, exits_of, hung, oom_kills, read_faults
from fastplan.measure.folder import LOGS, STATUS
from fastplan.measure.processes import born, stop
from fastplan.measure.progress import Beat, read_beats
from fastplan.measure.settings import Group

_POLL = 0.5  # rare, since on a CPU looking takes time from those who are looked at
_STACK_PATIENCE = 2.0
_START_PATIENCE = 180.0  # imports take minutes where many ranks share a file system


def run_group(
    folder: Path,
    group: Group,
    watch: Callable[[], None] = lambda: None,
    worker: str = "fastplan.measure.worker",
) -> Failure | None:
    """Runs the workers of the folder's assignment to their end; says so if they failed.

    Args:
        watch: is called again and again meanwhile.
        worker: the module that ranks run.
    """
    status = folder / STATUS
    shutil.rmtree(status, ignore_errors=True)
    status.mkdir()
    (folder / LOGS).mkdir(exist_ok=True)
    killed_before = oom_kills()
    with _Launched(folder, group, worker) as launched:
        seen, since = 0, time.monotonic()
        while (code := launched.wait(_POLL)) is None:
            watch()
            beats = read_beats(status)
            count = sum(beat.stages for beat in beats.values())
            if count != seen:
                seen, since = count, time.monotonic()
            elif time.monotonic() - since > (limit := _patience(beats, group)):
                return hung(beats, _stacks(folder, beats), _expected(beats, group), limit)
    watch()
    if code == 0:
        return None
    return died(
        exits_of(status), read_beats(status), read_faults(status), oom_kills() - killed_before
    )


def _patience(beats: dict[int, Beat], group: Group) -> float:
    """Seconds without progress that are too many."""
    started = bool(beats) and len(beats) >= _expected(beats, group)
    return group.timeout if started else max(group.timeout, _START_PATIENCE)


def _expected(beats: dict[int, Beat], group: Group) -> int:
    """Ranks whose beats should be here: on several hosts maybe this one's only."""
    return group.ranks if group.hosts == 1 else max(beats, default=-1) + 1


class _Launched:
    """torchrun and its workers, which end with the `with` statement."""

    def __init__(self, folder: Path, group: Group, worker: str) -> None:
        self._status = folder / STATUS
        self._log = (folder / LOGS / "torchrun.log").open("ab")
        command = [sys.executable, "-m", "fastplan.measure.elastic", str(self._status)]
        command += ["--nproc-per-node", str(group.ranks_per_host), "--max-restarts", "0"]
        if group.hosts == 1:
            command.append("--standalone")
        else:
            command += ["--nnodes", str(group.hosts), *group.torchrun]
        command += ["-m", worker, str(folder.resolve())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=_environment(group),
            start_new_session=True,  # Ctrl-C is for this process, which then ends the others
        )

    def __enter__(self) -> _Launched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        known = [(beat.pid, beat.born) for beat in read_beats(self._status).values() if _own(beat)]
        stop(self._process, known)
        self._log.close()

    def wait(self, seconds: float) -> int | None:
        """The exit code; None if it still runs after so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None


def _own(beat: Beat) -> bool:
    """Whether the beat's process is one of this host, and still the same."""
    return beat.born != 0 and born(beat.pid) == beat.born and beat.host == socket.gethostname()


def _environment(group: Group) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "OMP_NUM_THREADS": str(group.threads),
    }


def _stacks(folder: Path, beats: dict[int, Beat]) -> dict[int, str]:
    """The stacks of ranks that can still show them."""
    asked = []
    for rank, beat in beats.items():
        if _own(beat):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(beat.pid, signal.SIGUSR1)
                asked.append(rank)
    end = time.monotonic() + _STACK_PATIENCE
    found: dict[int, str] = {}
    while len(found) < len(asked) and time.monotonic() < end:
        time.sleep(_POLL)
        for rank in asked:
            with suppress(OSError):
                text = (folder / STATUS / f"stack-{rank}.txt").read_text()
                if text:
                    found[rank] = text
    return found
