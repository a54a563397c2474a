"""Arguments and parts as nobody should write them: TorchRec's result, or its error and text."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    GridSearchProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import CacheParams

from .compare import assert_same, run
from .instances import Built
from .small import (
    MIB,
    assert_agree,
    assert_engine,
    small,
    small_constraints,
    small_model,
    small_topology,
)
from .subject import SELF_CHECK, FastPlanner, TorchRecPlanner

PARTS: dict[str, Callable[[Any], Any]] = {
    "threshold": lambda value: {"proposer": GreedyProposer(threshold=value)},
    "proposals": lambda value: {
        "proposer": GridSearchProposer(max_proposals=value),
        "constraints": small_constraints(
            2, sharding_types=["table_wise", "row_wise"], compute_kernels=["fused"]
        ),
    },
    "bins": lambda value: {"proposer": DynamicProgrammingProposer(hbm_bins_per_device=value)},
    "searches": lambda value: {"partitioner": MemoryBalancedPartitioner(max_search_count=value)},
    "tolerance": lambda value: {"partitioner": MemoryBalancedPartitioner(tolerance=value)},
    "bandwidth": lambda value: {"topology": small_topology(hbm_mem_bw=value)},
    "multiplier": lambda value: {"topology": small_topology(bwd_compute_multiplier=value)},
}


@pytest.mark.parametrize("value", [math.inf, math.nan, -0.5, 2.5, True, np.int64(3)], ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_settings_of_any_type_mean_what_they_mean_to_torchrec(part: str, value: Any) -> None:
    assert_agree(lambda: small(count=2, **PARTS[part](value)))


@pytest.mark.parametrize("part", ["threshold", "proposals", "searches", "tolerance"])
def test_a_text_as_a_setting_is_refused_as_by_torchrec(part: str) -> None:
    assert_agree(lambda: small(count=2, **PARTS[part]("3")))


@pytest.mark.parametrize("part", ["bandwidth", "multiplier"])
def test_numbers_of_single_precision_are_left_to_torchrec(part: str) -> None:
    """Doubles times numpy's float32 are float32."""
    plans = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(**PARTS[part](np.float32(1.7)))
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        perf = [s.perf.total.hex() for o in planner._best_plan for s in map(_double, o.shards)]
        plans.append(perf)
    assert plans[0] == plans[1]


def _double(shard: Any) -> Any:
    for name, value in vars(shard.perf).items():
        setattr(shard.perf, name, float(value))
    return shard


class Turning(EmbeddingBagCollectionSharder):
    """Gives another answer each time."""

    def __init__(self, turning: str) -> None:
        super().__init__()
        self.asked = dict.fromkeys(("types", "kernels", "parameters"), 0)
        self._turning = turning

    def _turn(self, what: str, answer: list[Any]) -> list[Any]:
        self.asked[what] += 1
        return answer[: 1 + self.asked[what] % 3] if what == self._turning else answer

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return self._turn("types", ["table_wise", "row_wise", "column_wise"])

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return self._turn("kernels", ["fused", "fused_uvm_caching", "fused_uvm"])

    def shardable_parameters(self, module: nn.Module) -> dict[str, nn.Parameter]:
        found = super().shardable_parameters(module)
        return dict(self._turn("parameters", list(found.items())))


@pytest.mark.parametrize("turning", ["types", "kernels", "parameters"])
def test_sharders_are_asked_as_often_as_by_torchrec(turning: str) -> None:
    asked = []

    def build() -> Built:
        built = small(constraints=small_constraints(2))
        built.sharders[:] = [Turning(turning)]
        asked.append(built.sharders[0].asked)
        return built

    assert_agree(build)
    assert asked[0] == asked[1]


class FalsySharder(EmbeddingBagCollectionSharder):
    def __bool__(self) -> bool:
        return False


class FalsyRule(ParameterConstraints):
    def __bool__(self) -> bool:
        return False


