"""Jobs in shadow mode: a rank of a gloo group, and jobs that end before TorchRec's planner."""

import json
import logging
import sys
import threading
import time
import warnings
from typing import Any

import torch.distributed as dist
from torchrec.distributed.planner.perf_models import NoopPerfModel

from fastplan.torchrec.shadow import process
from tests.torchrec.collective_worker import SHARDERS, model, planner, topology
from tests.torchrec.processes import end_rank


def rank(number: int, folder: str) -> Any:
    dist.init_process_group("gloo", f"file://{folder}/group", rank=number, world_size=2)
    used = planner(2, shadow=True)
    used.collective_plan(model(), SHARDERS)
    shadow = used.last_run.shadow
    verdict = None if shadow is None else shadow.wait(200)
    alone = None
    if number != 0:
        used.plan(model(), SHARDERS)
        alone = used.last_run.shadow.wait(200)
    return [verdict and verdict.outcome, alone and alone.outcome, alone and alone.reason]


class Endless(NoopPerfModel):
    """Keeps every process busy but the first, which has never read it."""

    def __setstate__(self, state: Any) -> None:
        threading.Event().wait()


def started_child() -> int:
    """The process that compares, as soon as it runs."""
    used = planner(2, shadow=True, performance_model=Endless(topology(2)))
    used.plan(model(), SHARDERS)
    (task,) = process._tasks.present
    while task._process is None:
        time.sleep(0.01)
    return task._process.pid


def main(case: str, *arguments: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if case == "rank":
        end_rank(rank(int(arguments[0]), arguments[1]))
    print(json.dumps(started_child()), flush=True)
    if case == "waits":
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
