"""Times one start of a rank in parts, from receiving a plan to the sharded module.

The process group is torch's fake one: this rank does all its work, and collectives do nothing.
Every start is a fork of a process that has imported everything and has no plan.
"""

import gc
import multiprocessing
import pickle
import random
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import ParameterConstraints

import fastplan
from bench.identity import differences
from bench.runs import quiet
from fastplan.model.plan import PlanRecord
from fastplan.torchrec import collective, compat
from fastplan.torchrec.collective import packed_plan
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.space import recorded_space

T = TypeVar("T")

WAYS = {
    "torchrec": "TorchRec's plan",
    "fastplan": "fastplan's plan",
    "patched": "fastplan's plan, patch(init=True)",
}
ROW_WISE_EVERY = 4
ROWS = (10_000, 100_000)
DIM = 16
RANKS_PER_HOST = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """One plan as each side sends it."""

    tables: int
    ranks: int
    shards: int
    pickled: bytes
    record: bytes
    differences: list[str]


class AnyType(EmbeddingBagCollectionSharder):
    """Offers row-wise tables on CPUs too; TorchRec offers them for GPUs only."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return super().sharding_types("cuda")


def in_a_fork(action: Callable[..., T], *arguments: Any) -> T:
    """Runs a function in a fork and returns its result."""
    gc.collect()
    # A fork inherits the benchmark's handler of SIGTERM, which is how a pool ends its workers.
    usual = signal.signal, (signal.SIGTERM, signal.SIG_DFL)
    with multiprocessing.get_context("fork").Pool(1, *usual) as pool:
        return pool.apply(action, arguments)


def send(tables: int, ranks: int) -> Received:
    """Plans with a quarter of the tables row-wise, and packs the plan as rank 0 does."""
    with quiet():
        planner = _planner(tables, ranks)
        own = planner.plan(_model(tables), _sharders())
        # TorchRec's own objects: others might share parts that a pickle then holds only once.
        plan = to_sharding_plan(planner._best_plan, planner._topology)
        return Received(
            tables=tables,
            ranks=ranks,
            shards=sum(len(item.ranks) for part in plan.plan.values() for item in part.values()),
            pickled=pickle.dumps(plan),
            record=packed_plan(planner),
            differences=differences(plan, own),
        )


def start(way: str, received: Received) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of both phases: receiving the plan and sharding the model."""
    ranks = received.ranks
    torch.set_num_threads(1)
    with quiet(), fastplan.patch(init=True) if way == "patched" else nullcontext():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        module = _model(received.tables)
        planner = _planner(received.tables, ranks)
        gc.collect()
        marks = [_now()]
        if way == "torchrec":
            plan = pickle.loads(received.pickled)
        else:
            plan = _rebuilt(planner, module, received.record)
        marks.append(_now())
        DistributedModelParallel(module, plan=plan, sharders=_sharders(), init_data_parallel=False)
        marks.append(_now())
        dist.destroy_process_group()
    phases = zip(("receive", "dmp"), marks, marks[1:], strict=False)
    return {
        name: {"seconds": after[0] - before[0], "cpu_seconds": after[1] - before[1]}
        for name, before, after in phases
    }


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _rebuilt(planner: Any, module: Any, data: bytes) -> Any:
    """The work of a rank in fastplan's collective start, without the sending."""
    space = drafted(planner, module, _sharders())
    collective._canonical(space)
    with compat.paused():
        record = PlanRecord.unpack(data)
        numbers = np.arange(len(record.table), dtype=np.int32)
        return recorded_space(space, record, resizes=True).sharding_plan(
            numbers, record.ranks, planner._topology
        )


def _planner(tables: int, ranks: int) -> Any:
    rules = {
        f"table_{i}": ParameterConstraints(
            sharding_types=["table_wise" if i % ROW_WISE_EVERY else "row_wise"]
        )
        for i in range(tables)
    }
    topology = Topology(
        world_size=ranks, local_world_size=min(RANKS_PER_HOST, ranks), compute_device="cpu"
    )
    return fastplan.EmbeddingShardingPlanner(
        topology=topology, constraints=rules, cache=False, stats=[]
    )


def _sharders() -> list[Any]:
    fused = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.05}
    return [AnyType(fused_params=fused)]


def _model(tables: int) -> EmbeddingBagCollection:
    """Tables so small that their weights take no time next to their shards."""
    generator = random.Random(0)
    configs = [
        EmbeddingBagConfig(
            name=f"table_{i}",
            num_embeddings=generator.randint(*ROWS),
            embedding_dim=DIM,
            feature_names=[f"feature_{i}"],
        )
        for i in range(tables)
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
