"""One rank that moves tables from one plan to another, several times, and times each move."""

import gc
import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv

from fastplan import load_plan, reshard
from fastplan.measure.processes import Heartbeats, end_with_parent
from fastplan.measure.settings import MODEL, STATUS, WorkerConfig, plan_file
from fastplan.measure.step import build
from fastplan.spec.read import read_spec


class _Model(torch.nn.Module):
    """Tables, and a weight that is not of a table."""

    def __init__(self, sparse: torch.nn.Module) -> None:
        super().__init__()
        self.sparse = sparse
        self.scale = torch.nn.Parameter(torch.ones(1))


def main(folder: Path) -> None:
    end_with_parent()
    warnings.simplefilter("ignore")
    beats = Heartbeats(folder / STATUS, int(os.environ["RANK"]))
    dist.init_process_group("gloo")
    spec = read_spec(folder / MODEL)
    seconds = []
    for repetition in range(int(WorkerConfig.read(folder).settings["repetitions"])):
        beats.stage(f"move {repetition}")
        model = build(spec, None)
        before, after = (
            load_plan(plan_file(folder, i), model.module, sharders=model.sharders) for i in (0, 1)
        )
        job = DistributedModelParallel(
            _Model(model.module.sparse),
            env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
            device=torch.device("cpu"),
            plan=before,
            sharders=model.sharders,
        )
        dist.barrier()
        began = time.perf_counter()
        left = reshard(job, after).needs_restart
        dist.barrier()
        seconds.append(time.perf_counter() - began)
        if left:
            raise RuntimeError(f"not moved: {left}")
    if dist.get_rank() == 0:
        (folder / "seconds.json").write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    # Ends Gloo's threads: one that released a tensor while Python ends would abort the process.
    gc.collect()
