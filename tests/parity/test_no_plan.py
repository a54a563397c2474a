"""When there is no plan, TorchRec's message is all that anybody notices."""

import copy
import heapq
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import (
    Partitioner,
    PlannerError,
    PlannerErrorType,
    Proposer,
    ShardingOption,
    Stats,
    Topology,
)
from torchrec.distributed.planner.utils import reset_shard_rank

from fastplan.torchrec.write import replay

from .compare import assert_same, outcome, run
from .custom import CopyingProposer, LastRankReservation, ListeningProposer
from .instances import Built
from .models import Table, bag_collection
from .small import (
    assert_agree,
    assert_engine,
    cramped,
    small,
    small_constraints,
    small_topology,
)
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


TABLES = 16


def nearly_fits(types: list[str], seed: int, **partitioner: Any) -> Built:
    """Tables of which the first ones can be placed, but not all."""
    rng = random.Random(seed)
    tables = [
        Table(
            name=f"table_{i}",
            rows=int(10 ** rng.uniform(4, 4.4)),
            dim=rng.choice((64, 128)),
            features=(f"feature_{i}",),
        )
        for i in range(TABLES)
    ]
    weights = sum(table.rows * table.dim * 4 for table in tables)
    constraints = small_constraints(TABLES, compute_kernels=["fused"], min_partition=16)
    for i, rule in enumerate(constraints.values()):
        rule.sharding_types = [types[i % len(types)]]
    return small(
        module=bag_collection(tables),
        topology=small_topology(ranks=4, hbm=int(weights / 4 * rng.uniform(0.7, 1.0))),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        constraints=constraints,
        partitioner=GreedyPerfPartitioner(**partitioner),
    )


def late_failures(test: Any) -> Any:
    for name, values in (
        ("seed", range(3)),
        ("by", [{}, {"sort_by": SortBy.PERF, "balance_modules": True}]),
        (
            "types",
            [
                ["table_wise"],
                ["table_row_wise"],
                ["column_wise", "table_column_wise"],
                ["grid_shard", "table_wise"],
                ["table_row_wise", "table_wise", "row_wise", "column_wise"],
            ],
        ),
    ):
        test = pytest.mark.parametrize(name, values)(test)
    return test


