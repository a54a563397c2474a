"""Kill a rank of a job, and see what the restart costs.

    python kill_and_restart.py

This starts itself under torchrun on two ranks. Rank 1 is killed after step 25. torchrun starts the
ranks again: they take their plan from the cache, load the last checkpoint and finish. The job
records where its time goes, and the report at the end shows what the restart cost.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

STEPS, SAVE_EVERY, KILL_AFTER = 40, 10, 25
ROWS = {"user": 50_000, "item": 20_000, "shop": 2_000}
DIM, BATCH = 16, 64
MODULE = [sys.executable, "-W", "ignore", "-m"]


def launch() -> None:
    """Runs the job, then its report."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    settings = {
        "FASTPLAN_ETT": "runs",  # where the job records its time
        "OMP_NUM_THREADS": "1",
        # A store that outlives an attempt can hand its ranks' addresses to the next attempt.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    subprocess.run([*MODULE, *torchrun, __file__], env={**os.environ, **settings}, check=True)
    report = [*MODULE, "fastplan", "ett", "report", "runs"]  # on the command line: fastplan ett ...
    text = subprocess.run(report, check=True, capture_output=True, encoding="utf-8").stdout
    Path("report.txt").write_text(text, "utf-8")
    title, headline, *_ = text.split("\n\n")
    print(f"\n{title}\n\n{headline}\n\nreport.txt has the whole report")


def train() -> None:
    """Trains on one rank, from the last checkpoint if there is one."""
    from fastplan import ett

    ett.install()  # first, so that it also records the imports

    import torch
    import torch.distributed as dist
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import Topology

    import fastplan

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(rank)
    tables = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=DIM, feature_names=[name])
        for name, rows in ROWS.items()
    ]
    model = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    fused = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.1}
    sharders = [EmbeddingBagCollectionSharder(fused_params=fused)]
    planner = fastplan.EmbeddingShardingPlanner(
        topology=Topology(world_size=world, local_world_size=world, compute_device="cpu"),
        batch_size=BATCH,
        cache="plans",
    )
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    job = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)

    # A checkpoint is complete if it has its metadata, which is written last.
    saved = max((int(file.parent.name) for file in Path().glob("saved/*/.metadata")), default=0)
    if saved:
        fastplan.checkpoint.load(job, f"saved/{saved}")
    if rank == 0:
        run = planner.last_run
        print(f"start {attempt + 1} continues after step {saved}")
        print(f"plan cache {run.cache.status}, {run.seconds['total'] * 1e3:.1f} ms", flush=True)

    for step in range(saved + 1, STEPS + 1):
        drawn = torch.Generator().manual_seed(step * world + rank)
        ids = [torch.randint(0, rows, (BATCH,), generator=drawn) for rows in ROWS.values()]
        lengths = torch.ones(len(ROWS) * BATCH, dtype=torch.int32)
        features = KeyedJaggedTensor(keys=[*ROWS], values=torch.cat(ids), lengths=lengths)
        pooled = job(features).to_dict()  # by name: the columns are in the order of the plan
        loss = sum((pooled[name] - 1).square().mean() for name in ROWS)
        loss.backward()
        ett.step(step)
        if step % SAVE_EVERY == 0:
            fastplan.checkpoint.save(job, f"saved/{step}")
            if rank == 0:
                print(f"step {step}: loss {loss.item():.3f}, saved", flush=True)
        if attempt == 0 and rank == 1 and step == KILL_AFTER:
            print(f"rank 1 is killed after step {step}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    train() if "RANK" in os.environ else launch()
    # Ends Gloo's threads: one that released a tensor while Python ends would abort the process.
    gc.collect()
