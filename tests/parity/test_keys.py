"""One key, one plan: whatever decides TorchRec's plan is in the key, and any setting has a key."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GridSearchProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import ShardEstimator, Storage
from torchrec.distributed.types import CacheParams

from fastplan import Cache
from fastplan.cache.stores import MemoryStore
from fastplan.spec.lower import lower
from fastplan.torchrec.export import export_spec

from .compare import assert_same, outcome, plan_record, quiet, run
from .instances import Built
from .small import MIB, assert_agree, small, small_constraints, small_topology
from .subject import (
    ESTIMATES_NATIVELY,
    SELF_CHECK,
    TORCHREC_VERSION,
    FastPlanner,
    TorchRecPlanner,
)

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec has no such cache")
needs_cache = pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")


def assert_told_apart(builds: list[Any]) -> None:
    """Planners with one cache make TorchRec's plans, and none of them is a hit."""
    cache = Cache(MemoryStore())
    for build in builds:
        expected, _ = outcome(TorchRecPlanner, build())
        built = build()
        planner = FastPlanner(**built.planner_kwargs, cache=cache)
        with quiet():
            plan = planner.plan(built.module, built.sharders)
        assert_same(expected["plan"], plan_record(plan))
        assert planner.last_run.cache.status != "hit"


@pytest.mark.parametrize("change", ["cacheability", "histogram"])
def test_statistics_that_the_scale_up_proposer_reads(change: str) -> None:
    def build(first: bool) -> Built:
        rules = small_constraints(sharding_types=["table_wise"])
        for i, rule in enumerate(rules.values()):
            high = (i == 0) == first
            cacheability = 0.9 if high or change != "cacheability" else 0.1
            histogram = [9.0, 1.0] * 4 if high or change != "histogram" else [1.0, 9.0] * 4
            stats = EmbeddingOffloadStats(cacheability, 1000, torch.tensor(histogram), 200_000)
            rule.compute_kernels = ["fused_uvm_caching"]
            rule.cache_params = CacheParams(load_factor=0.1, stats=stats)
        return small(
            constraints=rules,
            topology=small_topology(hbm=16 * MIB, ddr_cap=8 << 30),
            proposer=[EmbeddingOffloadScaleupProposer()],
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )

    assert_told_apart([lambda: build(True), lambda: build(False)])


class Adding(ShardEstimator):
    """Adds memory to what estimators before it have estimated, if any."""

    def __init__(self, topology: Any = None, constraints: Any = None) -> None:
        pass

    def fingerprint(self) -> str:
        return "adding"

    def estimate(self, sharding_options: Any, *args: Any, **kwargs: Any) -> None:
        for option in sharding_options:
            for shard in option.shards:
                shard.storage = (shard.storage or Storage(0, 0)) + Storage(hbm=1, ddr=0)


@pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")
def test_estimators_before_a_custom_one() -> None:
    def build(*kinds: type) -> Built:
        topology = small_topology(hbm=8 * MIB, ddr_cap=1 << 30)
        estimators = [*(kind(topology) for kind in kinds), Adding()]
        return small(
            count=3,
            topology=topology,
            enumerator=EmbeddingEnumerator(topology, 512, estimator=estimators),
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )

    both = (EmbeddingPerfEstimator, EmbeddingStorageEstimator)
    assert_told_apart([lambda: build(*both), lambda: build(EmbeddingPerfEstimator)])


class Odd(FixedPercentageStorageReservation):
    """Reserves as TorchRec's, and keeps something else in its attributes."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(0.1)
        self._attributes = attributes

    def reserve(self, *args: Any, **kwargs: Any) -> Any:
        reserved = super().reserve(*args, **kwargs)
        vars(self).update(self._attributes)
        return reserved


@pytest.mark.parametrize(
    "attributes",
    [
        {"_percentage": float("nan")},
        {"_percentage": np.float32(0.1)},
        {"_margin_bytes": float("inf")},
        {"_dense_storage": SimpleNamespace(hbm=5, ddr=0, ssd=0)},
    ],
    ids=str,
)
def test_odd_attributes_of_a_reservation_have_a_key(attributes: dict[str, Any]) -> None:
    def build() -> Built:
        return small(count=2, storage_reservation=Odd(**attributes))

    expected, _ = outcome(TorchRecPlanner, build())
    cache = Cache(MemoryStore())
    for status in ("miss", "hit"):
        built = build()
        planner = FastPlanner(**built.planner_kwargs, cache=cache)
        found = run(planner, built.module, built.sharders)
        assert_same(expected["plan"], found["plan"])
        assert planner.last_run.cache.status == (status if ESTIMATES_NATIVELY else "off")


@pytest.mark.parametrize("number", [1 << 63, 1 << 80, -(1 << 70)])
def test_settings_beyond_64_bits(number: int) -> None:
    assert_agree(lambda: small(count=2, proposer=GridSearchProposer(max_proposals=number)))


def test_devices_that_share_their_memory() -> None:
    """TorchRec's copy shares it, too, so the reservation takes its part once for each device."""

    def build() -> Built:
        topology = small_topology(hbm=40 * MIB, ddr_cap=0)
        for device in topology.devices:
            device.storage = topology.devices[0].storage
        return small(topology=topology, storage_reservation=FixedPercentageStorageReservation(0.2))

    record, _ = assert_agree(build)
    assert record["reserved"] is not None


