"""A rank without torch that does as its assignment says: ends well, dies, hangs, or is stopped."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fastplan.measure.failures import Fault
from fastplan.measure.processes import Heartbeats, end_with_parent
from fastplan.measure.settings import STATUS, WorkerConfig


def main(folder: Path) -> None:
    end_with_parent()
    rank = int(os.environ["RANK"])
    beats = Heartbeats(folder / STATUS, rank)
    stacks = open(folder / STATUS / f"stack-{rank}.txt", "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, stacks)
    what = WorkerConfig.read(folder).settings
    beats.turn(1, 2)
    beats.stage("shard")
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    if what["do"] == "end":
        return
    if rank == 1:
        _misbehave(what["do"], folder, beats)
    if what["do"] == "lag":
        beats.stage("step")
    time.sleep(600)


def _misbehave(what: str, folder: Path, beats: Heartbeats) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "fault":
        last = beats.last
        Fault(1, time.time(), "MemoryError", "", last.plan, last.round, last.stage).write(
            folder / STATUS
        )
        os._exit(1)
    if what == "lag":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (folder / "pid-child").write_text(str(child.pid))
        time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
