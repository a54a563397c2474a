"""What a plan leaves on objects and in texts that users read, to the type of a number."""

from typing import Any

import numpy as np
import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption
from torchrec.distributed.types import CacheParams

from .compare import assert_same, options_record, outcome, planner_record, run
from .custom import CopyingProposer, TaggingEnumerator
from .extenders import Adding
from .instances import Built
from .models import make_sharder
from .reuse import NUMPYS, left_behind
from .small import (
    MIB,
    assert_agree,
    assert_engine,
    cramped,
    small,
    small_constraints,
    small_model,
    small_topology,
)
from .subject import FastPlanner, TorchRecPlanner


class KeepingEnumerator(EmbeddingEnumerator):
    """Its own, and it keeps the options that it gives away."""

    def enumerate(self, *args: Any, **kwargs: Any) -> Any:
        self.given = super().enumerate(*args, **kwargs)
        return self.given


@pytest.mark.parametrize("kind", [KeepingEnumerator, TaggingEnumerator])
def test_options_of_a_custom_enumerator_after_a_failed_plan(kind: type) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        arguments = cramped()
        rules = small_constraints(sharding_types=["table_wise"])
        enumerator = kind(arguments["topology"], 512, rules)
        built = small(**arguments, enumerator=enumerator)
        planner = planner_class(**built.planner_kwargs)
        record = run(planner, built.module, built.sharders)
        record["given"] = options_record(getattr(enumerator, "given", None))
        records.append({**record, **left_behind(planner)})
    assert_same(*records)
    assert records[0]["error"] is not None


def cached_rules() -> dict[str, ParameterConstraints]:
    return {
        f"table_{i}": ParameterConstraints(
            sharding_types=["table_wise"],
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.2),
        )
        for i in range(4)
    }


@pytest.mark.parametrize(
    "proposers",
    [
        lambda: [EmbeddingOffloadScaleupProposer()],
        lambda: [EmbeddingOffloadScaleupProposer(), GreedyProposer()],
        lambda: [GreedyProposer(), EmbeddingOffloadScaleupProposer()],
        lambda: [UniformProposer(), EmbeddingOffloadScaleupProposer(), GreedyProposer()],
    ],
    ids=["alone", "first", "last", "between"],
)
@pytest.mark.parametrize("kernels", [["fused_uvm_caching"], ["fused", "fused_uvm_caching"]])
def test_search_space_after_the_scale_up_proposer_found_no_plan(
    proposers: Any, kernels: list[str]
) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = cached_rules()
        for rule in rules.values():
            rule.compute_kernels = kernels
        built = small(**cramped(), constraints=rules, proposer=proposers())
        planner = planner_class(**built.planner_kwargs)
        record = run(planner, built.module, built.sharders)
        records.append({**record, **left_behind(planner)})
    assert_same(*records)
    assert records[0]["error"] is not None
    assert_engine(planner, "native")


@pytest.mark.parametrize("number", [np.float64, int])
def test_numbers_of_numpy_in_the_text_of_an_error(number: type) -> None:
    def build() -> Built:
        rules = small_constraints(sharding_types=["table_row_wise"])
        for rule in rules.values():
            rule.pooling_factors = [number(factor) for factor in rule.pooling_factors]
        topology = small_topology(hbm=12 * MIB, ddr_cap=MIB)
        reservation = FixedPercentageStorageReservation(0.0)
        return small(topology=topology, storage_reservation=reservation, constraints=rules)

    record, _ = assert_agree(build)
    assert "perf_sum" in record["error"]["text"]


def test_costs_that_an_enumerator_has_estimated_again_are_pythons_floats() -> None:
    """docs/compatibility.md: the numbers are the same, and their kind is not."""
    texts = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = small_constraints(sharding_types=["table_wise"], compute_kernels=["fused"])
        for rule in rules.values():
            rule.pooling_factors = [np.float64(factor) for factor in rule.pooling_factors]
        arguments = cramped()
        arguments["enumerator"] = Adding(arguments["topology"], 512, constraints=rules)
        record, _ = outcome(planner_class, small(**arguments, constraints=rules))
        texts.append(record["error"]["text"])
    assert "np.float64(" in texts[0]
    assert NUMPYS.sub(r"\1", texts[0]) == NUMPYS.sub(r"\1", texts[1])


def test_numbers_of_numpy_in_an_error_of_the_partitioner_that_a_proposer_heard_of() -> None:
    def build() -> Built:
        rules = small_constraints(sharding_types=["table_wise"], compute_kernels=["fused"])
        for rule in rules.values():
            rule.pooling_factors = [np.float64(factor) for factor in rule.pooling_factors]
        return small(
            **cramped(),
            constraints=rules,
            proposer=CopyingProposer(),
            partitioner=MemoryBalancedPartitioner(),
        )

    record, _ = assert_agree(build)
    assert "fwd_compute=" in record["error"]["text"]


