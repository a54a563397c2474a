"""When there is no plan, TorchRec's message is all that anybody notices."""

from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import (
    Partitioner,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    Stats,
    Topology,
)

from .compare import assert_same, outcome, run
from .custom import CopyingProposer, ListeningProposer
from .instances import Built
from .small import assert_agree, cramped, small
from .subject import FastPlanner, TorchRecPlanner
from .test_hooks import heard


class Counting(Partitioner):
    """Never places anything, and says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        self.asked += 1
        raise PlannerError(f"attempt {self.asked}", PlannerErrorType.PARTITION)


def test_a_partitioner_with_a_memory_is_quoted_as_it_spoke() -> None:
    asked = []

    def build() -> Built:
        partitioner = Counting()
        asked.append(partitioner)
        return small(partitioner=partitioner)

    record, _ = assert_agree(build)
    assert f"attempt {record['num_proposals']}" in record["error"]["text"]
    assert asked[0].asked == asked[1].asked


class CountingReservation(FixedPercentageStorageReservation):
    asked = 0

    def reserve(self, *args: Any, **kwargs: Any) -> Topology:
        self.asked += 1
        return super().reserve(*args, **kwargs)


def test_memory_is_reserved_once() -> None:
    reservations = []

    def build() -> Built:
        reservations.append(CountingReservation(0.0))
        return small(**{**cramped(), "storage_reservation": reservations[-1]})

    assert_agree(build)
    assert [reservation.asked for reservation in reservations] == [1, 1]


class SlottedEnumerator:
    """An enumerator that takes no attribute and can't be copied."""

    __slots__ = ("_inner",)

    def __init__(self, topology: Topology) -> None:
        self._inner = EmbeddingEnumerator(topology, 512)

    def __copy__(self) -> Any:
        raise TypeError("there is only one")

    def enumerate(self, module: Any, sharders: list[Any]) -> list[ShardingOption]:
        return self._inner.enumerate(module, sharders)

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        self._inner.populate_estimates(sharding_options)

    @property
    def last_stored_search_space(self) -> None:
        return None


def test_an_enumerator_that_takes_no_attributes() -> None:
    def build() -> Built:
        arguments = cramped()
        return small(**arguments, enumerator=SlottedEnumerator(arguments["topology"]))

    record, _ = assert_agree(build)
    assert record["error"]["kind"] is not None


class Keeping(Stats):
    told: dict[str, Any]

    def log(self, **told: Any) -> None:
        self.told = told


def test_stats_are_given_the_planners_own_parts() -> None:
    for planner_class in (TorchRecPlanner, FastPlanner):
        stats = Keeping()
        _, planner = outcome(planner_class, small(**cramped(), stats=stats))
        assert stats.told["enumerator"] is planner._enumerator
        assert stats.told["storage_reservation"] is planner._storage_reservation
        assert stats.told["topology"] is planner._topology


@pytest.mark.parametrize("proposer", [None, ListeningProposer, CopyingProposer])
def test_hooks_hear_of_the_search_once(
    proposer: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        arguments = {**cramped(), "proposer": proposer and proposer()}
        calls.append(heard(planner_class, monkeypatch, fails=True, **arguments))
    for theirs, ours in zip(*calls, strict=True):
        assert ours == theirs


def test_the_planner_can_plan_again_after_it_found_no_plan() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(**cramped(), proposer=[ListeningProposer()])
        planner = planner_class(**built.planner_kwargs)
        run(planner, built.module, built.sharders)
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)
