"""The data that a collective start sends: fastplan's record compared with TorchRec's pickled plan.

The sending itself depends on the network and is not measured. The benchmark counts bytes, and times
the sending and the receiving rank. A rank that receives fastplan's record must first read its own
tables, which TorchRec does not need; that time is shown too.
"""

import multiprocessing
import pickle
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.types import ShardingPlan

from bench.cache_runs import Times, plan_of
from bench.identity import differences
from bench.planning import make_case
from bench.progress import Progress
from bench.runs import Case
from fastplan import EmbeddingShardingPlanner as FastPlanner
from fastplan.model.plan import PlanRecord
from fastplan.torchrec import collective, compat
from fastplan.torchrec.collective import packed_plan
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.space import recorded_space

ROW_WISE_EVERY = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One plan as each side sends it, and the times of packing it."""

    pickled: bytes
    record: bytes
    pickle_times: Times
    record_times: Times
    shards: int
    differences: list[str]


def measure_broadcast(tables: int, ranks: int, repetitions: int) -> dict[str, Any]:
    """Bytes and times of both sides for one plan, a fifth of its tables row-wise."""
    with Progress(f"{tables} x {ranks}: plans are packed and rebuilt"):
        sent = _send(tables, ranks, repetitions)
        # In a process that holds its model and no plan, as a receiving rank does: the objects of
        # another plan would make the garbage collector slow down the unpickling.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            arguments = (tables, ranks, sent.pickled, sent.record, repetitions)
            unpickled, described, rebuilt, wrong = pool.apply(_receive, arguments)
    return {
        "tables": tables,
        "ranks": ranks,
        "shards": sent.shards,
        "torchrec": {
            "bytes": len(sent.pickled),
            "pack": sent.pickle_times.record(),
            "rebuild": unpickled.record(),
        },
        "fastplan": {
            "bytes": len(sent.record),
            "pack": sent.record_times.record(),
            "describe": described.record(),
            "rebuild": rebuilt.record(),
        },
        "differences": sent.differences + wrong,
    }


def _send(tables: int, ranks: int, repetitions: int) -> Sent:
    case = _constrained_case(tables, ranks)
    planner = case.planner(partial(FastPlanner, cache=False))
    own_plan = plan_of(case, planner)
    # TorchRec's own objects: others might share parts that a pickle then holds only once.
    plan = to_sharding_plan(planner._best_plan, planner._topology)
    pickle_times, record_times = Times(), Times()
    for _ in range(repetitions):
        pickled = pickle_times.timed(lambda: pickle.dumps(plan))
        record = record_times.timed(lambda: packed_plan(planner))
    return Sent(
        pickled=pickled,
        record=record,
        pickle_times=pickle_times,
        record_times=record_times,
        shards=sum(len(item.ranks) for part in plan.plan.values() for item in part.values()),
        differences=[f"sent: {line}" for line in differences(plan, own_plan)],
    )


def _receive(
    tables: int, ranks: int, pickled: bytes, record: bytes, repetitions: int
) -> tuple[Times, Times, Times, list[str]]:
    """Times of unpickling, of describing and of rebuilding, and how the two plans differ."""
    case = _constrained_case(tables, ranks)
    # The first plan pays for lazy imports.
    plan_of(case, case.planner(partial(FastPlanner, cache=False)))
    unpickled, described, rebuilt = Times(), Times(), Times()
    for _ in range(repetitions):
        unpickled.timed(lambda: pickle.loads(pickled))
    for _ in range(repetitions):
        planner = case.planner(partial(FastPlanner, cache=False))
        space = described.timed(partial(_described, case, planner))
        plan = rebuilt.timed(partial(_rebuilt, space, record, planner._topology))
    wrong = [f"rebuilt: {line}" for line in differences(pickle.loads(pickled), plan)]
    return unpickled, described, rebuilt, wrong


def _constrained_case(tables: int, ranks: int) -> Case:
    case = make_case(tables, ranks)
    constraints = {
        name: replace(rule, sharding_types=["table_wise" if index % ROW_WISE_EVERY else "row_wise"])
        for index, (name, rule) in enumerate(case.constraints.items())
    }
    return replace(case, constraints=constraints)


def _described(case: Case, planner: Any) -> Any:
    """A rank's own tables, and the description that ranks compare before rank 0 plans."""
    space = drafted(planner, case.module, [EmbeddingBagCollectionSharder()])
    collective._canonical(space)
    return space


def _rebuilt(space: Any, data: bytes, topology: Any) -> ShardingPlan:
    with compat.paused():
        record = PlanRecord.unpack(data)
        numbers = np.arange(len(record.table), dtype=np.int32)
        plan: ShardingPlan = recorded_space(space, record, resizes=True).sharding_plan(
            numbers, record.ranks, topology
        )
    return plan
