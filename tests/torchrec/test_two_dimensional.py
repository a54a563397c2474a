"""2D parallelism against TorchRec's own DMPCollection, on real gloo processes."""

from typing import Any

import numpy as np
import pytest

from fastplan.model.plan import Layout, TableLayout
from fastplan.model.replicas import ReplicaGroups
from fastplan.torchrec.differences.search_space import IS_SHOWN
from tests.plans.samples import mapped_to_group
from tests.torchrec.processes import run_ranks

WORLD = 4
PLANNERS = ("ours", "torchrecs")
# Ranks per host, and whether consecutive ranks form a group. With alternating ranks on hosts of
# two, a group has one rank on each host. Four ranks share two cores for long: two layouts are
# enough beside one TorchRec.
LAYOUTS = ((4, False), (4, True), (2, False))[: 2 if IS_SHOWN else 3]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: f"{layout[0]}-{layout[1]}")
def job(request: Any, tmp_path_factory: Any) -> tuple[ReplicaGroups, list[dict[str, Any]]]:
    """The replica groups by fastplan's arithmetic, and what each rank of DMPCollection saw."""
    host, consecutive = request.param
    folder = tmp_path_factory.mktemp("ranks")
    ranks = run_ranks(
        "tests.torchrec.two_dimensional_worker",
        [(rank, WORLD, folder, host, int(consecutive)) for rank in range(WORLD)],
        LOCAL_WORLD_SIZE=str(host),
    )
    groups = ReplicaGroups(
        world_size=WORLD, groups=2, ranks_per_host=host, use_inter_host_allreduce=consecutive
    )
    return groups, ranks


def test_groups_and_replicas_are_those_of_dmp_collection(job):
    groups, ranks = job
    for rank, seen in enumerate(ranks):
        for planner in PLANNERS:
            assert seen[planner]["group"] == [*groups.ranks_of(groups.group_of(rank))]
            assert seen[planner]["replicas"] == [*groups.replicas_at(groups.position_of(rank))]


def test_torchrecs_planner_makes_the_same_plan_for_the_topology_of_a_group(job):
    _, ranks = job
    assert all(seen["same plan"] for seen in ranks)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_plan_is_mapped_as_dmp_collection_maps_it(job, planner):
    groups, ranks = job
    for rank, seen in enumerate(ranks):
        tables = [
            TableLayout("tables", name, "", "", None, np.array(shards), {})
            for name, shards in seen[planner]["planned"].items()
        ]
        mapped = mapped_to_group(Layout(tables=tuple(tables)), groups, groups.group_of(rank))
        assert {t.name: t.shards.tolist() for t in mapped.tables} == seen[planner]["shards"]


@pytest.mark.parametrize("planner", PLANNERS)
def test_sync_moves_the_bytes_that_were_estimated(job, planner):
    groups, ranks = job
    for rank, seen in enumerate(ranks):
        position = groups.position_of(rank)
        planned = [values[position] for values in seen[planner]["planned bytes"]]
        assert planned == seen[planner]["bytes"]
        assert min(planned) > 0


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_sync_averages_replicas_and_nothing_else(job, planner):
    groups, ranks = job
    for position in range(groups.group_size):
        replicas = [ranks[rank][planner] for rank in groups.replicas_at(position)]
        for part in (0, 1):  # weights and optimizer states
            before = [[np.array(each) for each in seen["before"][part]] for seen in replicas]
            after = [[np.array(each) for each in seen["after"][part]] for seen in replicas]
            assert any((one != other).any() for one, other in zip(*before, strict=True))
            for one, other, *means in zip(*before, *after, strict=True):
                for mean in means:
                    np.testing.assert_allclose(mean, (one + other) / 2, rtol=1e-5, atol=1e-7)


def test_a_plan_that_was_mapped_is_refused_when_it_is_used_again(job):
    groups, ranks = job
    for rank, seen in enumerate(ranks):
        told, group = seen["ours"]["used twice"], groups.group_of(rank)
        if [*groups.ranks_of(group)] == [*range(groups.group_size)]:
            assert told is None  # these ranks are those of the plan
            continue
        assert told.startswith("RankOutsideGroup: table tables.t")
        assert f"replica group {group}, so DMPCollection has mapped the plan already" in told


def test_replicas_whose_plans_differ_are_named(job):
    _, ranks = job
    for seen in ranks:
        assert seen["ours"]["differing"] == (
            "ReplicasDiffer: table tables.t0: the plans of rank 0 (replica group 0) and rank 3 "
            "(replica group 1) differ in their sharding type, table_wise and column_wise: plan on "
            "one rank for all of them, with `collective_plan` over all ranks of the job"
        )


def test_dmp_collection_still_refuses_cpus(job):
    _, ranks = job
    for seen in ranks:
        assert "only supports CUDA or MTIA" in seen["ours"]["stopped"]
