"""A small model and its batches, for ranks that really train it over gloo."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from fastplan import EmbeddingShardingPlanner
from tests.torchrec.shardings import DIM

ROWS = (40, 60, 80, 100)
SHARDERS = [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]


class Model(torch.nn.Module):
    """Tables, and a weight that is not of a table."""

    def __init__(self, tables: EmbeddingBagCollection, device: str) -> None:
        super().__init__()
        self.tables = tables
        self.scale = torch.nn.Parameter(torch.ones(1, device=device))

    def forward(self, features: KeyedJaggedTensor) -> Any:
        return self.tables(features).values() * self.scale


def model(
    rows: Iterable[int] = ROWS, device: str = "cpu", optimizer: type = torch.optim.Adagrad
) -> Model:
    torch.manual_seed(0)
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}",
            embedding_dim=DIM,
            num_embeddings=n,
            feature_names=[f"f{i}"],
            pooling=PoolingType.SUM,
        )
        for i, n in enumerate(rows)
    ]
    made = EmbeddingBagCollection(device=torch.device(device), tables=tables)
    apply_optimizer_in_backward(optimizer, made.parameters(), {"lr": 0.1})
    return Model(made, device)


def planner(ranks: int, **more: Any) -> EmbeddingShardingPlanner:
    return EmbeddingShardingPlanner(
        topology=Topology(world_size=ranks, compute_device="cpu", ddr_cap=1 << 34),
        stats=[],
        **more,
    )


def wrapped(
    plan: ShardingPlan, made: Callable[[], torch.nn.Module] = model
) -> DistributedModelParallel:
    return DistributedModelParallel(
        made(),
        env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=SHARDERS,
    )


def batch(step: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(step)
    keys = [f"f{i}" for i in range(len(ROWS))]
    values = [torch.randint(0, n, (6,), generator=generator) for n in ROWS]
    lengths = torch.full((3 * len(ROWS),), 2)
    return KeyedJaggedTensor(keys=keys, values=torch.cat(values), lengths=lengths)


def train(job: DistributedModelParallel, steps: range) -> None:
    for step in steps:
        out = job(batch(step))
        (out * out).sum().backward()


def weights(job: DistributedModelParallel, rank: int) -> dict[str, Any]:
    """Whole tables, gathered on rank 0."""
    found = {}
    for name, value in job.state_dict().items():
        if name.endswith("scale"):
            continue
        whole = torch.zeros(value.size()) if rank == 0 else None
        value.gather(0, whole)
        if whole is not None:
            found[name] = whole.tolist()
    return found
