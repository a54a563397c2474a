"""One rank of two that saves and loads small jobs, and finds out what happens."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from fastplan import checkpoint
from fastplan.checkpoint import CheckpointError
from tests.torchrec.checkpoint_jobs import Job, Layout, assert_equal, sharding
from tests.torchrec.processes import end_rank

WORLD = 2
TW, RW, CW = ("tw", "fused"), ("rw", "fused"), ("cw", "fused")
DP, DENSE_RW = ("dp", "dense"), ("rw", "dense")


def job_of(optimizer: str, *layouts: Layout, seed: int = 0, **settings: Any) -> Job:
    shardings = {f"t{i}": sharding(each, i, WORLD) for i, each in enumerate(layouts)}
    return Job("bags", optimizer, shardings, seed, **settings)


def trained(optimizer: str, *layouts: Layout) -> Job:
    job = job_of(optimizer, *layouts)
    job.train(range(2))
    return job


def key(number: int) -> str:
    return f"tables.embedding_bags.t{number}.weight"


def refusal(job: Job, path: Path, **arguments: Any) -> str:
    """Why a load is refused; the job must be as it was."""
    before = job.snapshot()
    try:
        checkpoint.load(job.dmp, path, **arguments)
    except CheckpointError as error:
        assert_equal(job.snapshot(), before)
        return str(error)
    return ""


def whole_weights(job: Job) -> list[Any]:
    """This rank's parts of all tables, at their place."""
    found = []
    for table in job.tables().values():
        whole = torch.zeros(table.rows, table.columns)
        for shard in table.weight.shards:
            (row, column), (rows, columns) = shard.offsets, shard.sizes
            whole[row : row + rows, column : column + columns] = shard.tensor
        if not table.is_replicated:
            dist.all_reduce(whole)
        found.append(whole)
    return found


def trains_on(folder: Path) -> Any:
    """A job that goes on under another plan, beside the one that was saved."""
    old = trained("adagrad", TW, RW, CW)
    checkpoint.save(old.dmp, folder / "a", optimizer=old.dense)
    new = job_of("adagrad", RW, CW, TW, seed=1)
    loaded = checkpoint.load(new.dmp, folder / "a", optimizer=new.dense)
    for job in (old, new):
        job.train(range(2, 4))
    same = all(map(torch.equal, whole_weights(old), whole_weights(new)))
    return {
        "same": same,
        "scale": torch.equal(old.dmp.module.scale, new.dmp.module.scale),
        "moved": [move.table for move in loaded.moved],
        "text": str(loaded).splitlines(),
        "again": refused_save(old, folder / "a"),
    }


def refused_save(job: Job, path: Path, *, given: bool = True) -> str:
    try:
        checkpoint.save(job.dmp, path, optimizer=job.dense if given else None)
    except CheckpointError as error:
        return str(error)
    return ""


def torchrec_reads(folder: Path) -> Any:
    """What `save` wrote, loaded by DCP into the state dicts of TorchRec under the same plan."""
    new = job_of("adagrad", TW, RW, CW, seed=1)
    new.dense.init_state()
    state = new.state_dict()
    dcp.load({"model": state["model"], "optimizer": state["optim"]}, checkpoint_id=folder / "a")
    old = job_of("adagrad", TW, RW, CW)
    checkpoint.load(old.dmp, folder / "a", optimizer=old.dense)
    found, expected = new.snapshot(), old.snapshot()
    for name in [name for name in found if name.endswith(" step")]:
        del found[name], expected[name]  # TorchRec has no place for it
    assert_equal(found, expected)
    return True


def fresh_adam(folder: Path) -> Any:
    """An optimizer that has made no step gets its states from the checkpoint."""
    old = trained("adam", DP, DENSE_RW)
    checkpoint.save(old.dmp, folder / "adam", optimizer=old.dense)
    new = job_of("adam", DENSE_RW, DP, seed=1)
    before = len(new.dense.state)
    checkpoint.load(new.dmp, folder / "adam", optimizer=new.dense)
    for job in (old, new):
        job.train(range(2, 3))
    own = new.tables()[key(0)].states
    return {
        "before": before,
        "states": sorted(own),
        "step": float(own["step"].shards[0].tensor),
        "close": all(map(torch.allclose, whole_weights(old), whole_weights(new))),
        "no optimizer": refusal(job_of("adam", DP, DENSE_RW), folder / "adam"),
    }


