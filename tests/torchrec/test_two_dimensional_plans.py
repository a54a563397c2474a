"""Plans for DMPCollection from TorchRec's objects, without processes."""

import copy

import pytest
import torch
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from torchrec.optim import RowWiseAdagrad

import fastplan
from fastplan import (
    EmbeddingShardingPlanner,
    ReplicaGroupsError,
    ReplicaPlanError,
    Replicas,
    check_2d_plan,
    group_topology,
    plan_2d,
    replica_groups_of,
)
from fastplan.spec.hardware import find_hardware, topology_arguments
from tests.parity.compare import quiet
from tests.torchrec.small_job import SHARDERS, model

ROWS = (400_000, 60_000, 8_000_000, 2_000_000)


def job(optimizer=RowWiseAdagrad):
    return model(ROWS, device="meta", optimizer=optimizer)


def topology(world=32, local=8, **more):
    sizes = {"hbm_cap": 1 << 34, "ddr_cap": 1 << 36, **more}
    return Topology(world_size=world, local_world_size=local, compute_device="cuda", **sizes)


def planned(replicas, where=None, module=None, **more):
    with quiet():
        return plan_2d(
            job() if module is None else module,
            SHARDERS,
            topology() if where is None else where,
            replicas=replicas,
            stats=[],
            **more,
        )


@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("groups", [2, 8, 32])
def test_the_plan_is_torchrecs_for_the_ranks_of_one_group(groups, consecutive):
    found = planned(Replicas(groups=groups, use_inter_host_allreduce=consecutive))
    size = 32 // groups
    local = min(size, 8) if consecutive else max(1, 8 // groups)
    with quiet():
        alone = TorchRecPlanner(topology=topology(size, local), stats=[]).plan(job(), SHARDERS)
    assert found.plan == alone
    assert found.arguments == {
        "world_size": 32,
        "sharding_group_size": size,
        "node_group_size": local,
        "use_inter_host_allreduce": consecutive,
    }
    assert found.planner.last_run.engine == "native"


def test_a_spec_of_the_model_gives_the_same_groups_and_costs():
    hardware = find_hardware("h100")
    where = Topology(**topology_arguments(hardware, 32))
    with quiet():
        spec = fastplan.export_spec(EmbeddingShardingPlanner(topology=where), job(), SHARDERS)
    found = planned("auto", where).replication
    same = fastplan.plan(spec, replicas="auto", cache=False).replication
    assert found.groups == same.groups
    for one, other in zip(found.candidates, same.candidates, strict=True):
        assert (one.rating, one.sync_ms, one.step_ms) == (
            other.rating,
            other.sync_ms,
            other.step_ms,
        )
    for one, other in zip(found.sync.bytes, same.sync.bytes, strict=True):
        assert one.tolist() == other.tolist()


def test_groups_that_do_not_fit_are_left_out():
    small = topology(hbm_cap=40 << 20, ddr_cap=1 << 20)
    constraints = {
        f"t{i}": ParameterConstraints(compute_kernels=["fused"], sharding_types=["row_wise"])
        for i in range(4)
    }
    found = planned("auto", small, constraints=constraints, **reservation()).replication
    fits = {each.groups.groups: not each.reason for each in found.candidates}
    assert fits[1] and not fits[32] and fits[found.groups.groups]
    with pytest.raises(PlannerError):
        planned(32, small, constraints=constraints, **reservation())


def reservation():
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

    return {"storage_reservation": FixedPercentageStorageReservation(percentage=0.0)}


def test_a_rank_has_the_memory_of_its_smallest_replica():
    sizes = [(1 << 33) + rank for rank in range(8)]
    data = CustomTopologyData(data={"hbm_cap": sizes}, world_size=8)
    whole = topology(8, 4, custom_topology_data=data)
    before = copy.deepcopy([device.storage for device in whole.devices])
    group = group_topology(whole, replica_groups_of(whole, 2))
    assert [device.storage.hbm for device in group.devices] == sizes[::2]
    assert [device.rank for device in group.devices] == [0, 1, 2, 3]
    assert group._custom_topology_data.get_data("hbm_cap") == sizes[::2]
    assert (group.world_size, group.local_world_size, group.intra_group_size) == (4, 2, 2)
    assert [device.storage for device in whole.devices] == before
    assert whole.world_size == 8


def test_pods_of_a_group_are_those_of_the_job():
    whole = topology(64, 8, pod_size=4)
    groups = replica_groups_of(whole, 4, use_inter_host_allreduce=True)
    assert group_topology(whole, groups).intra_group_size == 16
    assert group_topology(whole, replica_groups_of(whole, 4)).intra_group_size == 8


def test_optimizers_without_the_state_that_dmp_collection_reads_are_refused():
    with pytest.raises(ReplicaPlanError, match=r"table tables\.t\d: .*`sum`, and Adam has none"):
        planned(2, module=job(torch.optim.Adam))
    assert planned(1, module=job(torch.optim.Adam)).replication.groups.groups == 1
    for optimizer in (torch.optim.SGD, torch.optim.Adagrad, RowWiseAdagrad):
        states = planned(2, module=job(optimizer)).replication.sync.bytes.states
        assert bool(states.sum()) is (optimizer is not torch.optim.SGD)


def test_a_plan_of_a_smaller_model_is_refused_by_table():
    found = planned(2)
    taller = model([rows + 1_000 for rows in ROWS], device="meta")
    check_2d_plan(found.plan, found.replication.groups, module=job(), sharders=SHARDERS)
    with pytest.raises(ReplicaPlanError, match=r"table tables\.t\d: its \d+ shards? hold"):
        check_2d_plan(found.plan, found.replication.groups, module=taller, sharders=SHARDERS)


def test_ranks_that_differ_from_placements_are_refused():
    found = planned(2)
    name, sharding = next(
        (name, each)
        for name, each in found.plan.plan["tables"].items()
        if each.sharding_spec is not None
    )
    sharding.ranks = [rank + 1 for rank in sharding.ranks]
    with pytest.raises(ReplicaPlanError, match=f"table tables.{name}: `ranks` is"):
        check_2d_plan(found.plan, found.replication.groups)


def test_ranks_that_form_no_such_groups_are_an_error():
    with pytest.raises(ReplicaGroupsError, match="choose one of"):
        planned(5)
