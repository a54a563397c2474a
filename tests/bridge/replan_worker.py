"""One rank of a real gloo group that plans twice, with a cache that other ranks may have filled."""

import json
import logging
import sys
import warnings
from typing import Any

import torch.distributed as dist

from fastplan import ReplanPolicy
from tests.bridge.small_job import SHARDERS, model, planner


def started(world: int, cache: str) -> Any:
    used = planner(world, cache=cache, replan=ReplanPolicy(max_moved=0.5, slack=0.2))
    plan = used.collective_plan(model((4000, 6000, 8000, 90_000), "meta"), SHARDERS)
    run = used.last_run
    report = run.replan if run is not None else None
    if report is None:
        return [str(plan), run.cache.status if run else None, None]
    return [
        str(plan),
        run.cache.status,
        [report.followed, report.moved, report.least, report.scratch_moved, run.moves.bytes],
    ]


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store-{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    result = [started(world, f"{folder}/plans") for _ in range(2)]
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
