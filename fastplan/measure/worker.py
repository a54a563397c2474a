"""One rank under torchrun: `python -m fastplan.measure.worker FOLDER`."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

from fastplan.measure.failures import Fault
from fastplan.measure.processes import Heartbeats, end_with_parent
from fastplan.measure.settings import LOGS, STATUS, WorkerConfig


def main(folder: Path) -> None:
    """Runs this rank's task and writes an error of it into the folder."""
    end_with_parent()
    rank = int(os.environ["RANK"])
    _redirect(folder / LOGS / f"rank-{rank}.log")
    beats = Heartbeats(folder / STATUS, rank)
    with open(folder / STATUS / f"stack-{rank}.txt", "w") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        try:
            _work(folder, beats)
        except BaseException as error:
            beat = beats.last
            Fault(
                rank=rank,
                time=time.time(),
                kind=type(error).__name__,
                text=" ".join(str(error).split())[:500],
                plan=beat.plan,
                round=beat.round,
                stage=beat.stage,
            ).write(folder / STATUS)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # an orderly exit could wait for ranks that never come


def _work(folder: Path, beats: Heartbeats) -> None:
    config = WorkerConfig.read(folder)
    # TorchRec and FBGEMM warn and log a lot; the log file is for errors.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if config.task == "measure":
        from fastplan.measure.measuring import measure_plans

        measure_plans(folder, config, beats)
    else:
        from fastplan.measure.measuring import run_benchmarks

        run_benchmarks(folder, config, beats)


def _redirect(log: Path) -> None:
    """Redirects all output to the rank's log file."""
    sys.stdout.flush()
    target = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # a thread of Gloo that releases a tensor while Python ends would abort the process