def move_beyond(options: list[ShardingOption]) -> list[ShardingOption]:
    options[0].shards[0].rank = 7
    return options


def test_a_plan_whose_statistics_cannot_be_written_has_the_error() -> None:
    record, _ = assert_agree(
        lambda: small(
            stats=EmbeddingStats(), constraints=small_constraints(), callbacks=[move_beyond]
        )
    )
    assert record["error"]["class"] == "builtins.KeyError"


@pytest.mark.parametrize("is_read", [True, False])
def test_statistics_are_as_wide_as_the_widest_before(is_read: bool) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(stats=EmbeddingStats(), constraints=small_constraints(12))
        planner = planner_class(**built.planner_kwargs)
        run(planner, small_model(12), built.sharders)
        wide = left_behind(planner)["width"] if is_read else []
        planner._constraints.clear()
        planner._topology.devices[0].storage.hbm -= 1000
        run(planner, small_model(1), built.sharders)
        records.append({"wide": wide, **left_behind(planner)})
    assert_same(*records)


def test_statistics_of_a_failed_plan_after_a_wider_one() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(stats=EmbeddingStats(), constraints=small_constraints(12))
        planner = planner_class(**built.planner_kwargs)
        run(planner, small_model(12), built.sharders)
        for device in planner._topology.devices:
            device.storage.hbm = device.storage.ddr = 100
        run(planner, small_model(1), built.sharders)
        records.append(left_behind(planner))
    assert_same(*records)


@pytest.mark.parametrize("threshold", [1, 2, 4, 9])
@pytest.mark.parametrize("is_first", [True, False])
def test_scale_up_beside_a_proposer_that_stops_early(threshold: int, is_first: bool) -> None:
    def build() -> Built:
        rules = {
            "table_0": ParameterConstraints(
                sharding_types=["table_wise", "column_wise", "table_row_wise", "row_wise"],
                compute_kernels=["fused", "fused_uvm", "fused_uvm_caching"],
                cache_params=CacheParams(load_factor=0.25),
            )
        }
        proposers = [EmbeddingOffloadScaleupProposer(), GreedyProposer(False, threshold)]
        return small(
            count=1, constraints=rules, proposer=proposers if is_first else proposers[::-1]
        )

    assert_agree(build)


def edit_a_rule(planner: Any, sharders: list[Any]) -> None:
    planner._constraints["table_0"].num_poolings = [1234567.0]


def drop_the_rules(planner: Any, sharders: list[Any]) -> None:
    planner._constraints.clear()


def change_the_topology(planner: Any, sharders: list[Any]) -> None:
    for device in planner._topology.devices:
        device.storage.hbm //= 3


def change_fused_params(planner: Any, sharders: list[Any]) -> None:
    sharders[0]._fused_params["cache_load_factor"] = 0.123456789


def plan_another_model(planner: Any, sharders: list[Any]) -> None:
    planner._stats = []
    planner.plan(small_model(2), sharders)


@pytest.mark.parametrize(
    "change",
    [edit_a_rule, drop_the_rules, change_the_topology, change_fused_params, plan_another_model],
)
def test_statistics_that_are_read_late_tell_of_the_plan(change: Any) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = {
            name: ParameterConstraints(
                num_poolings=[2.5], compute_kernels=["fused_uvm_caching"], pooling_factors=[7.0]
            )
            for name in ("table_0", "table_1")
        }
        built = small(stats=EmbeddingStats(), constraints=rules, count=2)
        planner = planner_class(**built.planner_kwargs)
        sharders = [make_sharder("bag", {"cache_load_factor": 0.5}, None)]
        planner.plan(built.module, sharders)
        statistics = planner._stats
        change(planner, sharders)
        planner._stats = statistics
        records.append(left_behind(planner)["statistics"])
    assert_same({"statistics": records[0]}, {"statistics": records[1]})


def test_options_that_are_read_late_have_the_names_of_their_plan() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = small_constraints(feature_names=["a", "b"])
        built = small(constraints=rules)
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        for rule in rules.values():
            rule.feature_names[0] = "c"
            rule.pooling_factors[0] = 99.0
        records.append(planner_record(planner))
    assert_same(*records)


@pytest.mark.parametrize("plans", [1, 2], ids=["enumerated", "remembered"])
def test_a_search_space_that_is_read_late_shares_lists_with_constraints_as_torchrecs(
    plans: int,
) -> None:
    shown = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = small_constraints()
        for rule in rules.values():
            rule.pooling_factors = [3.0]
        built = small(constraints=rules)
        planner = planner_class(**built.planner_kwargs)
        for _ in range(plans):
            run(planner, built.module, built.sharders)
        for rule in rules.values():
            rule.pooling_factors[0] = 7.0
        left = [getattr(planner, "_search_space", None)]
        left.append(planner._enumerator.last_stored_search_space)
        shown.append([[option.input_lengths for option in options or ()] for options in left])
    assert shown[0] == shown[1]
    assert [3.0] in shown[0][1]
