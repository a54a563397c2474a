"""One rank of the job that bench/ett.py measures: a DLRM that trains, saves, is killed, restores.

Everything that decides its losses is seeded by step and rank, so that all runs can be compared to
the bit. Its record of itself is what the benchmark is about: see `fastplan.ett`.
"""

from __future__ import annotations

from fastplan import ett

ett.install()

import argparse  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from fbgemm_gpu.split_embedding_configs import EmbOptimType  # noqa: E402
from torch import nn  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology  # noqa: E402
from torchrec.models.dlrm import DLRM, DLRMTrain  # noqa: E402

import fastplan  # noqa: E402

VARIANTS = ("torchrec", "loader", "fastplan", "cached")
DIM = 16
DENSE = 13
BATCH = 32
RATE = 0.05
ROWS = (200, 20_000)


def tables(count: int) -> list[EmbeddingBagConfig]:
    generator = random.Random(0)
    return [
        EmbeddingBagConfig(
            name=f"table_{i}",
            num_embeddings=generator.randint(*ROWS),
            embedding_dim=DIM,
            feature_names=[f"feature_{i}"],
        )
        for i in range(count)
    ]


def build(count: int) -> nn.Module:
    with ett.phase("model_build"):
        torch.manual_seed(0)
        sparse = EmbeddingBagCollection(tables=tables(count), device=torch.device("meta"))
        return DLRMTrain(DLRM(sparse, DENSE, [32, DIM], [32, 1]))


def sharders() -> list[Any]:
    # An optimizer without state: the weights are all that a checkpoint has to hold.
    fused = {"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": RATE}
    return [EmbeddingBagCollectionSharder(fused_params=fused)]


def planner(variant: str, world: int, known: Path) -> Any:
    """The variant's planner; `known` has what a start before this one has left."""
    topology = Topology(world_size=world, local_world_size=world, compute_device="cpu")
    if variant == "torchrec":
        return EmbeddingShardingPlanner(topology=topology)
    if variant == "loader":
        loader = fastplan.StoredPlanLoader(known / "plan.json")
        return EmbeddingShardingPlanner(topology=topology, plan_loader=loader)
    cache: Any = known / "cache" if variant == "cached" else False
    return fastplan.EmbeddingShardingPlanner(topology=topology, cache=cache)


def batch(count: int, step: int, rank: int) -> tuple[Any, ...]:
    """Features and labels of a step on a rank, wherever and whenever they are asked for."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    sizes = torch.tensor([config.num_embeddings for config in tables(count)])
    drawn = torch.rand(count, BATCH, generator=generator)
    sparse = KeyedJaggedTensor(
        keys=[f"feature_{i}" for i in range(count)],
        values=(drawn * sizes[:, None]).long().flatten(),
        lengths=torch.ones(count * BATCH, dtype=torch.int32),
    )
    dense = torch.rand(BATCH, DENSE, generator=generator)
    labels = torch.randint(0, 2, (BATCH,), generator=generator)
    return dense, sparse, labels


class _Batch:
    """What DLRMTrain takes."""

    def __init__(self, dense: Any, sparse: Any, labels: Any) -> None:
        self.dense_features, self.sparse_features, self.labels = dense, sparse, labels


def train(args: argparse.Namespace, model: Any, attempt: int) -> None:
    """Trains, and writes the losses of its steps down as they are, to the bit."""
    dense = [p for _, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(dense, lr=RATE)
    saved = args.folder / "checkpoint"
    first = 1
    if (saved / ".metadata").exists():
        state = model.state_dict()
        dcp.load(state, checkpoint_id=saved)
        model.load_state_dict(state)
        first = args.save + 1
    rank, world = dist.get_rank(), dist.get_world_size()
    losses = (args.folder / f"losses.{attempt}.{rank}").open("w", buffering=1)
    for step in range(first, args.steps + 1):
        loss, _ = model(_Batch(*batch(args.tables, step, rank)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.write(f"{step} {loss.item().hex()}\n")
        ett.step(step)
        if step == args.save:
            dcp.save(model.state_dict(), checkpoint_id=saved)
        if step == args.kill and attempt == 0 and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    losses.close()


def run(args: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    module = build(args.tables)
    plan = planner(args.variant, world, args.known).collective_plan(module, sharders())
    torch.manual_seed(rank)
    model = DistributedModelParallel(module, plan=plan, sharders=sharders())
    train(args, model, attempt)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save", type=int, required=True, help="the step after which to save")
    parser.add_argument("--kill", type=int, required=True, help="the step to be killed after")
    parser.add_argument("--known", type=Path, required=True, help="plans of earlier starts")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoint and losses")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
