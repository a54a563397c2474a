"""Timed runs of both planners on the same input."""

import contextlib
import gc
import logging
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingPlan

from bench.models import Constraints
from fastplan import EmbeddingShardingPlanner as FastPlanner

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of both planners."""

    module: nn.Module
    constraints: Constraints
    ranks: int
    batch_size: int
    hbm_bytes: int = 80 * GIB
    ranks_per_host: int = 8

    def planner(self, planner_class: type[Any], **more: Any) -> Any:
        """A fresh planner on a fresh topology: nothing carries over from one run to the next.

        Args:
            planner_class: TorchRec's or fastplan's.
            more: arguments of the planner. Without `stats`, it writes no statistics.
        """
        with quiet():
            topology = Topology(
                world_size=self.ranks,
                compute_device="cuda",
                hbm_cap=self.hbm_bytes,
                local_world_size=min(self.ranks_per_host, self.ranks),
            )
            return planner_class(
                topology=topology,
                batch_size=self.batch_size,
                constraints=self.constraints,
                **{"stats": [], **more},
            )


class Taker(FastPlanner):
    """A planner that keeps its problem for later use."""

    def plan(self, module: Any, sharders: list[Any]) -> ShardingPlan:
        try:
            return super().plan(module, sharders)  # type: ignore[no-any-return]
        finally:
            searched = self._fastplan.result.searched
            self.space, self.problem = searched.space, searched.problem
            self.search = searched.search


@dataclass(frozen=True, kw_only=True)
class TorchRecRun:
    plan: ShardingPlan
    rating: float
    seconds: float
    enumerate_seconds: float
    proposals: int
    plans: int


@dataclass(frozen=True, kw_only=True)
class FastRuns:
    """Several runs of fastplan. The first one also pays for lazy imports and is kept separately."""

    plan: ShardingPlan
    rating: float
    engine: str
    reason: str | None
    first_seconds: float
    seconds: list[float]
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        return sum(len(item.ranks) for part in self.plan.plan.values() for item in part.values())

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.seconds), max(self.seconds)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """TorchRec warns and logs on many paths; neither belongs in a benchmark's output."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def run_torchrec(case: Case) -> TorchRecRun:
    """Plans once with TorchRec's own planner, and times its enumeration."""
    planner = case.planner(TorchRecPlanner)
    enumerate_seconds = _time_enumeration(planner)
    plan, seconds = _timed_plan(planner, case.module)
    return TorchRecRun(
        plan=plan,
        rating=planner._perf_model.rate(planner._best_plan),
        seconds=seconds,
        enumerate_seconds=enumerate_seconds[0],
        proposals=planner._num_proposals,
        plans=planner._num_plans,
    )


def run_torchrec_enumeration(case: Case) -> float:
    """Seconds TorchRec spends on listing the search space, before any search."""
    planner = case.planner(TorchRecPlanner)
    enumerate_seconds = _time_enumeration(planner)
    with quiet():
        planner._enumerator.enumerate(case.module, [EmbeddingBagCollectionSharder()])
    return enumerate_seconds[0]


def plan_once(case: Case) -> ShardingPlan:
    """One plan by fastplan, untimed."""
    return _timed_plan(case.planner(FastPlanner), case.module)[0]


def run_fastplan(case: Case, repetitions: int) -> FastRuns:
    """Plans `repetitions` times with a fresh planner each, after a separate first run."""
    _, first_seconds = _timed_plan(case.planner(FastPlanner), case.module)
    seconds, phases = [], []
    plan = planner = None
    for _ in range(repetitions):
        # A large plan of the run before would slow this one down through the garbage collector.
        del plan, planner
        planner = case.planner(FastPlanner)
        plan, elapsed = _timed_plan(planner, case.module)
        seconds.append(elapsed)
        phases.append(planner.last_run.seconds)
    last = planner.last_run
    return FastRuns(
        plan=plan,
        rating=last.rating,
        engine=last.engine,
        reason=last.reason,
        first_seconds=first_seconds,
        seconds=seconds,
        phases={phase: statistics.median(run[phase] for run in phases) for phase in last.seconds},
    )


def _timed_plan(planner: Any, module: nn.Module) -> tuple[ShardingPlan, float]:
    sharders = [EmbeddingBagCollectionSharder()]
    # The previous run's garbage is not this run's time.
    gc.collect()
    with quiet():
        start = time.perf_counter()
        plan = planner.plan(module, sharders)
        return plan, time.perf_counter() - start


def _time_enumeration(planner: Any) -> list[float]:
    """Makes the planner's enumerator append its time to the returned list."""
    enumerator, seconds = planner._enumerator, []
    original = enumerator.enumerate

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - start)

    enumerator.enumerate = timed
    return seconds
