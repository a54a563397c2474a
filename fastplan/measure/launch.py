"""Runs workers under torchrun and watches them: a rank that dies or hangs ends the group.

Nothing is left running: workers end with torchrun, torchrun ends with this process. On emulated
hosts, each host has its own torchrun.
`python -m fastplan.measure.launch FOLDER ARGUMENTS` is torchrun that records how each rank ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from fastplan.measure.failures import (
    Failure,
    explain_exit,
    explain_hang,
    oom_kills,
    read_exit_codes,
    read_faults,
)
from fastplan.measure.hosts import EmulatedHosts
from fastplan.measure.processes import (
    Heartbeat,
    adopt_orphans,
    end_with_parent,
    kill_descendants,
    read_heartbeats,
    start_time,
    stop,
)
from fastplan.measure.settings import LOGS, STATUS, LaunchSettings

_POLL = 0.5  # rare, because polling takes CPU time from the ranks
_STACK_TIMEOUT = 2.0
_START_TIMEOUT = 180.0  # imports take minutes if many ranks share a file system
_PORT = 29400  # inside an emulated host, where no other process listens
# Seconds for the other hosts after the first one failed: the responsible rank may be there.
_OTHERS_TIMEOUT = 3.0


def run_group(
    folder: Path,
    group: LaunchSettings,
    watch: Callable[[], None] = lambda: None,
    worker: str = "fastplan.measure.worker",
) -> Failure | None:
    """Runs the workers that the folder's configuration describes.

    Args:
        folder: The run's folder.
        group: The processes to start.
        watch: Called repeatedly meanwhile.
        worker: The module that ranks run.

    Returns:
        The failure; None if all ranks ended well.

    Raises:
        HostsUnavailable: This machine can't emulate hosts.
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
            beats = read_heartbeats(status)
            count = sum(beat.stages for beat in beats.values())
            if count != seen:
                seen, since = count, time.monotonic()
            elif time.monotonic() - since > (limit := _progress_timeout(beats, group)):
                return explain_hang(beats, _stacks(folder, beats), _expected(beats, group), limit)
        # Before the others are stopped: their exit codes are not the cause.
        exits = read_exit_codes(status)
    watch()
    if code == 0:
        return None
    return explain_exit(
        exits,
        read_heartbeats(status),
        read_faults(status),
        oom_kills() - killed_before,
    )


def _progress_timeout(beats: dict[int, Heartbeat], group: LaunchSettings) -> float:
    """Returns the seconds without progress after which the group is stopped."""
    started = bool(beats) and len(beats) >= _expected(beats, group)
    return group.timeout if started else max(group.timeout, _START_TIMEOUT)


def _expected(beats: dict[int, Heartbeat], group: LaunchSettings) -> int:
    """Returns the expected number of heartbeats; on several hosts, other hosts' may be missing."""
    return group.ranks if group.on_this_machine else max(beats, default=-1) + 1


class _Launched:
    """torchrun of each host and its workers, for a `with` statement that ends them."""

    def __init__(self, folder: Path, group: LaunchSettings, worker: str) -> None:
        self._status = folder / STATUS
        self._processes: list[subprocess.Popen[bytes]] = []
        with ExitStack() as stack:  # what is open is closed if the next step fails
            log = stack.enter_context((folder / LOGS / "torchrun.log").open("ab"))
            for command, environment in _commands(folder, group, worker, stack):
                self._processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=environment,
                        start_new_session=True,  # Ctrl-C reaches only this process
                    )
                )
                stack.callback(self._stop, self._processes[-1])
            self._stack = stack.pop_all()

    def __enter__(self) -> _Launched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        beats = read_heartbeats(self._status).values()
        stop(process, [beat.pid for beat in beats if _is_local_process(beat)])

    def wait(self, seconds: float) -> int | None:
        """Returns the exit code; None if it still runs after these seconds.

        With several hosts it is the first code that is not 0.
        """
        self._wait_all(seconds)
        if any(process.returncode for process in self._processes):
            self._wait_all(_OTHERS_TIMEOUT)
        codes = [process.returncode for process in self._processes]
        failed = [code for code in codes if code]
        return failed[0] if failed else None if None in codes else 0

    def _wait_all(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))


def _commands(
    folder: Path, group: LaunchSettings, worker: str, stack: ExitStack
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yields torchrun's command and environment for each host of this machine.

    Emulated hosts are built first. The stack removes them.
    """
    begin = [sys.executable, "-m", "fastplan.measure.launch", str(folder / STATUS)]
    begin += ["--nproc-per-node", str(group.ranks_per_host), "--max-restarts", "0"]
    end = ["-m", worker, str(folder.resolve())]
    environment = _environment(group)
    if group.hosts == 1:
        yield [*begin, "--standalone", *end], environment
        return
    nodes = ["--nnodes", str(group.hosts)]
    if group.link is None:
        yield [*begin, *nodes, *group.torchrun, *end], environment
        return
    hosts = stack.enter_context(EmulatedHosts(group.hosts, group.link))
    first = ["--master-addr", hosts.address(0), "--master-port", str(_PORT)]
    for host in range(group.hosts):
        own = ["--node-rank", str(host), "--local-addr", hosts.address(host)]
        command = hosts.command(host, [*begin, *nodes, *first, *own, *end])
        yield command, {**environment, **hosts.environment}


def _is_local_process(beat: Heartbeat) -> bool:
    """Returns whether the process of a heartbeat is on this host and still the same one."""
    same = beat.started != 0 and start_time(beat.pid) == beat.started
    return same and beat.host == socket.gethostname()


def _environment(group: LaunchSettings) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "OMP_NUM_THREADS": str(group.threads),
    }


def _stacks(folder: Path, beats: dict[int, Heartbeat]) -> dict[int, str]:
    """Returns the stacks of the ranks that can still write them."""
    asked = []
    for rank, beat in beats.items():
        if _is_local_process(beat):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(beat.pid, signal.SIGUSR1)
                asked.append(rank)
    end = time.monotonic() + _STACK_TIMEOUT
    found: dict[int, str] = {}
    while len(found) < len(asked) and time.monotonic() < end:
        time.sleep(_POLL)
        for rank in asked:
            with suppress(OSError):
                text = (folder / STATUS / f"stack-{rank}.txt").read_text()
                if text:
                    found[rank] = text
    return found


def main(folder: Path, arguments: list[str]) -> int:
    """Runs torchrun and records the exit codes of failed ranks in a folder."""
    adopt_orphans()
    end_with_parent(signal.SIGTERM)  # torchrun ends its workers then
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.run(run.parse_args(arguments))
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        (folder / f"exits-{os.getpid()}.json").write_text(json.dumps(codes))
        print(error, file=sys.stderr)
        return 1
    finally:
        kill_descendants()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
