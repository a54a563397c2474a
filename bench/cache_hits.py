"""A start with a stored plan: TorchRec's PlanLoader and full plan, and fastplan's cache."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torchrec.distributed.planner import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import PlanLoader, ShardingOption
from torchrec.distributed.types import ShardingPlan

from bench.cache_runs import Way, plan_of, time_ways
from bench.estimate import Estimate
from bench.identity import differences
from bench.progress import Progress
from bench.runs import Case, run_torchrec
from bench.text import duration
from fastplan import EmbeddingShardingPlanner as FastPlanner

COLD = "cold"
STORES = ("directory", "memory", "fsspec")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of TorchRec to run: a limit in seconds, and the number of loads of a stored plan."""

    seconds: float
    loads: int


class KnownPlan(PlanLoader):
    """The fastest possible plan loader: its plan is in memory."""

    def __init__(self, options: list[ShardingOption], context_hash: str) -> None:
        self._options = {option.storage_hash(): option for option in options}
        self._context_hash = context_hash

    def load(self) -> dict[int, ShardingOption]:
        return self._options

    def plan_context_hash(self) -> str:
        return self._context_hash

    def get_plan_id(self) -> str:
        return "known plan"


def measure_hits(
    case: Case, repetitions: int, limits: Limits, estimate: Estimate
) -> dict[str, Any]:
    """One cell: the times of every way to the same plan, and any differences between the plans."""
    name = f"{len(case.constraints)} x {case.ranks}"
    cold = Way(name=COLD, planner_class=partial(FastPlanner, cache=False), cache_status="off")
    # The first plan also pays for lazy imports. It is not timed; all others must equal it.
    expected = plan_of(case, case.planner(cold.planner_class))
    full, wrong = _full_plan(name, case, limits, estimate, expected)
    loader, loader_wrong = _loader_hits(name, case, limits, estimate, expected)
    with TemporaryDirectory(prefix="fastplan-bench-") as directory:
        places = (Path(directory), "memory:", "memory://fastplan-bench")
        hits = [
            Way(name=store, planner_class=partial(FastPlanner, cache=place), cache_status="hit")
            for store, place in zip(STORES, places, strict=True)
        ]
        for way in hits:
            plan_of(case, case.planner(way.planner_class))
        entry_bytes = sum(path.stat().st_size for path in Path(directory).rglob("*.plan"))
        with Progress(f"{name}: fastplan plans, and hits its cache"):
            times, fast_wrong = time_ways(case, [cold, *hits], repetitions, expected)
    return {
        "tables": len(case.constraints),
        "ranks": case.ranks,
        "batch_size": case.batch_size,
        "shards": sum(len(t.ranks) for module in expected.plan.values() for t in module.values()),
        "entry_bytes": entry_bytes,
        "torchrec": {"plan": full, "loader": loader},
        "fastplan": {way: taken.record() for way, taken in times.items()},
        "differences": wrong + loader_wrong + fast_wrong,
    }


def _full_plan(
    name: str, case: Case, limits: Limits, estimate: Estimate, expected: ShardingPlan
) -> tuple[dict[str, Any], list[str]]:
    size = len(case.constraints), case.ranks
    seconds = estimate.plan(*size)
    record: dict[str, Any] = {"expected_seconds": seconds, "seconds": None}
    if seconds > limits.seconds:
        return record, []
    with Progress(f"{name}: TorchRec plans, about {duration(seconds)}"):
        run = run_torchrec(case)
    estimate.learn_plan(*size, run.seconds)
    estimate.learn_enumeration(*size, run.enumerate_seconds)
    record |= {"median_seconds": run.seconds, "seconds": [run.seconds]}
    return record, [f"TorchRec's plan: {line}" for line in differences(run.plan, expected)]


def _loader_hits(
    name: str, case: Case, limits: Limits, estimate: Estimate, expected: ShardingPlan
) -> tuple[dict[str, Any], list[str]]:
    # TorchRec enumerates before it looks at the loaded plan.
    size = len(case.constraints), case.ranks
    seconds = estimate.enumeration(*size)
    record: dict[str, Any] = {"expected_seconds": seconds, "seconds": None}
    if seconds > limits.seconds:
        return record, []
    repetitions = max(1, min(limits.loads, int(limits.seconds / seconds)))
    planner_class = partial(TorchRecPlanner, plan_loader=_known_plan(case))
    way = Way(name="PlanLoader hit", planner_class=planner_class)
    with Progress(f"{name}: TorchRec loads the plan {repetitions} x, {duration(seconds)} each"):
        times, wrong = time_ways(case, [way], repetitions, expected)
    return record | times[way.name].record(), wrong


def _known_plan(case: Case) -> KnownPlan:
    """The plan with the context hash that TorchRec's planner compares it by."""
    planner = case.planner(partial(FastPlanner, cache=False))
    plan_of(case, planner)
    return KnownPlan(planner._best_plan, planner.hash_planner_context_inputs_str())
