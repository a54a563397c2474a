"""Every shard's estimates equal TorchRec's bit for bit, on more instances than are planned."""

from collections import Counter
from contextlib import suppress

import pytest
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.proposers import UniformProposer
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import PlannerError, ShardingOption

from .compare import assert_same, options_record
from .components import (
    KEY_VALUE_KERNELS,
    OFFLOAD_KERNELS,
    QUANT_KERNELS,
    SHARDING_TYPES,
)
from .instances import FAMILIES, Built, Instance, make_instance
from .subject import FastPlanner, TorchRecPlanner

# Seeds apart from those of test_plans, which compares its search spaces as well.
ROUNDS = range(1000, 1014)


def instances(family: str) -> list[Instance]:
    position = list(FAMILIES).index(family)
    return [make_instance(len(FAMILIES) * number + position) for number in ROUNDS]


def make_planner(planner_class: type, built: Built) -> object:
    """A planner that reaches the search space on any topology and proposes little."""
    kwargs = {
        **built.planner_kwargs,
        "storage_reservation": FixedPercentageStorageReservation(0.0),
        "proposer": UniformProposer(),
        "partitioner": None,
        "stats": [],
    }
    return planner_class(**kwargs)


def enumerated(built: Built, estimate: bool = True) -> list[ShardingOption] | None:
    """TorchRec's search space, or None where its enumerator refuses the instance."""
    enumerator = make_planner(TorchRecPlanner, built)._enumerator
    if not estimate:
        enumerator._estimators = []
    try:
        return enumerator.enumerate(built.module, built.sharders)
    except (RuntimeError, ValueError):
        return None


def planned(built: Built) -> list[ShardingOption] | None:
    """The search space that a run of fastplan's planner leaves behind."""
    planner = make_planner(FastPlanner, built)
    # A plan that does not fit leaves a search space too; test_plans compares the errors.
    with suppress(PlannerError, RuntimeError, ValueError):
        planner.plan(built.module, built.sharders)
    return planner._enumerator.last_stored_search_space


@pytest.mark.parametrize("family", FAMILIES)
def test_perf_and_storage_of_every_shard_equal_torchrec(family: str) -> None:
    for instance in instances(family):
        expected = options_record(enumerated(instance.build()))
        actual = options_record(planned(instance.build()))
        assert_same({str(instance): expected}, {str(instance): actual})


def test_the_search_spaces_hold_every_type_every_kernel_and_twenty_thousand_shards() -> None:
    types: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for family in FAMILIES:
        for instance in instances(family):
            for option in enumerated(instance.build(), estimate=False) or []:
                types[option.sharding_type] += option.num_shards
                kernels[option.compute_kernel] += option.num_shards
    assert set(types) == set(SHARDING_TYPES)
    known = {kernel.value for kernel in EmbeddingComputeKernel}
    wanted = {"dense", *OFFLOAD_KERNELS, *KEY_VALUE_KERNELS, *QUANT_KERNELS}
    assert set(kernels) == wanted & known
    assert sum(types.values()) >= 20_000
