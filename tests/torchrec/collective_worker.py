"""One rank of a real gloo group: runs every case and prints what it saw, as JSON."""

import logging
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams, ShardingEnv
from torchrec.modules.embedding_configs import DataType
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from fastplan import EmbeddingShardingPlanner, Optimize, shard_cost
from fastplan.torchrec import collective
from fastplan.torchrec.collective import ModelsDiffer
from tests.torchrec.processes import end_rank

ROWS = (1000, 50_000, 200)
# What rank 0 has, and what the last rank has.
SETTINGS = {
    "bounds_check_mode": (BoundsCheckMode.FATAL, BoundsCheckMode.NONE),
    "stochastic_rounding": (True, False),
    "enforce_hbm": (True, False),
    "output_dtype": (DataType.FP32, None),
    "algorithm": (CacheAlgorithm.LFU, CacheAlgorithm.LRU),
    "reserved_memory": (3.0, 1.0),
}
SHARDERS = [EmbeddingBagCollectionSharder()]


def model(rows: tuple[int, ...] = ROWS) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=64, num_embeddings=n, feature_names=[f"f{i}"]
        )
        for i, n in enumerate(rows)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def topology(ranks: int, memory: int = 1 << 34) -> Topology:
    return Topology(world_size=ranks, compute_device="cuda", hbm_cap=memory, ddr_cap=memory)


def planner(ranks: int, memory: int = 1 << 34, **more: Any) -> EmbeddingShardingPlanner:
    return EmbeddingShardingPlanner(topology=topology(ranks, memory), stats=[], **more)


class Editing(EmbeddingShardingPlanner):
    """Changes its plan afterwards, as frameworks do."""

    def plan(self, module: Any, sharders: Any) -> Any:
        plan = super().plan(module, sharders)
        plan.plan[""]["t0"].compute_kernel = "edited"
        return plan


class Restricting(EmbeddingShardingPlanner):
    """Restricts its tables on the way, as frameworks do."""

    def plan(self, module: Any, sharders: Any) -> Any:
        rule = ParameterConstraints(sharding_types=["row_wise"])
        self._enumerator._constraints = {f"t{i}": rule for i in range(len(ROWS))}
        return super().plan(module, sharders)


class Unreadable(EmbeddingBagCollectionSharder):
    """A sharder of a rank whose installation is not in order."""

    def shardable_parameters(self, module: Any) -> Any:
        raise OSError("no such library")


@shard_cost
def rows_cost(shard: Any, out: Any) -> None:
    out.fwd_compute = shard.rows * shard.dim


def same_plan(rank: int, world: int, folder: str) -> Any:
    together = planner(world).collective_plan(model(), SHARDERS)
    return [str(together), together == planner(world).plan(model(), SHARDERS)]


def cached(rank: int, world: int, folder: str) -> Any:
    seen = []
    for _ in range(2):
        used = planner(world, cache=f"{folder}/plans")
        plan = used.collective_plan(model(), SHARDERS)
        seen.append([str(plan), used.last_run.cache.status, used.last_run.reason])
    return seen


def failing(rank: int, world: int, folder: str) -> Any:
    try:
        planner(world, memory=1 << 20).collective_plan(model(), SHARDERS)
    except PlannerError as error:
        return [error.error_type.value, str(error)]


def unreadable(rank: int, world: int, folder: str) -> Any:
    told = []
    for failing in (0, world - 1):
        sharder = Unreadable() if rank == failing else SHARDERS[0]
        try:
            planner(world).collective_plan(model(), [sharder])
        except (OSError, RuntimeError) as error:
            told.append(str(error))
    return told


def custom_cost(rank: int, world: int, folder: str) -> Any:
    used = planner(world, shard_cost=rows_cost)
    plan = used.collective_plan(model(), SHARDERS)
    compiled = bool(rows_cost._compiled)
    alone = planner(world, shard_cost=rows_cost).plan(model(), SHARDERS) if rank == 0 else plan
    return [str(plan), used.last_run.rating, plan == alone, compiled]


