"""One rank that trains jobs and saves them, or loads what other ranks saved under other plans."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from fastplan import checkpoint
from fastplan.checkpoint import CheckpointError
from tests.torchrec.checkpoint_jobs import (
    Job,
    Truth,
    assert_equal,
    keep_truth,
    pairs,
    quiet,
    sharding,
)
from tests.torchrec.processes import end_rank

Case = tuple[str, str]  # kind of module, optimizer


def job_of(case: Case, side: int, world: int, seed: int = 0) -> Job:
    chosen = os.environ.get("CHECKPOINT_LAYOUTS", "").split()
    tables = {
        name: pair
        for name, pair in pairs(*case).items()
        if not chosen or all("_".join(each) in chosen for each in pair)
    }
    shardings = {
        name: sharding(pair[side], i, world) for i, (name, pair) in enumerate(tables.items())
    }
    return Job(*case, shardings, seed)


class Reader(dcp.FileSystemReader):
    """Reads the metadata once: it is loaded for each of hundreds of tables."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metadata = super().read_metadata()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        return self.metadata


def folder_of(folder: Path, case: Case, world: int) -> Path:
    return folder / f"{'-'.join(case)}-{world}"


def save(folder: Path, case: Case) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    own = folder_of(folder, case, world)
    own.mkdir(exist_ok=True)
    job = job_of(case, 0, world)
    if case[0] == "bags":
        job.train(range(2))
    else:
        job.fill()
    keep_truth(job, own / f"truth{rank}.pt")
    dcp.save(job.state_dict(), checkpoint_id=own / "plain")
    checkpoint.save(job.dmp, own / "fastplan", optimizer=job.dense)
    dist.barrier()


def load(folder: Path, case: Case, saved_by: int) -> dict[str, list[str]]:
    """For each pair: TorchRec's weights and states, and fastplan's weights and states."""
    world = dist.get_world_size()
    own = folder_of(folder, case, saved_by)
    truth = Truth(sorted(own.glob("truth*.pt")))
    theirs = job_of(case, 1, world, seed=1)
    theirs.dense.init_state()
    found = by_torchrec(theirs, own / "plain", truth)
    ours = job_of(case, 1, world, seed=1)
    for name, result in by_fastplan(ours, own / "fastplan", truth).items():
        found[name] += result
    return found


def by_torchrec(job: Job, path: Path, truth: Truth) -> dict[str, list[str]]:
    whole = job.state_dict()
    reader = Reader(path)
    found = {}
    for key, table in job.tables().items():
        model = {"model": {key: whole["model"][key]}}
        result = [quiet(lambda part=model: dcp.load(part, storage_reader=reader, no_dist=True))]
        states = whole["optim"]["state"].get(key)
        # A fused optimizer without states is not in its state dict.
        part = {"optim": {"state": {key: states}}}
        result.append(
            quiet(lambda part=part: dcp.load(part, storage_reader=reader, no_dist=True))
            if states
            else ""
        )
        for at, is_state in enumerate((False, True)):
            differs = truth.differs(table, is_state)
            result[at] = _verdict(result[at], differs)
        found[table.name] = result
    return found


def by_fastplan(job: Job, path: Path, truth: Truth) -> dict[str, list[str]]:
    tables = job.tables()
    refused: dict[str, str] = {}
    before = job.snapshot()
    try:
        checkpoint.load(job.dmp, path, optimizer=job.dense)
    except CheckpointError as error:
        refused = error.problems
        assert_equal(job.snapshot(), before)
        left = [key for key in tables if key not in refused]
        checkpoint.load(job.dmp, path, optimizer=job.dense, tables=left)
    found = {}
    for key, table in job.tables().items():
        why = refused.get(key, "")
        found[table.name] = [
            _verdict(why, truth.differs(table, is_state)) for is_state in (False, True)
        ]
    return found


def _verdict(error: str, differs: str) -> str:
    if error:
        return f"refused: {error}"
    return f"wrong: {differs}" if differs else "same"


def main() -> None:
    rank, world, folder, store, *rest = sys.argv[1:]
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    group = dist.FileStore(store, int(world))
    dist.init_process_group("gloo", store=group, rank=int(rank), world_size=int(world))
    result: dict[str, Any] = {}
    for task in json.loads(rest[0]):
        case = (task["kind"], task["optimizer"])
        if task["do"] == "save":
            save(Path(folder), case)
        else:
            name = f"{'-'.join(case)}-{task['saved_by']}-{world}"
            result[name] = load(Path(folder), case, task["saved_by"])
    end_rank(result)


if __name__ == "__main__":
    main()
