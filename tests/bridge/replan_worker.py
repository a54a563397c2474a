"""One rank of a real gloo group that moves tables while it trains, or restarts on other ranks."""

import json
import logging
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from fastplan import EmbeddingShardingPlanner, ReplanPolicy
from fastplan.bridge.resharding import reshard_arguments

ROWS = (40, 60, 80, 100)
DIM = 8
SHARDERS = [EmbeddingBagCollectionSharder()]


class Model(torch.nn.Module):
    """Tables, and a weight that is not of a table: TorchRec's reshard() needs one."""

    def __init__(self, tables: EmbeddingBagCollection, device: str) -> None:
        super().__init__()
        self.tables = tables
        self.scale = torch.nn.Parameter(torch.ones(1, device=device))

    def forward(self, features: KeyedJaggedTensor) -> Any:
        return self.tables(features).values() * self.scale


def model(rows: tuple[int, ...] = ROWS, device: str = "cpu") -> Model:
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
    apply_optimizer_in_backward(torch.optim.Adagrad, made.parameters(), {"lr": 0.1})
    return Model(made, device)


def planner(ranks: int, **more: Any) -> EmbeddingShardingPlanner:
    return EmbeddingShardingPlanner(
        topology=Topology(world_size=ranks, compute_device="cpu", ddr_cap=1 << 34),
        stats=[],
        **more,
    )


def constraints(*kinds: str, **pooling: float) -> dict[str, ParameterConstraints]:
    return {
        f"t{i}": ParameterConstraints(
            sharding_types=list(kinds),
            min_partition=4,
            pooling_factors=[pooling.get(f"t{i}", 1.0)],
        )
        for i in range(len(ROWS))
    }


def batch(step: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(step)
    keys = [f"f{i}" for i in range(len(ROWS))]
    values = [torch.randint(0, n, (6,), generator=generator) for n in ROWS]
    lengths = torch.full((3 * len(ROWS),), 2)
    return KeyedJaggedTensor(keys=keys, values=torch.cat(values), lengths=lengths)


def train(dmp: DistributedModelParallel, steps: range) -> None:
    for step in steps:
        out = dmp(batch(step))
        (out * out).sum().backward()


def wrapped(plan: ShardingPlan) -> DistributedModelParallel:
    return DistributedModelParallel(
        model(),
        env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=SHARDERS,
    )


def weights(dmp: DistributedModelParallel, rank: int) -> dict[str, Any]:
    """Whole tables, gathered on rank 0."""
    found = {}
    for name, value in dmp.state_dict().items():
        if name.endswith("scale"):
            continue
        whole = torch.zeros(value.size()) if rank == 0 else None
        value.gather(0, whole)
        if whole is not None:
            found[name] = whole.tolist()
    return found


def resharded(rank: int, world: int, kind: str) -> Any:
    """Trains, moves what a re-plan moves, and trains on; and the same without moving anything."""
    first = planner(world, constraints=constraints(kind))
    before = first.collective_plan(model(device="meta"), SHARDERS)
    busy = constraints(kind, t3=40.0, t2=25.0)
    policy = ReplanPolicy(objective="rating", max_moved=1.0, slack=1.0)
    if kind == "column_wise":
        # Over gloo a rank can't send to itself, so that all shards of a table must move.
        busy, policy = constraints(kind), ReplanPolicy(rank_map=(1, 0), slack=1.0)
    second = planner(world, constraints=busy, previous=before, replan=policy)
    after = second.collective_plan(model(device="meta"), SHARDERS)
    found = reshard_arguments(before, after)
    dmp, still = wrapped(before), wrapped(before)
    for each in (dmp, still):
        train(each, range(3))
    for path in found.arguments:
        dmp.reshard(found.arguments, path)
    for each in (dmp, still):
        train(each, range(3, 6))
    moved = sorted(name for _, plan in found.arguments.values() for name in plan)
    return [moved, found.needs_restart, weights(dmp, rank) == weights(still, rank)]


def restarted(rank: int, world: int, cache: str) -> Any:
    """Two starts; the first may find the plan of other ranks in the cache."""
    return [started(world, cache), started(world, cache)]


def started(world: int, cache: str) -> Any:
    used = planner(world, cache=cache, replan=ReplanPolicy(max_moved=0.5, slack=0.2))
    plan = used.collective_plan(model((4000, 6000, 8000, 90_000), "meta"), SHARDERS)
    run = used.last_run
    report = run.replan if run is not None else None
    if report is None:
        return [str(plan), run.cache.status if run else None, None]
    return [
        str(plan),
        run.cache.status,
        [report.followed, report.moved, report.least, report.scratch_moved, run.moves.bytes],
    ]


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store-{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    result = {"restarted": restarted(rank, world, f"{folder}/plans")}
    if world == 2:
        for kind in ("table_wise", "column_wise"):
            result[kind] = resharded(rank, world, kind)
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
