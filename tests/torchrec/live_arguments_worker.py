"""Four gloo ranks, one of which asks for a move with other arguments than the rest."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from fastplan import reshard
from fastplan.torchrec.live.checks import changed_tables
from tests.torchrec import live_jobs
from tests.torchrec.live_jobs import ROWS, Job
from tests.torchrec.live_ranks import fork_ranks

_OTHER = 1
# What one rank is given beside the plan.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "round_bytes": {"round_bytes": 1000},
    "merge": {"merge": "mean"},
    "no int": {"round_bytes": 1000.0},
    "no merge": {"merge": "max"},
    "no optimizer": {"optimizer": "adam"},
    "no plan": {"after": None},
}


def plan(kind: str) -> ShardingPlan:
    """All tables on rank 2, except for one of another type."""
    drawn: Any = SimpleNamespace(randrange=lambda count: 2 % count, choice=lambda found: found[0])
    made = {
        f"{name}{i}": live_jobs.sharding(drawn, "table_wise", rows, "fused", 4)
        for name in "ts"
        for i, rows in enumerate(ROWS)
    }
    made["t0"] = live_jobs.sharding(drawn, kind, ROWS[0], "fused")
    bags = {name: each for name, each in made.items() if name[0] == "t"}
    sequences = {name: made[name] for name in ("s0", "s1")}
    return ShardingPlan(
        {
            "sparse.bags": EmbeddingModuleShardingPlan(bags),
            "sparse.sequences": EmbeddingModuleShardingPlan(sequences),
        }
    )


def asked(job: Job, **arguments: Any) -> dict[str, Any]:
    """What this rank is told, and whether its job is as it was."""
    before, start = job.dmp.plan, time.perf_counter()
    told: dict[str, Any] = {"error": "", "needs_restart": {}}
    try:
        given = {"optimizer": job.optimizer, **arguments}
        told["needs_restart"] = reshard(job.dmp, **given).needs_restart
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    told["seconds"] = time.perf_counter() - start
    told["unchanged"] = not changed_tables(before, job.dmp.plan)
    job.train(range(1))
    return told


def work(rank: int) -> dict[str, Any]:
    """Asks for moves that are refused, and then for the same one with equal arguments."""
    torch.set_num_threads(1)
    job, after = Job("adagrad", plan("data_parallel")), plan("table_wise")
    job.train(range(1))
    found = {
        name: asked(job, **{"after": after, **(more if rank == _OTHER else {})})
        for name, more in _ARGUMENTS.items()
    }
    [group] = job.optimizer.param_groups
    group["lr"] = 0.5
    found["settings"] = asked(job, after=after)  # only rank 2 has the kernel that can't have them
    group["lr"] = 0.1
    found[""] = asked(job, after=after)
    return found


if __name__ == "__main__":
    print(json.dumps(fork_ranks(Path(sys.argv[1]), work)))