class ComputedRule(ParameterConstraints):
    @property
    def pooling_factors(self) -> list[float]:
        self.reads = getattr(self, "reads", 0) + 1
        return [float(self.reads)]

    @pooling_factors.setter
    def pooling_factors(self, value: Any) -> None:
        pass


class InterceptedRule(ParameterConstraints):
    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return [3 * value[0]] if name == "pooling_factors" else value


def rules(kind: type, **fields: Any) -> dict[str, Any]:
    return {f"table_{i}": kind(**fields) for i in range(4)}


def read_once() -> dict[str, Any]:
    kinds = (kind for kind in ["table_wise", "row_wise"])
    return {"table_0": ParameterConstraints(sharding_types=kinds)}  # type: ignore[arg-type]


RULES: dict[str, Callable[[], dict[str, Any]]] = {
    "falsy": lambda: rules(
        FalsyRule,
        min_partition=32,
        cache_params=CacheParams(load_factor=0.3),
        is_weighted=True,
        num_poolings=[2.0],
        batch_sizes=[9],
    ),
    "computed": lambda: rules(ComputedRule),
    "intercepted": lambda: rules(InterceptedRule, pooling_factors=[2.0]),
    "read-once": read_once,
}


@pytest.mark.parametrize("name", RULES)
def test_constraints_are_read_as_by_torchrec(name: str) -> None:
    assert_agree(lambda: small(constraints=RULES[name]()))


def test_factors_that_are_no_list_stay_what_they_are() -> None:
    kinds = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(constraints=rules(ParameterConstraints, pooling_factors=(2.5,)))
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        stored = planner._enumerator.last_stored_search_space
        kinds.append([type(o.input_lengths) for o in (*planner._best_plan, *stored)])
    assert kinds[0] == kinds[1]


def test_a_sharder_that_counts_as_nothing_is_left_out_of_the_reservation() -> None:
    def build() -> Built:
        built = small()
        built.sharders[:] = [FalsySharder()]
        return built

    assert_agree(build)


@pytest.mark.parametrize("kept", [slice(0, 1), slice(1, 2)], ids=["perf", "storage"])
def test_an_estimator_that_is_missing_is_missed(kept: slice) -> None:
    errors = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small()
        planner = planner_class(**built.planner_kwargs)
        planner._enumerator._estimators = planner._enumerator._estimators[kept]
        with pytest.raises(Exception) as raised:
            planner.plan(built.module, built.sharders)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]


class Emptying(FixedPercentageStorageReservation):
    """Removes sharders while it reserves."""

    def reserve(self, topology: Topology, *args: Any, **kwargs: Any) -> Topology:
        kwargs["sharders"].clear()
        return super().reserve(topology, *args, **kwargs)


def test_a_reservation_gets_the_users_list_of_sharders() -> None:
    record, _ = assert_agree(lambda: small(storage_reservation=Emptying(0.1)))
    assert record["plan"] == {"modules": []}


def test_sharders_that_can_be_read_only_once_are_read_once() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small()
        planner = planner_class(**built.planner_kwargs)
        sharders: Any = (sharder for sharder in built.sharders)
        records.append(run(planner, built.module, sharders))
    assert_same(*records)


class NeverEqual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model(2)

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = nn.Module.__hash__


def test_a_module_that_is_not_equal_to_itself_is_enumerated_again() -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        constraints = small_constraints(2)
        built = small(NeverEqual(), constraints=constraints)
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        constraints["table_0"].pooling_factors = [77.0]
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_planner_can_be_copied_after_a_scale_up(copied: Callable) -> None:
    built = small(
        topology=small_topology(hbm=64 * MIB),
        proposer=[EmbeddingOffloadScaleupProposer(), GreedyProposer()],
        constraints=small_constraints(
            compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=0.1)
        ),
    )
    planner = FastPlanner(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    if not SELF_CHECK:
        assert_engine(planner, "native")
    assert planner._proposers[0].enumerator is planner._enumerator
    twin = copied(planner)
    assert twin._proposers[0].enumerator is twin._enumerator
