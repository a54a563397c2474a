"""Four gloo ranks, one of which fails or is killed while tables move."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from fastplan import reshard
from fastplan.torchrec import resharding
from fastplan.torchrec.live import modules, optimizers, tensors
from fastplan.torchrec.live.agreement import Ranks, ReshardError
from fastplan.torchrec.live.checks import changed_tables
from tests.torchrec import live_jobs
from tests.torchrec.live_jobs import WORLD, Job
from tests.torchrec.live_ranks import fork_ranks

# By name of the place: the owner and name of the function, and which call of it fails.
PLACES: dict[str, tuple[Any, str, int]] = {
    "read": (resharding, "read_tables", 0),
    "build": (resharding, "build_again", 0),
    "second build": (resharding, "build_again", 1),
    "settings": (resharding, "apply_settings", 1),
    "allocate": (tensors.Transport, "prepare", 0),
    "pack": (tensors.Transport, "_pack", 0),
    "later pack": (tensors.Transport, "_pack", 2),
    "unpack": (tensors.Transport, "_unpack", 1),
    "finish": (tensors.Transport, "finish", 0),
    "exchange": (modules.Exchange, "do", 0),
    "second exchange": (modules.Exchange, "do", 1),
    "optimizer": (optimizers.DenseOptimizer, "replace", 0),
    "groups": (optimizers, "_refresh", 0),
}
# Also where a rank can be killed, but can't raise an error.
ONLY_KILLED: dict[str, tuple[Any, str, int]] = {
    **{f"agreement {call}": (Ranks, "_gather", call) for call in range(5)},
    "round": (dist, "all_to_all_single", 1),
    "after the move": (modules.Exchange, "forget", 0),
}


class InjectedError(Exception):
    """What a rank raises."""


def _raise() -> None:
    raise InjectedError("out of order")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def failing(place: tuple[Any, str, int], fail: Callable[[], None]) -> Iterator[None]:
    """Makes a function fail at one of its calls."""
    owner, name, at = place
    original, calls = getattr(owner, name), [0]

    def call(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == at + 1:
            fail()
        return original(*arguments, **more)

    with mock.patch.object(owner, name, call):
        yield


def jobs(seed: int, count: int) -> tuple[list[Job], Any]:
    """Equal jobs that have trained, and a plan to move to."""
    drawn = random.Random(seed)
    optimizer = drawn.choice(["adagrad", "rowwise_adagrad", "sgd"])
    before, after = (live_jobs.drawn_plan(drawn, optimizer) for _ in range(2))
    # So that both modules change, and the optimizer of the dense kernels does.
    before.plan["sparse.bags"]["t0"] = live_jobs.sharding(drawn, "data_parallel", 37, "fused")
    after.plan["sparse.bags"]["t0"] = live_jobs.sharding(drawn, "row_wise", 37, "fused")
    after.plan["sparse.sequences"]["s0"] = live_jobs.sharding(drawn, "table_wise", 37, "fused")
    before.plan["sparse.sequences"]["s0"] = live_jobs.sharding(drawn, "row_wise", 37, "fused")
    made = [Job(optimizer, before) for _ in range(count)]
    for job in made:
        job.train(range(2))
    return made, after


def moved(job: Job, after: Any, place: str, victim: int, fail: Callable[[], None]) -> str:
    """Tries to move the job. Returns the error, or nothing."""
    places = {**PLACES, **ONLY_KILLED}
    try:
        if dist.get_rank() == victim:
            with failing(places[place], fail):
                reshard(job.dmp, after, optimizer=job.optimizer, merge="mean", round_bytes=2048)
        else:
            reshard(job.dmp, after, optimizer=job.optimizer, merge="mean", round_bytes=2048)
    except ReshardError as error:
        return str(error)
    return ""


def content(job: Job) -> Any:
    """Everything that a rank holds, in a form that can be compared."""
    held = {
        key: [(a, b, c.tolist()) for a, b, c in own] for key, own in live_jobs.held(job).items()
    }
    groups = [[id(each) for each in group["params"]] for group in job.optimizer.param_groups]
    rates = [group["lr"] for group in job.dmp.fused_optimizer.param_groups]
    return held, groups, rates, sorted(job.optimizer.params), sorted(job.dmp.state_dict())


def raising(rank: int, seed: int) -> list[Any]:
    """A rank raises an error at each place, one after the other, in one group."""
    (job, twin), after = jobs(seed, 2)
    result = []
    for number, place in enumerate(PLACES):
        victim = (seed + number) % WORLD
        before = content(job)
        error = moved(job, after, place, victim, _raise)
        told = {"place": place, "victim": victim, "error": error}
        told["unchanged"] = content(job) == before
        told["trains"] = job.train(range(2, 3)) == twin.train(range(2, 3))
        told["equal"] = content(job)[0] == content(twin)[0]
        result.append(told)
        if not rank:
            print(json.dumps(told), file=sys.stderr, flush=True)
    # The same move succeeds when nobody fails.
    error = moved(job, after, next(iter(PLACES)), WORLD, _raise)
    result.append({"place": "", "error": error, "left": changed_tables(job.dmp.plan, after)})
    return result


def killed(rank: int, seed: int, place: str) -> dict[str, Any]:
    """A rank is killed at a place."""
    [job], after = jobs(seed, 1)
    before = content(job)
    error = moved(job, after, place, seed % WORLD, _die)
    left = changed_tables(job.dmp.plan, after)
    return {"error": error, "unchanged": content(job) == before, "moved": not left}


if __name__ == "__main__":
    kind, folder, first, count = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5])
    torch.set_num_threads(1)
    found: list[Any] = []
    every = {**PLACES, **ONLY_KILLED}
    for seed in range(first, first + count):
        if kind == "raising":
            found.append(fork_ranks(folder / f"{seed}", lambda rank, s=seed: raising(rank, s)))
        else:
            place = [*every][seed % len(every)]
            told = fork_ranks(folder / f"{seed}", lambda rank, s=seed, p=place: killed(rank, s, p))
            found.append({"place": place, "victim": seed % WORLD, "ranks": told})
        print(json.dumps(found[-1])[:2000], file=sys.stderr, flush=True)
    print(json.dumps(found))
