"""Train a small DLRM whose plan comes from fastplan, and from a cache when it starts again.

    torchrun --nproc-per-node=2 train_dlrm.py

Run it twice. The first start searches for a plan and stores it in plans/. The second start
takes it from there. Both have the same plan, so all losses are the same.
"""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology
from torchrec.models.dlrm import DLRM, DLRMTrain

from fastplan import EmbeddingShardingPlanner  # was: from torchrec.distributed.planner

ROWS = {"user": 50_000, "item": 20_000, "shop": 2_000, "colour": 500}
DIM, DENSE, BATCH, STEPS = 16, 8, 128, 60


def build_model() -> DLRMTrain:
    """The tables are on the meta device: memory is taken when the plan is known."""
    tables = [
        EmbeddingBagConfig(
            name=name, num_embeddings=rows, embedding_dim=DIM, feature_names=[f"{name}_id"]
        )
        for name, rows in ROWS.items()
    ]
    sparse = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return DLRMTrain(DLRM(sparse, DENSE, [32, DIM], [32, 1]))


def batch(step: int, rank: int) -> SimpleNamespace:
    """Returns random features. A click depends on the colour, which the model has to find out."""
    drawn = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
    ids = [torch.randint(0, rows, (BATCH,), generator=drawn) for rows in ROWS.values()]
    sparse = KeyedJaggedTensor(
        keys=[f"{name}_id" for name in ROWS],
        values=torch.cat(ids),
        lengths=torch.ones(len(ROWS) * BATCH, dtype=torch.int32),
    )
    return SimpleNamespace(
        dense_features=torch.rand(BATCH, DENSE, generator=drawn),
        sparse_features=sparse,
        labels=ids[-1] % 2,
    )


def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = build_model()
    fused = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.01}
    sharders = [EmbeddingBagCollectionSharder(fused_params=fused)]

    # The swap. The arguments are those of TorchRec's planner, and so is the plan. Only `cache` is
    # new: a directory or URL that all hosts see.
    topology = Topology(world_size=world, local_world_size=world, compute_device="cpu")
    planner = EmbeddingShardingPlanner(topology=topology, batch_size=BATCH, cache="plans")
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)

    job = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)
    dense = torch.optim.Adagrad(
        [weight for _, weight in job.named_parameters() if weight.requires_grad], lr=0.01
    )
    run = planner.last_run
    if rank == 0:
        print(f"engine {run.engine}, cache {run.cache.status}")
        print(f"planned in {run.seconds['total'] * 1000:.1f} ms")
        for tables in plan.plan.values():
            for name, table in tables.items():
                print(f"  {name:7} {table.sharding_type:13} on ranks {table.ranks}")
    for step in range(1, STEPS + 1):
        loss, _ = job(batch(step, rank))
        dense.zero_grad()
        loss.backward()
        dense.step()
        if step % 20 == 0:
            mean = loss.detach() / world
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Ends Gloo's threads: one that released a tensor while Python ends would abort the process.
    gc.collect()