def differing(rank: int, world: int, folder: str) -> Any:
    rows = (1000, 60_000, 200) if rank == world - 1 else ROWS
    try:
        planner(world).collective_plan(model(rows), SHARDERS)
    except ModelsDiffer as error:
        return str(error)


def other_settings(rank: int, world: int, folder: str) -> Any:
    """Settings that cost nothing differ on the last rank, one after the other."""
    told = []
    for name, (ours, theirs) in SETTINGS.items():
        value = theirs if rank == world - 1 else ours
        of_cache = name in CacheParams.__dataclass_fields__
        cache = CacheParams(**{name: value}) if of_cache else None
        rule = ParameterConstraints(cache_params=cache, **({} if of_cache else {name: value}))
        used = planner(world, constraints={f"t{i}": rule for i in range(len(ROWS))})
        shown = used.collective_plan(model(), SHARDERS).plan[""]["t1"]
        told.append([name, str(getattr(shown.cache_params if of_cache else shown, name))])
    return told


def breaks(rank: int, world: int, folder: str) -> Any:
    """The last rank can't rebuild the plan."""
    used = planner(world)
    told = None
    recorded_space = collective.recorded_space
    if rank == world - 1:
        collective.recorded_space = lambda *args, **kwargs: 1 / 0
    try:
        used.collective_plan(model(), SHARDERS)
    except (RuntimeError, ZeroDivisionError) as error:
        told = f"{type(error).__name__}: {error}"
    finally:
        collective.recorded_space = recorded_space
    return [told, str(planner(world).collective_plan(model(), SHARDERS))]


def sub_group(rank: int, world: int, folder: str) -> Any:
    half = world // 2
    groups = [dist.new_group(range(half)), dist.new_group(range(half, world))]
    own = model((1000, 50_000) if rank < half else (70_000, 20))
    plan = planner(half).collective_plan(own, SHARDERS, groups[rank >= half])
    return str(plan)


def edited(rank: int, world: int, folder: str) -> Any:
    made = Editing(topology=topology(world), stats=[]).collective_plan(model(), SHARDERS)
    return made.plan[""]["t0"].compute_kernel


def restricted(rank: int, world: int, folder: str) -> Any:
    used = Restricting(topology=topology(world), stats=[])
    made = used.collective_plan(model(), SHARDERS)
    types = {sharding.sharding_type for sharding in made.plan[""].values()}
    left = used._enumerator.last_stored_search_space
    return [sorted(types), None if left is None else len(left)]


def optimized(rank: int, world: int, folder: str) -> Any:
    used = planner(world, optimize=Optimize(time_budget=None, move_budget=2_000))
    plan = used.collective_plan(model(), SHARDERS)
    return [str(plan), used.last_run.rating, used.last_run.start_ratings]


def loaded(rank: int, world: int, folder: str) -> Any:
    """An optimized plan in TorchRec's hands: sums of rows of ones, looked up over all ranks."""
    cpu = Topology(world_size=world, compute_device="cpu", ddr_cap=1 << 34)
    used = EmbeddingShardingPlanner(
        topology=cpu, stats=[], optimize=Optimize(time_budget=None, move_budget=2_000)
    )
    module = EmbeddingBagCollection(
        device=torch.device("cpu"), tables=model().embedding_bag_configs()
    )
    plan = used.collective_plan(module, SHARDERS)
    environment = ShardingEnv.from_process_group(dist.GroupMember.WORLD)
    sharded = DistributedModelParallel(
        module, env=environment, device=torch.device("cpu"), plan=plan, sharders=SHARDERS
    )
    for weight in sharded.parameters():
        torch.nn.init.ones_(weight)
    features = KeyedJaggedTensor.from_lengths_sync(
        keys=["f0", "f1", "f2"], values=torch.arange(6) + rank, lengths=torch.tensor([2, 1, 3])
    )
    return [sharded(features)[key][0, 0].item() for key in ("f0", "f1", "f2")]


CASES = (same_plan, cached, failing, unreadable, custom_cost, differing, sub_group, edited)
CASES += (restricted, optimized, loaded, other_settings, breaks)


def main(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    results = {case.__name__: case(rank, world, folder) for case in CASES}
    end_rank(results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
