"""Four gloo ranks whose job moves its tables from one drawn plan to the next."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fastplan import reshard
from fastplan.torchrec.live.checks import facts
from fastplan.torchrec.resharding import Resharding
from tests.torchrec import live_jobs
from tests.torchrec.live_jobs import OPTIMIZERS, WORLD, Job
from tests.torchrec.live_ranks import fork_ranks

_TWIN_EVERY = 5


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the bytes that this rank hands over for other ranks."""
    sent = [0]
    original = dist.all_to_all_single

    def count(output: Any, given: Any, **more: Any) -> Any:
        sizes = more["input_split_sizes"]
        sent[0] += (sum(sizes) - sizes[dist.get_rank()]) * given.element_size()
        return original(output, given, **more)

    dist.all_to_all_single = count
    try:
        yield sent
    finally:
        dist.all_to_all_single = original


def gathered(own: Any) -> list[Any]:
    found: list[Any] = [None] * WORLD
    dist.all_gather_object(found, own)
    return found


def least_bytes(before: list[Any], after: list[Any]) -> int:
    """Bytes that ranks lack, cell by cell. Elements have four bytes."""
    total = 0
    for key in {key for part in before for key in part} - {
        key for part in before for key in part if key.endswith("scalar")
    }:
        shards = [shard for part in before for shard in part.get(key, [])]
        bands = sorted({(place[1], place[1] + size[1]) for place, size, _ in shards})
        for rank in range(WORLD):
            has = {cell for shard in before[rank].get(key, []) for cell in cells(key, shard, bands)}
            for shard in after[rank].get(key, []):
                total += 4 * sum(cell not in has for cell in cells(key, shard, bands))
    return total


def cells(key: str, shard: Any, bands: list[tuple[int, int]]) -> list[tuple[int, int]]:
    (row, column), (rows, columns), _ = shard
    across = list(range(column, column + columns))
    if key.endswith("rowwise"):
        across = [i for i, (a, b) in enumerate(bands) if a < column + columns and column < b]
    return [(i, j) for i in range(row, row + rows) for j in across]


def expected(before: dict[str, torch.Tensor], own: dict[str, list[Any]]) -> list[str]:
    """The states of this rank that are not what they were; a new row-wise shard has the mean."""
    wrong = []
    for key, shards in own.items():
        if key.endswith("scalar"):
            continue
        for (row, column), (rows, columns), values in shards:
            part = before[key][row : row + rows, column : column + columns]
            if key.endswith("rowwise"):
                mean = part.double().mean(1).float()
                same = (part == part[:, :1]).all(1)
                mean[same] = part[same, 0]
                near = torch.allclose(mean, values, rtol=1e-6, atol=0)
                if not (near and torch.equal(mean[same], values[same])):
                    wrong.append(key)
            elif not torch.equal(part.flatten(), values):
                wrong.append(key)
    return wrong


def set_rate(job: Job) -> None:
    """Another learning rate than the tables were built with."""
    for group in (*job.dmp.fused_optimizer.param_groups, *job.optimizer.param_groups):
        group["lr"] = 0.05
    job.dmp.fused_optimizer.step()


def steps_of(job: Job) -> set[float]:
    """The step counters of all ranks; a rank without tables has none."""
    own = {
        values.item()
        for key, shards in live_jobs.held(job).items()
        if key.endswith("step scalar")
        for *_, values in shards
    }
    return set().union(*gathered(own))


def tracked(job: Job) -> list[str]:
    """What the job shows of itself: names, places, groups and learning rates."""
    shown = []
    for key, value in job.dmp.state_dict().items():
        shards = value.local_shards() if hasattr(value, "local_shards") else []
        places = [(each.metadata.shard_offsets, each.metadata.shard_sizes) for each in shards]
        shown.append(f"{key} {tuple(value.size())} {places}")
    fused = job.dmp.fused_optimizer.state_dict()["state"]
    shown += [f"{key} {sorted(own)}" for key, own in sorted(fused.items())]
    shown += sorted(key for key, _ in job.dmp.named_parameters())
    shown += sorted(job.optimizer.params)
    shown += [
        f"{sorted(map(tuple, (p.shape for p in g['params'])))}" for g in job.optimizer.param_groups
    ]
    return shown


def one_pair(job: Job, optimizer: str, seed: int) -> dict[str, Any]:
    """Moves the job to the drawn plan, and compares all it has with what it had."""
    plan = live_jobs.drawn_plan(random.Random(seed), optimizer)
    before, parts = live_jobs.everything(job), gathered(live_jobs.held(job))
    set_rate(job)
    steps = steps_of(job)
    random_state = torch.get_rng_state()
    with counted() as sent:
        found: Resharding = reshard(
            job.dmp,
            plan,
            optimizer=job.optimizer,
            merge="mean",
            round_bytes=random.Random(seed).choice([512, 4096]),
        )
    after = gathered(live_jobs.held(job))
    told: dict[str, Any] = {"seed": seed, "needs_restart": found.needs_restart}
    told["wrong"] = expected(before, live_jobs.held(job))
    told["bytes"] = [sum(gathered(sent[0])), found.bytes, least_bytes(parts, after)]
    told["plan"] = all(
        facts(sharding) == facts(job.dmp.plan.plan[path][name])
        for path, module in plan.plan.items()
        for name, sharding in module.items()
    )
    told["rates"] = sorted({group["lr"] for group in job.dmp.fused_optimizer.param_groups})
    if optimizer == "adam":
        told["steps"] = steps_of(job) == steps
    told["random"] = torch.equal(random_state, torch.get_rng_state())
    if seed % _TWIN_EVERY == 0:
        twin = live_jobs.copied(job, plan, optimizer)
        set_rate(twin)
        told["shown"] = tracked(twin) == tracked(job)
        told["losses"] = twin.train(range(7, 9)) == job.train(range(7, 9))
        told["twin"] = same(live_jobs.held(job), live_jobs.held(twin))
    else:
        job.train(range(7, 9))
    return told


def same(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    # Step counters of fused kernels count the step that made the twin's states.
    keys = [key for key in one if not key.endswith("scalar")]
    return keys == [key for key in other if not key.endswith("scalar")] and all(
        torch.equal(a[2], b[2]) for key in keys for a, b in zip(one[key], other[key], strict=True)
    )


def pairs(rank: int, first: int, count: int, kinds: Sequence[str]) -> list[Any]:
    """Moves a job for each optimizer through as many drawn plans."""
    result = []
    for optimizer in kinds or OPTIMIZERS:
        draw = random.Random(f"{first} {optimizer}")
        job = Job(optimizer, live_jobs.drawn_plan(draw, optimizer))
        job.train(range(2))
        for seed in range(first, first + count):
            result.append({"optimizer": optimizer, **one_pair(job, optimizer, seed)})
            if not rank:
                print(json.dumps(result[-1]), file=sys.stderr, flush=True)
    return result


if __name__ == "__main__":
    folder, first, count, *only = sys.argv[1:]
    told = fork_ranks(Path(folder), lambda rank: pairs(rank, int(first), int(count), only))
    print(json.dumps(told))
