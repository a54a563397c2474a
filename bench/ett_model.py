"""The model that bench/ett.py trains, its data and its planners.

Everything that affects losses is seeded by step and rank, so that runs can be compared to the bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.models.dlrm import DLRM, DLRMTrain

import fastplan
from fastplan import ett

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


def planner(
    variant: str, world: int, kept: Path, bundled: Any = None, module: nn.Module | None = None
) -> Any:
    """The variant's planner. `kept` is the folder that starts share with later ones.

    `bundled` is the cache of a start from a bundle, `module` the model of a loaded plan.
    """
    topology = Topology(world_size=world, local_world_size=world, compute_device="cpu")
    if variant == "torchrec":
        return EmbeddingShardingPlanner(topology=topology)
    if variant == "loader":
        loader = fastplan.StoredPlanLoader(kept / "plan.json", module, sharders=sharders())
        return EmbeddingShardingPlanner(topology=topology, plan_loader=loader)
    cache = {"cached": kept / "cache", "bundle": bundled}.get(variant, False)
    return fastplan.EmbeddingShardingPlanner(topology=topology, cache=cache)


@dataclass(frozen=True, slots=True)
class Batch:
    """The input of DLRMTrain."""

    dense_features: torch.Tensor
    sparse_features: KeyedJaggedTensor
    labels: torch.Tensor


def batch(count: int, step: int, rank: int) -> Batch:
    """Features and labels of a step on a rank. The same arguments always give the same batch."""
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
    return Batch(dense, sparse, labels)
