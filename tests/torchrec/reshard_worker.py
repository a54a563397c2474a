"""One rank of a real gloo group that trains, moves tables, and trains on."""

import copy
import json
import logging
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ShardingPlan
from torchrec.optim import RowWiseAdagrad

from fastplan import Replan, reshard, reshard_arguments
from tests.torchrec import small_job
from tests.torchrec.shardings import DIM, Shardings, column_wise, plan_of, row_wise, table_wise

T0, T1, T2, T3 = small_job.ROWS
# Batches have the features in the order of these tables.
IN_ORDER = {
    "t0": table_wise(T0, 0),
    "t1": table_wise(T1, 1),
    "t2": table_wise(T2, 2),
    "t3": table_wise(T3, 2),
}
# What differs from them before, and what moves.
MOVES: dict[str, tuple[Shardings, Shardings]] = {
    "tables that change places": ({}, {"t0": table_wise(T0, 1), "t1": table_wise(T1, 0)}),
    "a rank without tables": (
        {"t2": table_wise(T2, 1), "t3": table_wise(T3, 0)},
        {"t3": table_wise(T3, 2)},
    ),
    "a shard that stays": ({"t0": column_wise(T0, 0, 1)}, {"t0": column_wise(T0, 0, 2)}),
    "several shards of a rank": (
        {"t0": column_wise(T0, 0, 0), "t1": column_wise(T1, 1, 1)},
        {"t0": column_wise(T0, 1, 2)},
    ),
    "beside row-wise tables": (
        {"t0": column_wise(T0, 0, 1), "t1": row_wise(T1, 0, 1, 2)},
        {"t0": column_wise(T0, 2, 0)},
    ),
}


def moved(rank: int, before: ShardingPlan, after: ShardingPlan, optimizer: type) -> Any:
    """A job that moves its tables beside one that does not."""

    def made() -> torch.nn.Module:
        return small_job.model(optimizer=optimizer)

    moves, still = (small_job.wrapped(copy.deepcopy(before), made) for _ in range(2))
    for each in (moves, still):
        small_job.train(each, range(3))
    found = reshard(moves, after)
    for each in (moves, still):
        small_job.train(each, range(3, 6))
    return {
        "steps": len(found.steps),
        "needs_restart": found.needs_restart,
        "left": any(reshard_arguments(moves.plan, after)),
        "equal": small_job.weights(moves, rank) == small_job.weights(still, rank),
    }


def planned(world: int) -> tuple[ShardingPlan, ShardingPlan]:
    """Two plans as the planner makes them, the second following the first."""

    def constraints(**pooling: float) -> dict[str, ParameterConstraints]:
        return {
            f"t{i}": ParameterConstraints(
                sharding_types=["table_wise"], pooling_factors=[pooling.get(f"t{i}", 1.0)]
            )
            for i in range(len(small_job.ROWS))
        }

    first = small_job.planner(world, constraints=constraints())
    before = first.collective_plan(small_job.model(device="meta"), small_job.SHARDERS)
    second = small_job.planner(
        world,
        constraints=constraints(t3=40.0, t2=25.0),
        previous=before,
        replan=Replan(objective="rating", max_moved=1.0, slack=1.0),
    )
    return before, second.collective_plan(small_job.model(device="meta"), small_job.SHARDERS)


def without_dense_weights() -> torch.nn.Module:
    made = small_job.model()
    del made.scale
    return made


def of_sequences() -> torch.nn.Module:
    made = small_job.model()
    configs = [
        EmbeddingConfig(name=f"t{i}", embedding_dim=DIM, num_embeddings=n, feature_names=[f"f{i}"])
        for i, n in enumerate(small_job.ROWS)
    ]
    made.tables = EmbeddingCollection(device=torch.device("cpu"), tables=configs)
    return made


def refused(rank: int) -> Any:
    """What is told of jobs that TorchRec can't reshard, and whether they are as they were."""
    tables = {**IN_ORDER, "t2": table_wise(T2, 0), "t3": table_wise(T3, 0)}
    before = plan_of(tables)
    after = plan_of({**tables, **MOVES["tables that change places"][1]})
    jobs = {
        "no dense weights": small_job.wrapped(copy.deepcopy(before), without_dense_weights),
        "sequences": small_job.wrapped(copy.deepcopy(before), of_sequences),
        "two states": small_job.wrapped(copy.deepcopy(before)),
    }
    if rank == 0:
        # Optimizers with a second state need a GPU; one rank knowing of it must do for all.
        optimizer = jobs["two states"].module.tables.fused_optimizer
        state = {"state": {"t0": {"t0.momentum1": 0, "t0.exp_avg_sq": 0}}}
        optimizer.state_dict = lambda: state
    found = {}
    for name, job in jobs.items():
        told = reshard(job, after)
        found[name] = [told.steps, told.needs_restart, str(job.plan) == str(before)]
    return found


def main() -> None:
    rank, world, folder, *only = sys.argv[1:]
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store", int(world))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=int(world))
    result: dict[str, Any] = {}
    if only != ["refused"]:
        for name, (own, moves) in MOVES.items():
            optimizer = RowWiseAdagrad if "row-wise" in name else torch.optim.Adagrad
            before = {**IN_ORDER, **own}
            after = plan_of({**before, **moves})
            result[name] = moved(int(rank), plan_of(before), after, optimizer)
        result["planned"] = moved(int(rank), *planned(int(world)), torch.optim.Adagrad)
    result["refused"] = refused(int(rank))
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
