"""One rank that starts with the same plan in three ways and prints what came of each, as JSON.

TorchRec's own plan objects, fastplan's, and fastplan's with the start patched. A gloo group is
real and trains; of a fake group there is one rank, whatever its size, and it can't train.
"""

import contextlib
import logging
import pickle
import re
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ShardingPlan

import fastplan
from tests.torchrec.processes import end_rank

WAYS = ("torchrec", "fastplan", "patched")
# The rows of the first are divided evenly, then unevenly, then so that the last ranks have none.
TYPES = (
    *("row_wise", "row_wise", "row_wise", "table_wise", "table_wise", "column_wise"),
    *("column_wise", "table_column_wise", "table_row_wise", "table_row_wise", "data_parallel"),
    "grid_shard",
)
ROWS = (1024, 1001, 9, 80, 90, 70, 33, 60, 100, 77, 12, 50)
DIM = 32
BATCH = 4
STEPS = 3


class AnyType(EmbeddingBagCollectionSharder):
    """Every sharding type on CPUs too, where TorchRec offers some of them for GPUs only."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return super().sharding_types("cuda")


def sharders() -> list[Any]:
    fused = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.1}
    return [AnyType(fused_params=fused)]


def model() -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=DIM, num_embeddings=rows, feature_names=[f"f{i}"]
        )
        for i, rows in enumerate(ROWS)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def plans(world: int, per_host: int) -> dict[str, ShardingPlan]:
    """One plan in TorchRec's objects and in fastplan's."""
    constraints = {
        f"t{i}": ParameterConstraints(sharding_types=[kind], min_partition=8)
        for i, kind in enumerate(TYPES)
    }
    planner = fastplan.EmbeddingShardingPlanner(
        topology=Topology(world_size=world, local_world_size=per_host, compute_device="cpu"),
        constraints=constraints,
        cache=False,
        stats=[],
    )
    own = planner.plan(model(), sharders())
    theirs = pickle.loads(pickle.dumps(to_sharding_plan(planner._best_plan, planner._topology)))
    return {"torchrec": theirs, "fastplan": own, "patched": planner.plan(model(), sharders())}


def batch(step: int, rank: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    values = [torch.randint(0, rows, (BATCH,), generator=generator) for rows in ROWS]
    return KeyedJaggedTensor(
        keys=[f"f{i}" for i in range(len(ROWS))],
        values=torch.cat(values),
        lengths=torch.ones(len(ROWS) * BATCH, dtype=torch.int32),
    )


def losses(sharded: Any, rank: int) -> list[str]:
    found = []
    for step in range(STEPS):
        loss = sharded(batch(step, rank)).values().square().sum()
        loss.backward()
        found.append(loss.item().hex())
    return found


def described(value: Any) -> Any:
    """A tensor's shape, and of a sharded one everything about its shards."""
    if isinstance(value, ShardedTensor):
        return [str(value.metadata()), str(value.sharding_spec()), described_shards(value)]
    if isinstance(value, torch.Tensor):
        return list(value.shape)
    if isinstance(value, dict):
        return [[str(key), described(item)] for key, item in value.items()]
    if isinstance(value, list):
        return [described(item) for item in value]
    return str(value)


def described_shards(value: ShardedTensor) -> list[Any]:
    return [[str(shard.metadata), list(shard.tensor.shape)] for shard in value.local_shards()]


def groups(sharded: Any) -> list[Any]:
    """How the tables of every rank are grouped, for every kind of sharding."""
    found = []
    for sharding in sharded.module._embedding_shardings:
        for rank, configs in enumerate(sharding._grouped_embedding_configs_per_rank):
            for config in configs:
                found.append([rank, re.sub(r" at 0x[0-9a-f]+", "", str(config))])
    return found


def start(way: str, plan: ShardingPlan, rank: int, trains: bool) -> dict[str, Any]:
    torch.manual_seed(rank)
    with fastplan.patch(init=True) if way == "patched" else contextlib.nullcontext():
        sharded = DistributedModelParallel(model(), plan=plan, sharders=sharders())
    return {
        "params": described(dict(sharded.fused_optimizer.params)),
        "optimizer": described(sharded.fused_optimizer.state_dict()),
        "groups": groups(sharded),
        "plan": str(sharded.plan),
        "state": described(sharded.state_dict()) if trains else None,
        "losses": losses(sharded, rank) if trains else None,
    }


def main(backend: str, rank: int, world: int, per_host: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if backend == "fake":
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    else:
        dist.init_process_group(
            backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
        )
    made = plans(world, per_host)
    results = {way: start(way, made[way], rank, backend != "fake") for way in WAYS}
    end_rank(results)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5])
