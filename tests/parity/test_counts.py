"""What planners count, and what custom parts can see of it while a search runs or fails."""

from collections.abc import Callable
from typing import Any

import pytest
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import (
    Partitioner,
    PerfModel,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    Topology,
)

from .compare import assert_same, outcome, run
from .custom import ListeningProposer, RecordingStats
from .instances import Built
from .small import MIB, assert_agree, small, small_constraints, small_topology
from .subject import FastPlanner, TorchRecPlanner


class Returning(PerfModel):
    def __init__(self, rating: float) -> None:
        self._rating = rating

    def rate(self, plan: list[ShardingOption]) -> float:
        return self._rating


class Rejecting(PerfModel):
    """Refuses plans with a sharding type, or any."""

    def __init__(self, sharding_type: str | None) -> None:
        self._type = sharding_type

    def rate(self, plan: list[ShardingOption]) -> float:
        if self._type is None or any(o.sharding_type == self._type for o in plan):
            raise PlannerError("rejected", PlannerErrorType.OTHER)
        return sum(shard.perf.total for option in plan for shard in option.shards)


PERF_MODELS: dict[str, Callable[[], PerfModel]] = {
    "nan": lambda: Returning(float("nan")),
    "inf": lambda: Returning(float("inf")),
    "rejects-some": lambda: Rejecting("row_wise"),
    "rejects-all": lambda: Rejecting(None),
    "too-few-ranks": lambda: NoopPerfModel(small_topology(2)),
}


@pytest.mark.parametrize("name", PERF_MODELS)
def test_plans_count_whatever_the_perf_model_says(name: str) -> None:
    assert_agree(lambda: small(performance_model=PERF_MODELS[name]()))


@pytest.mark.parametrize("name", ["nan", "rejects-all"])
def test_stats_hear_the_counts_of_a_search_without_a_plan(name: str) -> None:
    told = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        stats = RecordingStats()
        outcome(planner_class, small(stats=stats, performance_model=PERF_MODELS[name]()))
        told.append({f"call {i}": call for i, call in enumerate(stats.told)})
    assert_same(*told)


class Placing(Partitioner):
    """TorchRec's placement, with an eye on the planner's count; may break."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.planner: Any = None
        self.seen: list[tuple[int, int]] = []
        self._breaks_at = breaks_at

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        if self.planner is not None:
            self.seen.append((self.planner._num_proposals, self.planner._num_plans))
        if self._breaks_at is not None:
            self._breaks_at -= 1
            if self._breaks_at < 0:
                raise RuntimeError("broken")
        return GreedyPerfPartitioner().partition(proposal, storage_constraint)


class Empty(Partitioner):
    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        return []


def test_counts_grow_while_the_search_runs() -> None:
    seen = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        partitioner = Placing()
        built = small(partitioner=partitioner)
        partitioner.planner = planner_class(**built.planner_kwargs)
        run(partitioner.planner, built.module, built.sharders)
        seen.append(partitioner.seen)
    assert seen[0] == seen[1]
    assert seen[0][2] == (3, 2)


def test_counts_stand_after_a_partitioner_broke() -> None:
    record, _ = assert_agree(lambda: small(partitioner=Placing(breaks_at=2)))
    assert record["num_proposals"] == 3


def test_a_partitioner_that_returns_nothing_has_found_no_plan() -> None:
    assert_agree(lambda: small(partitioner=Empty()))


@pytest.mark.parametrize("arguments", [{}, {"partitioner": Placing}], ids=["stock", "custom"])
def test_time_that_is_over_before_the_search(arguments: dict[str, Any]) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(**{name: make() for name, make in arguments.items()})
        planner = planner_class(**built.planner_kwargs)
        planner._timeout_seconds = -1
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)
    assert "0 proposals" in records[0]["error"]["text"]


@pytest.mark.parametrize("partitioner", [GreedyPerfPartitioner, MemoryBalancedPartitioner])
@pytest.mark.parametrize("hbm", [3, 12, 40])
def test_proposer_hears_how_far_a_failed_placement_came(hbm: int, partitioner: type) -> None:
    def build(proposer: ListeningProposer) -> Built:
        return small(
            topology=small_topology(hbm=hbm * MIB, ddr_cap=8 * MIB),
            proposer=proposer,
            partitioner=partitioner(),
            storage_reservation=FixedPercentageStorageReservation(0.0),
            constraints=small_constraints(sharding_types=["table_wise", "column_wise"]),
        )

    heard = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer = ListeningProposer()
        outcome(planner_class, build(proposer))
        heard.append(proposer.heard)
    assert heard[0] == heard[1]