class Listing(EmbeddingBagCollectionSharder):
    """Lists types and kernels in its own order."""

    def __init__(self, types: list[str], kernels: list[str]) -> None:
        super().__init__()
        self.listed = types, kernels

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return self.listed[0]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return self.listed[1]


def listing(types: list[str], kernels: list[str]) -> Built:
    return replace(small(), sharders=[Listing(types, kernels)])


@pytest.mark.parametrize(
    ("types", "kernels"),
    [
        (["table_wise", "column_wise"], ["fused"]),
        (["table_wise"], ["quant", "quant_uvm", "quant_uvm_caching"]),
    ],
    ids=["types", "kernels"],
)
def test_a_sharders_order(types: list[str], kernels: list[str]) -> None:
    """The first of two plans with one rating wins, so the order of the options decides."""
    orders = [(types, kernels), (types[::-1], kernels[::-1])]
    assert_told_apart([lambda order=order: listing(*order) for order in orders])


@needs_cache
@pytest.mark.parametrize("deterministic", [False, True])
def test_each_order_hits_its_own_plan(deterministic: bool) -> None:
    cache = Cache(MemoryStore())
    usual = ["table_wise", "column_wise"]
    plans = []
    for types, status in zip([usual, usual[::-1]] * 2, ["miss", "miss", "hit", "hit"], strict=True):
        built = listing(types, ["fused"])
        planner = FastPlanner(**built.planner_kwargs, cache=cache, deterministic=deterministic)
        with quiet():
            plans.append(plan_record(planner.plan(built.module, built.sharders)))
        assert planner.last_run.cache.status == status
    assert plans[:2] == plans[2:]
    assert plans[0] != plans[1]


@pytest.mark.skipif(TORCHREC_VERSION < (1, 8), reason="no spec has its rules")
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_spec_has_the_key_of_its_sharders_order(deterministic: bool) -> None:
    digests = []
    for types in (["table_wise", "column_wise"], ["column_wise", "table_wise"]):
        built = listing(types, ["fused_uvm_caching", "fused"])
        planner = FastPlanner(**built.planner_kwargs, deterministic=deterministic)
        spec = export_spec(planner, built.module, built.sharders)  # compares the keys
        digests.append(lower(spec).context["option_order"])
    assert digests[0] != digests[1]


class Derived(EmbeddingBagCollectionSharder):
    """Lists what TorchRec's sharder lists."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return super().sharding_types(compute_device_type)


@needs_cache
def test_the_usual_order_is_not_in_the_key() -> None:
    cache = Cache(MemoryStore())
    for sharder, status in ((EmbeddingBagCollectionSharder(), "miss"), (Derived(), "hit")):
        built = small()
        planner = FastPlanner(**built.planner_kwargs, cache=cache)
        with quiet():
            planner.plan(built.module, [sharder])
        assert planner.last_run.cache.status == status


@needs_cache
def test_a_hit_leaves_a_proposer_that_proposes_once_as_a_search_does() -> None:
    """Dynamic programming alone finds no second plan."""
    cache = Cache(MemoryStore())

    def two_plans(planner_class: type, **settings: Any) -> list[Any]:
        built = small(proposer=[DynamicProgrammingProposer()])
        planner = planner_class(**built.planner_kwargs, **settings)
        with quiet():
            return [run(planner, built.module, built.sharders) for _ in range(2)]

    (plan, failure) = two_plans(TorchRecPlanner)
    assert plan["plan"] and failure["error"]
    two_plans(FastPlanner, cache=cache)
    found = two_plans(FastPlanner, cache=cache)
    assert_same(plan["plan"], found[0]["plan"])
    assert_same(failure["error"]["class"], found[1]["error"]["class"])
