"""Models that nearly fill their ranks, or don't fit: placements that fail, and what is left out."""

import random
from typing import Any

import pytest
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)

from .instances import Built
from .models import Table, bag_collection
from .small import assert_agree, small, small_constraints, small_topology

PARTITIONERS: dict[str, Any] = {
    "by storage": GreedyPerfPartitioner,
    "by cost": lambda: GreedyPerfPartitioner(sort_by=SortBy.PERF, balance_modules=True),
    "balanced": MemoryBalancedPartitioner,
}
PROPOSERS: dict[str, Any] = {
    "default": lambda: None,
    "greedy": lambda: [GreedyProposer(), GreedyProposer(use_depth=False)],
    "dynamic": lambda: [UniformProposer(), DynamicProgrammingProposer(hbm_bins_per_device=10)],
}
TABLES = 6


def tight(
    seed: int, partitioner: str = "by storage", proposer: str = "default", **more: Any
) -> Built:
    """Tables whose weights are about as large as all ranks together."""
    rng = random.Random(seed)
    ranks = rng.choice((2, 4, 6))
    tables = [
        Table(
            name=f"table_{i}",
            rows=int(10 ** rng.uniform(3, 5)),
            dim=rng.choice((16, 64, 128)),
            features=(f"feature_{i}",),
        )
        for i in range(TABLES)
    ]
    weights = sum(table.rows * table.dim * 4 for table in tables)
    hbm = int(weights / ranks * rng.uniform(0.3, 2.5))
    return small(
        module=bag_collection(tables),
        topology=small_topology(ranks=ranks, hbm=hbm, ddr_cap=int(hbm * rng.uniform(0.2, 3))),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        constraints=small_constraints(TABLES, min_partition=16),
        partitioner=PARTITIONERS[partitioner](),
        proposer=PROPOSERS[proposer](),
        **more,
    )


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_are_nearly_full(seed: int, partitioner: str) -> None:
    assert_agree(tight, seed=seed, partitioner=partitioner)


@pytest.mark.parametrize("proposer", ["greedy", "dynamic"])
@pytest.mark.parametrize("seed", range(8, 16))
def test_ranks_that_are_nearly_full_with_other_proposers(seed: int, proposer: str) -> None:
    assert_agree(tight, seed=seed, proposer=proposer)


@pytest.mark.parametrize("seed", range(16, 22))
def test_a_time_out_that_does_not_pass(seed: int) -> None:
    record, planner = assert_agree(tight, seed=seed, timeout_seconds=100_000)
    if record["error"] is None:
        # Counted, not placed one by one.
        assert planner.last_run.evaluated < record["num_proposals"]


def test_some_of_the_models_fit_and_others_do_not() -> None:
    fits = [assert_agree(tight, seed=seed)[0]["error"] is None for seed in range(22, 30)]
    assert True in fits
    assert False in fits