def plain(folder: Path) -> Any:
    """Checkpoints that were written without fastplan."""
    old = trained("rowwise_adagrad", TW, CW, DP)
    dcp.save(old.state_dict(), checkpoint_id=folder / "plain")
    found: dict[str, Any] = {}
    new = job_of("rowwise_adagrad", RW, CW, TW, seed=1)
    loaded = checkpoint.load(new.dmp, folder / "plain", optimizer=new.dense)
    found["states"] = {move.table: list(move.states) for move in loaded.tables}
    dense = job_of("rowwise_adagrad", DP, CW, DP, seed=1, lr_decay=0.01)
    path = folder / "plain"
    found["no step"] = refusal(dense, path, optimizer=dense.dense)
    checkpoint.load(dense.dmp, path, optimizer=dense.dense, step=2)
    found["step"] = float(dense.tables()[key(0)].states["step"].shards[0].tensor)
    found["merge"] = refusal(job_of("rowwise_adagrad", RW, TW, TW), path)
    merged = job_of("rowwise_adagrad", RW, TW, DP)
    report = checkpoint.load(merged.dmp, path, optimizer=merged.dense, merge="mean")
    found["averaged"] = list(report.averaged)
    sources = [gathered(old, 1), gathered(merged, 1)]
    found["mean"] = torch.allclose(sources[0].mean(1), sources[1].mean(1))
    found["not a table"] = refusal(dense, path, tables=["t9"])
    for name, others in {
        "other optimizer": job_of("sgd", TW, CW, TW),
        "other state": job_of("adagrad", TW, CW, TW),
        "other table": job_of("rowwise_adagrad", TW, CW, DP, TW),
    }.items():
        found[name] = refusal(others, path, optimizer=others.dense)
    alone = job_of("sgd", RW, CW, TW, seed=1)
    checkpoint.load(alone.dmp, path, states=False)
    found["weights alone"] = all(map(torch.equal, whole_weights(old), whole_weights(alone)))
    return found


def gathered(job: Job, number: int) -> torch.Tensor:
    """The row-wise state of a table, a number for each weight."""
    table = job.tables()[key(number)]
    whole = torch.zeros(table.rows, table.columns)
    for shard in table.states["sum"].shards if table.states else ():
        (row, column), (rows, columns) = shard.offsets, shard.sizes
        whole[row : row + rows, column : column + columns] = shard.tensor.view(-1, 1)
    dist.all_reduce(whole)
    return whole


