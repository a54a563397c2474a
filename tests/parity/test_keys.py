"""One key, one plan: whatever decides TorchRec's plan is in the key, and any setting has a key."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import (
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

from .compare import assert_same, outcome, plan_record, quiet, run
from .instances import Built
from .small import MIB, assert_agree, small, small_constraints, small_topology
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner, TorchRecPlanner

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec has no such cache")


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
