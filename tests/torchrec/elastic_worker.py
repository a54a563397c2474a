"""A worker of an elastic torchrun: plans, tells what came of it, and trains until it is ended."""

import ctypes
import json
import logging
import os
import signal
import sys
import time
import warnings
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

ROWS = (4000, 6000, 8000, 90_000)


def main() -> None:
    # A lost host takes its workers along; torchrun makes them sessions of their own.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    folder = Path(sys.argv[1])
    if int(os.environ["WORLD_SIZE"]) == 1 and not (folder / "2.json").exists():
        signal.pause()  # the job begins with both hosts
    import torch.distributed as dist

    from tests.torchrec.small_job import model, train, wrapped

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    # A host whose link is cut closes no connection: only a time-out tells the others.
    limit = timedelta(seconds=float(os.environ.get("COLLECTIVE_SECONDS", "1800")))
    dist.init_process_group("gloo", timeout=limit)
    plan, told = planned(dist, folder)
    job = wrapped(plan, lambda: model(ROWS))
    for step in count():
        train(job, range(step, step + 1))
        if step == 0 and dist.get_rank() == 0:
            written = folder / "unfinished"
            written.write_text(json.dumps(told))
            written.rename(folder / f"{dist.get_world_size()}.json")
        time.sleep(0.05)


def planned(dist: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The plan of this start, and what its planner tells of it."""
    from fastplan import Replan
    from tests.torchrec.small_job import SHARDERS, model, planner

    world = dist.get_world_size()
    policy = Replan(max_moved=0.5, slack=0.2)
    used, again = (planner(world, cache=folder / "plans", replan=policy) for _ in range(2))
    plan, other = (each.collective_plan(model(ROWS, "meta"), SHARDERS) for each in (used, again))
    plans: list[Any] = [None] * world
    dist.all_gather_object(plans, [str(plan), str(other)])
    told = {"status": used.last_run.cache.status, "again": again.last_run.cache.status}
    told["key"] = used.last_run.cache.fingerprint
    told["plans"] = len({text for both in plans for text in both})
    if (report := used.last_run.replan) is not None:
        told["followed"] = report.followed
        told["previous"] = report.previous
        told["moved"] = [report.least, report.moved, report.scratch_moved]
        told["listed"] = used.last_run.moves.bytes
        told["ranks"] = [report.difference.lost_ranks, report.difference.new_ranks]
    return plan, told


if __name__ == "__main__":
    main()