def damaged(folder: Path) -> Any:
    """A file that is too short or missing is found before anything is written."""
    job = job_of("adagrad", RW, CW, TW, seed=1)
    rank = dist.get_rank()
    file = next(iter(sorted((folder / "a").glob("__0_0*.distcp"))))
    content = file.read_bytes()
    dist.barrier()
    if rank == 0:
        file.write_bytes(content[: len(content) // 2])
    dist.barrier()
    found = {"short": refusal(job, folder / "a", optimizer=job.dense)}
    dist.barrier()
    if rank == 0:
        file.unlink()
    dist.barrier()
    found["missing"] = refusal(job, folder / "a", optimizer=job.dense)
    found["nothing"] = refusal(job, folder / "b")
    return found


def other_weights(folder: Path) -> Any:
    """States of a weight that is not of a table: old ones must not stay without a word."""
    old = trained("adagrad", TW)
    scale = old.dmp.module.scale
    optimizer = torch.optim.Adam([scale])
    scale.grad = torch.ones_like(scale)
    checkpoint.save(old.dmp, folder / "fresh", optimizer=optimizer)
    optimizer.step()
    checkpoint.save(old.dmp, folder / "stepped", optimizer=optimizer)
    found: dict[str, Any] = {
        "old states": refusal(old, folder / "fresh", optimizer=optimizer),
    }
    new = job_of("adagrad", TW, seed=1)
    scale = new.dmp.module.scale
    fresh = torch.optim.Adam([scale])
    found["no states"] = checkpoint.load(new.dmp, folder / "fresh", optimizer=fresh).without_states
    for name, other in {
        "other": torch.optim.SGD([scale]),
        "lists": _WithLists([scale], [1.0]),
    }.items():
        found[name] = refusal(new, folder / "stepped", optimizer=other)
    loaded = checkpoint.load(new.dmp, folder / "stepped", optimizer=fresh)
    found["loaded"] = [loaded.without_states, sorted(fresh.state[scale])]
    found["same"] = torch.equal(
        *(o.state[p]["exp_avg"] for o, p in ((optimizer, old.dmp.module.scale), (fresh, scale)))
    )
    return found


def arguments(folder: Path) -> Any:
    """What `save` and `load` refuse, and what they take."""
    old = trained("adagrad", TW, CW)
    checkpoint.save(old.dmp, folder / "arguments")
    momentum = job_of("sgd", DP, CW, momentum=0.9)
    found: dict[str, Any] = {
        "momentum": refusal(
            momentum, folder / "arguments", optimizer=momentum.dense, tables=[key(0)]
        ),
    }
    new = job_of("adagrad", TW, CW, seed=1)
    loaded = checkpoint.load(new.dmp, folder / "arguments", tables=(k for k in [key(0)]))
    found["once"] = [move.table for move in loaded.tables]
    try:
        checkpoint.load(new.dmp, folder / "arguments", tables=key(0))  # type: ignore[arg-type]
    except TypeError as error:
        found["text"] = str(error)
    new.dmp.module.register_buffer("wide", torch.zeros(1).expand(4))
    checkpoint.save(new.dmp, folder / "wide")
    found["wide"] = refusal(new, folder / "wide")
    dense = job_of("adam", DP, DENSE_RW)
    found["no optimizer"] = refused_save(dense, folder / "weights", given=False)
    checkpoint.save(dense.dmp, folder / "weights", states=False)
    found["weights"] = refusal(dense, folder / "weights", states=False)
    checkpoint.save(dense.dmp, folder / "first", optimizer=dense.dense)
    first = checkpoint.load(dense.dmp, folder / "first", optimizer=dense.dense)
    found["first"] = [each for each in first.without_states if each != "scale"]
    return found


def nested(folder: Path) -> Any:
    """A checkpoint with the weights twice, loaded from one part; nothing is written too early."""
    old = trained("adagrad", TW, CW)
    state = old.dmp.state_dict()
    dcp.save({"model": state, "ema": state}, checkpoint_id=folder / "twice")
    new = job_of("adagrad", TW, CW, seed=1)
    found: dict[str, Any] = {"which": refusal(new, folder / "twice", states=False)}
    loaded = checkpoint.load(new.dmp, folder / "twice", under="ema", states=False)
    found["same"] = all(map(torch.equal, whole_weights(old), whole_weights(new)))
    found["moved"] = list(loaded.moved)
    return found


class _WithLists(torch.optim.SGD):
    """An optimizer that can't be made again from its settings: it needs more arguments."""

    def __init__(self, parameters: Any, rates: list[float]) -> None:
        super().__init__(parameters, lr=rates[0])


CHECKS: dict[str, Callable[[Path], Any]] = {
    "trains on": trains_on,
    "torchrec reads": torchrec_reads,
    "fresh adam": fresh_adam,
    "plain": plain,
    "other weights": other_weights,
    "arguments": arguments,
    "nested": nested,
    "damaged": damaged,
}


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    store = dist.FileStore(str(folder / "store"), WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    result = {name: copy.deepcopy(check(folder)) for name, check in CHECKS.items()}
    end_rank(result)


if __name__ == "__main__":
    main()
