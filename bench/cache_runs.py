"""Times plans of fresh planners, in wall time and CPU time."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardingPlan

from bench.identity import differences
from bench.runs import Case, quiet

T = TypeVar("T")


@dataclass(kw_only=True)
class Times:
    """Seconds of each repetition: wall time, CPU time, and time by phase if there are phases."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """For the result file."""
        result = {
            "median_seconds": statistics.median(self.wall),
            "median_cpu_seconds": statistics.median(self.cpu),
            "seconds": self.wall,
            "cpu_seconds": self.cpu,
        }
        if self.phases:
            result["phases"] = {
                name: statistics.median(phases[name] for phases in self.phases)
                for name in self.phases[-1]
            }
        return result

    def timed(self, action: Callable[[], T]) -> T:
        """Runs the action and records its times."""
        # Earlier runs left garbage. Its collection must not count as time of this action.
        gc.collect()
        with quiet():
            cpu, wall = time.process_time(), time.perf_counter()
            value = action()
            self.wall.append(time.perf_counter() - wall)
            self.cpu.append(time.process_time() - cpu)
        return value


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to get a plan: a planner class, and the status its cache must report, if any."""

    name: str
    planner_class: Any
    cache_status: str | None = None


def plan_of(case: Case, planner: Any) -> ShardingPlan:
    """The planner's plan, untimed."""
    with quiet():
        plan: ShardingPlan = planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    return plan


def time_ways(
    case: Case, ways: list[Way], repetitions: int, expected: ShardingPlan
) -> tuple[dict[str, Times], list[str]]:
    """Times of each way with a fresh planner each time, and one line per deviation from the plan.

    The ways take turns, so that a slow minute of the machine affects all of them.
    """
    times = {way.name: Times() for way in ways}
    wrong: list[str] = []
    for _ in range(repetitions):
        for way in ways:
            wrong += _time_one(case, way, times[way.name], expected)
    return times, wrong


def _time_one(case: Case, way: Way, times: Times, expected: ShardingPlan) -> list[str]:
    planner = case.planner(way.planner_class)
    sharders = [EmbeddingBagCollectionSharder()]
    plan = times.timed(lambda: planner.plan(case.module, sharders))
    wrong = [f"{way.name}: {line}" for line in differences(expected, plan)]
    if way.cache_status is None:
        return wrong
    times.phases.append(planner.last_run.seconds)
    cache = planner.last_run.cache
    if cache.status != way.cache_status:
        wrong.append(f"{way.name}: the cache reports {cache.status}: {cache.reason}")
    return wrong
