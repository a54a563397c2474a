"""Custom planner parts run in Python and lead to TorchRec's result all the same."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorFactory,
)
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import (
    ShardingOption,
    Topology,
)

from .compare import (
    assert_same,
    outcome,
    run,
)
from .custom import (
    CopyingProposer,
    DelegatingEnumerator,
    DuckProposer,
    FailingSharder,
    HostMemoryReservation,
    LastRankReservation,
    ListeningProposer,
    NarrowSharder,
    OwnFormulaConfig,
    PaddedStorageEstimator,
    PenalisingConfig,
    RecordingStats,
    ReversingPartitioner,
    RoundRobinPartitioner,
    RowCountEstimator,
    TaggingEnumerator,
    TotalPerfModel,
)
from .instances import Built
from .small import (
    MIB,
    assert_agree,
    assert_engine,
    cramped,
    small,
    small_constraints,
    small_topology,
)
from .subject import FastPlanner, TorchRecPlanner


def with_enumerator(enumerator_class: type, estimators: Callable | None = None) -> Built:
    topology, constraints = small_topology(), small_constraints()
    made = None if estimators is None else estimators(topology, constraints)
    enumerator = enumerator_class(topology, 512, constraints, made)
    return small(topology=topology, constraints=constraints, enumerator=enumerator)


def with_config(config: Any) -> Built:
    def estimators(topology: Topology, constraints: Any) -> list[Any]:
        perf = EmbeddingPerfEstimatorFactory.create_with_config(
            config, topology=topology, constraints=constraints
        )
        return [perf, EmbeddingStorageEstimator(topology, constraints)]

    return with_enumerator(EmbeddingEnumerator, estimators)


def padded(topology: Topology, constraints: Any) -> list[Any]:
    perf = EmbeddingPerfEstimator(topology, constraints)
    return [perf, PaddedStorageEstimator(topology, constraints)]


def by_rows(topology: Topology, constraints: Any) -> list[Any]:
    return [RowCountEstimator(topology), EmbeddingStorageEstimator(topology, constraints)]


CUSTOM: dict[str, Callable[[], Built]] = {
    "enumerator-subclass": lambda: with_enumerator(TaggingEnumerator),
    "enumerator-of-its-own": lambda: with_enumerator(DelegatingEnumerator),
    "storage-estimator": lambda: with_enumerator(EmbeddingEnumerator, padded),
    "perf-estimator": lambda: with_enumerator(EmbeddingEnumerator, by_rows),
    "annotated-formula": lambda: with_config(OwnFormulaConfig()),
    "post-processing": lambda: with_config(PenalisingConfig()),
    "proposer-subclass": lambda: small(proposer=[ListeningProposer(), UniformProposer()]),
    "proposer-by-shape": lambda: small(proposer=DuckProposer()),
    "proposer-with-copies": lambda: small(proposer=[UniformProposer(), CopyingProposer()]),
    "partitioner-subclass": lambda: small(partitioner=ReversingPartitioner()),
    "partitioner-of-its-own": lambda: small(partitioner=RoundRobinPartitioner()),
    "perf-model": lambda: small(performance_model=TotalPerfModel()),
    "reservation-subclass": lambda: small(storage_reservation=HostMemoryReservation(0.1)),
    "reservation-of-its-own": lambda: small(storage_reservation=LastRankReservation()),
    "reservation-without-room": lambda: small(
        **{**cramped(), "storage_reservation": LastRankReservation()}
    ),
}
# Their numbers can be read once, before the search: how much of it stays native is open.
MAY_STAY_NATIVE = {"reservation-subclass", "reservation-of-its-own", "reservation-without-room"}


@pytest.mark.parametrize("name", CUSTOM)
def test_custom_part_leads_to_torchrecs_result_and_is_reported(name: str) -> None:
    _, planner = assert_agree(CUSTOM[name])
    native = ("native",) if name in MAY_STAY_NATIVE else ()
    assert_engine(planner, "mixed", "torchrec", *native)


def test_attributes_hung_on_options_reach_the_best_plan() -> None:
    built = with_enumerator(TaggingEnumerator)
    _, planner = outcome(FastPlanner, built)
    assert all(option.tag.startswith("option ") for option in planner._best_plan)


def test_proposer_hears_what_torchrec_tells_it() -> None:
    heard = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        proposer = ListeningProposer()
        outcome(planner_class, small(topology=small_topology(hbm=24 * MIB), proposer=proposer))
        heard.append(proposer.heard)
    assert heard[0] == heard[1]
    assert len(heard[0]) == 25


def test_perf_model_subclass_of_the_stock_one_is_not_taken_for_it() -> None:
    class Negated(NoopPerfModel):
        def rate(self, plan: list[ShardingOption]) -> float:
            return -super().rate(plan)

    _, planner = assert_agree(lambda: small(performance_model=Negated(small_topology())))
    assert_engine(planner, "mixed", "torchrec")


def test_instance_method_replaced_on_a_stock_part_counts() -> None:
    def build() -> Built:
        built = small(proposer=UniformProposer(), partitioner=GreedyPerfPartitioner())
        partitioner = built.planner_kwargs["partitioner"]
        partitioner.partition = RoundRobinPartitioner().partition
        return built

    _, planner = assert_agree(build)
    assert_engine(planner, "mixed", "torchrec")


def test_custom_sharder_decides_the_types() -> None:
    def build() -> Built:
        built = small(constraints=small_constraints())
        built.sharders[:] = [NarrowSharder()]
        return built

    record, _ = assert_agree(build)
    kinds = {key.split()[-2] for key in record["search_space"]}
    assert kinds == {"column_wise", "table_wise"}


def test_error_of_a_custom_sharder_comes_through() -> None:
    def build() -> Built:
        built = small()
        built.sharders[:] = [FailingSharder()]
        return built

    record, _ = assert_agree(build)
    assert record["error"]["text"] == "no parameters today"


def reverse(options: list[ShardingOption]) -> list[ShardingOption]:
    return options[::-1]


def move_to_last_rank(options: list[ShardingOption]) -> list[ShardingOption]:
    for option in options:
        if option.num_shards == 1:
            option.shards[0].rank = 3
    return options


@pytest.mark.parametrize(
    "callbacks",
    [[reverse], [move_to_last_rank, reverse], [lambda options: options[:2]]],
    ids=["reverse", "move-and-reverse", "drop"],
)
def test_callbacks_change_the_plan_as_in_torchrec(callbacks: list[Callable]) -> None:
    types = ["table_wise", "column_wise"]
    assert_agree(
        lambda: small(callbacks=callbacks, constraints=small_constraints(sharding_types=types))
    )


@pytest.mark.parametrize("arguments", [dict, cramped], ids=["feasible", "infeasible"])
def test_stats_are_told_the_same(arguments: Callable) -> None:
    told = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        stats = RecordingStats()
        constraints = small_constraints()
        outcome(planner_class, small(stats=stats, constraints=constraints, **arguments()))
        told.append({f"call {i}": call for i, call in enumerate(stats.told)})
    assert_same(*told)
    assert len(told[0]) == 1


@pytest.mark.parametrize("enumerator", [EmbeddingEnumerator, DelegatingEnumerator])
def test_default_stats_print_the_same_table_but_for_the_time(enumerator: type) -> None:
    tables = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = with_enumerator(enumerator)
        built.planner_kwargs["stats"] = EmbeddingStats()
        planner = planner_class(**built.planner_kwargs)
        run(planner, built.module, built.sharders)
        rows = planner._stats[0]._stats_table
        tables.append([row for row in rows if "ran for" not in row])
    assert tables[0] == tables[1]
    assert len(tables[0]) > 20


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copied_planner_has_statistics_as_wide_as_the_table_before(copied: Callable) -> None:
    widths = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(stats=EmbeddingStats())
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        widths.append(copied(planner)._stats[0]._width)
    assert widths[0] == widths[1]


@pytest.mark.parametrize("storage", [EmbeddingStorageEstimator, PaddedStorageEstimator])
def test_lists_of_options_are_those_of_the_constraints(storage: type) -> None:
    """A proposer that edits an option edits the user's constraint."""

    class Editing(UniformProposer):
        def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
            super().load(search_space, enumerator)
            search_space[0].input_lengths[0] = 11.0

    factors = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        topology, rules = small_topology(), small_constraints()
        estimators = [EmbeddingPerfEstimator(topology, rules), storage(topology, rules)]
        enumerator = EmbeddingEnumerator(topology, 512, rules, estimators)
        built = small(
            topology=topology, constraints=rules, enumerator=enumerator, proposer=Editing()
        )
        planner_class(**built.planner_kwargs).plan(built.module, built.sharders)
        factors.append([rule.pooling_factors for rule in rules.values()])
    assert factors[0] == factors[1] == [[11.0], [7.0], [10.5], [14.0]]


class HugePerfModel(NoopPerfModel):
    """Rates by whole numbers beyond a double."""

    def __init__(self, topology: Topology, factor: int) -> None:
        super().__init__(topology)
        self._factor = factor

    def rate(self, plan: list[ShardingOption]) -> Any:
        return self._factor * (1 + int(super().rate(plan) * 1e6))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_rating_may_be_beyond_a_double(sign: int) -> None:
    def build() -> Built:
        topology = small_topology()
        return small(topology=topology, performance_model=HugePerfModel(topology, sign * 10**400))

    assert_agree(build)


class OwnPerfModel(NoopPerfModel):
    def rate(self, plan: list[ShardingOption]) -> Any:
        return super().rate(plan)


def test_a_proposer_that_the_core_can_not_run_still_proposes() -> None:
    """Without memory, TorchRec divides by it; the greedy proposer alone would find a plan."""

    def build() -> Built:
        topology = Topology(world_size=2, compute_device="cpu", hbm_cap=0)
        return small(
            topology=topology,
            proposer=[DynamicProgrammingProposer(10), GreedyProposer()],
            performance_model=OwnPerfModel(topology),
        )

    record, _ = assert_agree(build)
    assert record["error"]["class"].endswith("ZeroDivisionError")