@late_failures
def test_the_error_of_a_late_group_is_torchrecs(
    types: list[str], by: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[Any] = []
    quick = replay._KnownPlacements

    def recorded(own: Any, proposal: Any, ranks: list[int]) -> Any:
        known.append(ranks)
        return quick(own, proposal, ranks)

    monkeypatch.setattr(replay, "_KnownPlacements", recorded)
    record, planner = assert_agree(nearly_fits, types=types, seed=seed, **by)
    assert_engine(planner, "native")
    assert "Last planner error" in record["error"]["text"]
    # Some groups were placed by the core's ranks, and one was left to TorchRec.
    assert len(known) == 1
    assert -1 in known[0]
    assert max(known[0]) >= 0


class Watched:
    """A greedy partitioner that keeps what its methods receive, until it fails."""

    def __init__(self, own: GreedyPerfPartitioner) -> None:
        self.calls: list[Any] = []
        self.partitioner: Any = copy.copy(own)
        for name in replay._KnownPlacements._METHODS:
            if hasattr(own, name):
                setattr(self.partitioner, name, self._watched(getattr(own, name)))

    def _watched(self, method: Any) -> Any:
        def called(placed: Any, devices: list[Any]) -> None:
            by_rank = replay._by_rank(devices)
            heap = [] if isinstance(devices[0], list) else copy.copy(devices)
            order = [heapq.heappop(heap).device.rank for _ in devices] if heap else []
            state = [(each.rank, each.storage, each.perf) for each in by_rank.values()]
            self.calls.append((order, sorted(state, key=str)))
            method(placed, devices)

        return called


@late_failures
def test_a_group_fails_on_the_devices_that_torchrec_has_filled(
    types: list[str], by: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    quick = replay._quick_partitioner
    monkeypatch.setattr(
        replay, "_quick_partitioner", lambda *given: seen.append(given) or quick(*given)
    )
    outcome(FastPlanner, nearly_fits(types, seed, **by))
    planner, searched, proposal = seen[0]
    found = []
    for known in (False, True):
        watched = Watched(planner._partitioner)
        reset_shard_rank(proposal)
        partitioner = watched.partitioner
        if known:
            double = SimpleNamespace(_partitioner=planner._partitioner)
            ranks = quick(double, searched, proposal)._establish_minheap.__self__._ranks
            flat = [rank for each in ranks.values() for rank in each]
            partitioner = replay._KnownPlacements(partitioner, proposal, flat).partitioner()
        with pytest.raises(PlannerError) as raised:
            partitioner.partition(proposal=proposal, storage_constraint=searched.reserved)
        placed = [shard.rank for option in proposal for shard in option.shards]
        found.append((str(raised.value), placed, watched.calls[-1], len(watched.calls)))
    assert found[1][:3] == found[0][:3]
    # TorchRec's methods were called for the last group only.
    assert found[1][3] == 1
    assert found[0][3] > 1


def test_an_error_that_a_reservation_brings_about_ends_the_only_search() -> None:
    """TorchRec 1.8's message reads `_percentage`, and proposers must not be asked again."""
    told = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer = ListeningProposer()
        arguments = {**cramped(), "storage_reservation": LastRankReservation()}
        record, _ = outcome(planner_class, small(proposer=proposer, **arguments))
        told.append((record["error"], proposer.heard))
    assert told[0] == told[1]
    assert told[0][1]


class FewestShards(Proposer):
    """Proposes the options of a single table, those with the fewest shards first."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        self._waiting = sorted(search_space, key=lambda option: option.num_shards)

    def propose(self) -> list[ShardingOption] | None:
        return self._waiting[:1] or None

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        self.heard.append(perf_rating)
        self._waiting.pop(0)


def test_an_error_of_a_perf_model_ends_the_only_search() -> None:
    told = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer, model = FewestShards(), NoopPerfModel(small_topology(2))
        types = ["table_wise", "column_wise"]
        rules = small_constraints(1, sharding_types=types, min_partition=16)
        built = small(count=1, proposer=proposer, performance_model=model, constraints=rules)
        record, _ = outcome(planner_class, built)
        told.append({"error": record["error"], "heard": proposer.heard})
        assert record["error"]["class"] == "builtins.IndexError"
    assert_same(*told)
    assert told[0]["heard"]


class Lengthening(ListeningProposer):
    """Edits what it proposes so that TorchRec could not estimate it again."""

    def feedback(self, partitionable: bool, plan: Any = None, *args: Any, **kwargs: Any) -> None:
        super().feedback(partitionable, plan, *args, **kwargs)
        for option in plan:
            option.input_lengths = [*option.input_lengths, np.float64(1.0)]


def test_options_that_were_edited_are_not_searched_again_for_the_message() -> None:
    told = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer = Lengthening()
        rules = small_constraints(batch_sizes=[8], num_poolings=[1.0])
        record, _ = outcome(planner_class, small(proposer=proposer, constraints=rules, **cramped()))
        told.append({"error": record["error"], "heard": proposer.heard})
    assert_same(*told)


class Enlarging(ListeningProposer):
    """Enlarges the options of a proposal, and makes them slower, after they could not be placed."""

    def feedback(self, partitionable: bool, plan: Any = None, *args: Any, **kwargs: Any) -> None:
        super().feedback(partitionable, plan, *args, **kwargs)
        self._current_proposal = {}
        for option in plan:
            for shard in option.shards:
                shard.storage.hbm += 1000
                shard.perf.fwd_compute += 1.0
                shard.offset[0] += 1


@pytest.mark.parametrize("adapts", [False, True], ids=["as enumerated", "estimated again"])
def test_the_message_shows_a_shard_as_it_was_when_it_could_not_be_placed(adapts: bool) -> None:
    class Own(Enlarging):
        def propose(self) -> Any:
            proposal = super().propose()
            if adapts and proposal:
                for option in proposal:
                    option.shards[0].storage.hbm += 8
            return proposal

    rules = small_constraints(sharding_types=["table_wise", "column_wise"])
    record, planner = assert_agree(lambda: small(proposer=[Own()], constraints=rules, **cramped()))
    assert "storage: Storage(" in record["error"]["text"]
    assert_engine(planner, "mixed")


class Recalling(ListeningProposer):
    """Proposes what could not be placed in the plan before, which has ranks of -1 since then."""

    kept: list[ShardingOption] | None = None

    def propose(self) -> Any:
        return None if len(self.heard) % 2 else self.kept or super().propose()

    def feedback(self, partitionable: bool, plan: Any = None, *args: Any, **kwargs: Any) -> None:
        super().feedback(partitionable, plan, *args, **kwargs)
        self.kept = plan


def test_shards_that_are_not_placed_keep_the_ranks_that_they_had() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer = Recalling()
        rules = small_constraints(sharding_types=["table_wise", "column_wise"])
        built = small(**cramped(), proposer=[proposer], constraints=rules)
        planner = planner_class(**built.planner_kwargs)
        record = {}
        for _ in range(2):
            record = run(planner, built.module, built.sharders)
            proposer.heard.append("the plan ended")
        records.append({**record, "heard": proposer.heard})
    assert_same(*records)
    assert -1 in records[0]["heard"][2][2]
