"""Specs for replica groups: what is planned, what a sync costs, which number is fastest."""

import math

import numpy as np
import pytest

import fastplan
from fastplan import Optimize, Replicas
from fastplan.engine.layout import layout_of
from fastplan.model.job import CannotPlan, DoesNotFit
from fastplan.model.plan import COLUMNS, RANK, ROWS
from fastplan.model.replicas import ReplicaGroups, ReplicaGroupsError
from fastplan.planning.sync import Links, SyncBytes, rank_memory, sync_cost
from fastplan.report.estimates import estimates
from fastplan.spec.lower import lower
from fastplan.spec.model import (
    ModelSpec,
    ModuleSpec,
    ReservationSpec,
    TableSpec,
    TopologySpec,
    replace,
)
from fastplan.spec.read import on_cluster
from fastplan.spec.replicas import group_spec

MIXED = (
    ("rowwise_adagrad", "table_wise", "fused"),
    ("rowwise_adagrad", "column_wise", "fused"),
    ("other", "row_wise", "fused_uvm"),
    ("sgd", "table_row_wise", "fused"),
    (None, "data_parallel", "dense"),
)


def model(tables=MIXED, **more):
    return ModelSpec(
        name="m",
        tables=tuple(
            TableSpec(
                name=f"t{i}",
                rows=100_000 + 1_001 * i,
                dim=128,
                pooling=(10.0,),
                dtype="fp16" if i % 2 else "fp32",
                optimizer=optimizer,
                sharding_types=(kind,),
                compute_kernels=(kernel,),
                min_partition=32 if kind == "column_wise" else 0,
            )
            for i, (optimizer, kind, kernel) in enumerate(tables)
        ),
        **more,
    )


def free(tables=12):
    return ModelSpec(
        name="m",
        tables=tuple(
            TableSpec(name=f"t{i}", rows=1_000_000 * (i + 1), dim=64, pooling=(20.0,))
            for i in range(tables)
        ),
        batch_size=2_048,
    )


def planned(spec, replicas, world_size=32, **more):
    return fastplan.plan(
        spec, sku="h100", world_size=world_size, replicas=replicas, cache=False, **more
    )


def expected_bytes(spec, result):
    """Bytes of a sync by a second formula, shard by shard."""
    layout = layout_of(result.job.request, result.job.cluster, result.record)
    size = result.replication.groups.group_size
    weights, states, host = (np.zeros(size, np.int64) for _ in range(3))
    specs = {table.name: table for table in spec.tables}
    for table in layout.tables:
        if table.sharding_type == "data_parallel":
            continue
        known = specs[table.name]
        for shard in table.shards.tolist():
            cells = shard[ROWS] * shard[COLUMNS]
            weight = cells * (2 if known.dtype == "fp16" else 4)
            numbers = {"rowwise_adagrad": shard[ROWS], "other": cells}.get(known.optimizer, 0)
            weights[shard[RANK]] += weight
            states[shard[RANK]] += 4 * numbers
            if "uvm" in table.kernel:
                host[shard[RANK]] += weight + 4 * numbers
    return weights, states, host


@pytest.mark.parametrize("groups", [1, 2, 4, 32])
def test_bytes_of_a_sync_are_those_of_the_shards(groups):
    spec = model()
    result = planned(spec, groups)
    for found, expected in zip(
        result.replication.sync.bytes, expected_bytes(spec, result), strict=True
    ):
        assert found.tolist() == expected.tolist()


def test_states_are_left_out_of_a_sync_without_them():
    result = planned(model(), Replicas(groups=4, sync_optimizer=False))
    assert result.replication.sync.bytes.states.sum() == 0
    assert result.replication.sync.bytes.weights.sum() > 0


@pytest.mark.parametrize("consecutive", [False, True])
def test_the_plan_is_that_of_a_job_with_the_ranks_of_one_group(consecutive):
    spec = free()
    settings = Replicas(groups=4, use_inter_host_allreduce=consecutive)
    result = planned(spec, settings)
    local = 8 if consecutive else 2
    alone = fastplan.plan(
        on_cluster(spec, sku="h100", world_size=8, local_world_size=local), cache=False
    )
    assert result.record.pack() == alone.record.pack()
    assert result.key == alone.key
    assert result.replication.arguments == {
        "world_size": 32,
        "sharding_group_size": 8,
        "node_group_size": local,
        "use_inter_host_allreduce": consecutive,
    }


def groups_of(world, host, number, consecutive=False, pod_size=1):
    return ReplicaGroups(
        world_size=world,
        groups=number,
        ranks_per_host=host,
        use_inter_host_allreduce=consecutive,
        pod_size=pod_size,
    )


@pytest.mark.parametrize(
    ("groups", "ms"),
    [
        (groups_of(32, 8, 1), 0.0),
        # Replicas on one host: 2 x 3/4 x 1200 bytes at 100 per ms.
        (groups_of(32, 8, 4), 18.0),
        # On four hosts: 2 x 3/4 x 1200 at 10 per ms.
        (groups_of(32, 8, 4, True), 180.0),
        # 8 on each of 4 hosts: 2 x 7/8 x 1200 / 100 and 2 x 3/4 x 1200/8 / 10.
        (groups_of(32, 8, 32), 21.0 + 22.5),
        # The same, but hosts of a pod are as near as ranks of a host: 2 x 31/32 x 1200 / 100.
        (groups_of(32, 8, 32, pod_size=4), 23.25),
    ],
)
def test_the_time_of_a_sync_is_that_of_its_links(groups, ms):
    size = np.full(groups.group_size, 600)
    cost = sync_cost(SyncBytes(size, size, 0 * size), groups, Links(100.0, 10.0, 1.0))
    assert cost.total_ms == pytest.approx(ms)


def test_bytes_in_host_memory_are_read_and_written_there():
    groups = groups_of(32, 8, 4)
    none, all_of_it = np.zeros(8, np.int64), np.full(8, 1200)
    slow = sync_cost(SyncBytes(all_of_it, none, all_of_it), groups, Links(100.0, 10.0, 20.0))
    assert slow.total_ms == pytest.approx(120.0)
    quick = sync_cost(SyncBytes(all_of_it, none, all_of_it), groups, Links(100.0, 10.0, 1e6))
    assert quick.total_ms == pytest.approx(18.0)


def test_auto_takes_the_shortest_step_and_tells_of_all():
    for interval in (1, 1_000_000):
        found = planned(free(), Replicas(sync_interval=interval)).replication
        assert [each.groups.groups for each in found.candidates] == [1, 2, 4, 8, 16, 32]
        for each in found.candidates:
            alone = planned(free(), Replicas(groups=each.groups.groups, sync_interval=interval))
            assert alone.replication.chosen == each
            assert each.step_ms == each.rating + each.sync_ms / interval
        steps = [each.step_ms for each in found.candidates]
        assert found.chosen.step_ms == min(steps)
        if interval > 1:
            # A sync that costs nothing leaves the ratings, which shrink with the group.
            assert found.groups.groups > 1


def test_candidates_that_do_not_fit_are_told_and_not_taken():
    big = model((("rowwise_adagrad", "row_wise", "fused"),) * 4)
    big = replace(
        big,
        tables=tuple(replace(each, rows=1_000_000_000) for each in big.tables),
    )
    found = planned(big, "auto", 64).replication
    fits = {each.groups.groups: each.step_ms is not None for each in found.candidates}
    assert fits[1] and not fits[64]
    assert fits[found.groups.groups]
    assert "HBM" in next(each for each in found.candidates if each.groups.groups == 64).reason
    nothing = planned(big, "auto", 8)
    assert nothing.placement is None
    assert nothing.replication.groups.groups == 1
    assert len(nothing.replication.candidates) == 4


def test_a_reservation_without_memory_is_an_error_as_for_one_group():
    spec = free()
    spec = replace(spec, reservation=ReservationSpec(dense=1 << 50))
    for replicas in (None, 4, "auto"):
        with pytest.raises(DoesNotFit):
            planned(spec, replicas)


def test_memory_is_that_of_the_fullest_rank():
    result = planned(free(), 4)
    by_rank = estimates(result.plan().basis).rank_memory
    capacity = result.job.cluster.rank_hbm
    assert result.replication.chosen.memory["hbm"] == (by_rank["hbm"].max(), capacity[0])
    assert rank_memory(result) == result.replication.chosen.memory


@pytest.mark.parametrize("consecutive", [False, True])
def test_a_rank_has_the_memory_of_its_smallest_replica(consecutive):
    sizes = tuple((1 << 34) + 1000 * rank for rank in range(16))
    spec = free()
    topology = TopologySpec(world_size=16, local_world_size=8, rank_hbm=sizes)
    spec = replace(spec, topology=topology)
    group = group_spec(spec, groups_of(16, 8, 4, consecutive))
    expected = sizes[:4] if consecutive else sizes[::4]
    assert group.topology.rank_hbm == expected
    assert group.topology.rank_ddr is None


def test_tables_of_another_cluster_give_the_same_job():
    spec = on_cluster(model(), sku="h100", world_size=32)
    other = group_spec(spec, groups_of(32, 8, 4))
    one, two = lower(other), lower(other, like=lower(spec))
    for name in ("request", "cluster", "search", "context", "device", "settings", "name"):
        assert getattr(one, name) == getattr(two, name), name


def test_groups_on_pods_use_the_links_that_they_have():
    spec = free()
    far = planned_on_pods(spec, Replicas(groups=2))
    near = planned_on_pods(spec, Replicas(groups=2, use_inter_host_allreduce=True))
    # 36 hosts of 4 are two pods of 18. Consecutive ranks of a group are one pod.
    assert far.job.request.cost.bw_world_all_to_all < near.job.request.cost.bw_world_all_to_all
    assert far.replication.sync.near == 2
    assert (near.replication.sync.near, near.replication.sync.far) == (1, 2)


def planned_on_pods(spec, replicas):
    return fastplan.plan(spec, sku="gb200-nvl72", world_size=144, replicas=replicas, cache=False)


def test_an_optimized_plan_is_made_for_the_chosen_group():
    plain = planned(free(), Replicas(sync_interval=1000))
    better = planned(
        free(), Replicas(sync_interval=1000), optimize=Optimize(time_budget=None, move_budget=2_000)
    )
    assert better.replication.groups == plain.replication.groups
    assert better.optimized is not None
    assert better.rating <= plain.rating
    assert better.replication.chosen.rating == better.rating


def test_tables_that_sync_leaves_out_are_told():
    tables = (("adam", "table_wise", "fused"), (None, "column_wise", "dense"), MIXED[0])
    offers = {"table_wise": ("fused",), "column_wise": ("dense",)}
    spec = model(tables, modules={"ebc": ModuleSpec(compute_kernels=offers)})
    found = planned(spec, 2).replication.not_synced
    assert [*found] == ["t0", "t1"]
    assert "adam has none" in found["t0"]
    assert "kernel dense" in found["t1"]
    assert planned(spec, 1).replication.not_synced == {}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"groups": 0}, "`groups` must be"),
        ({"groups": "all"}, "\"auto\", not 'all'"),
        ({"sync_interval": 0}, "`sync_interval` must be"),
    ],
)
def test_settings_are_checked(settings, problem):
    with pytest.raises(ValueError, match=problem):
        Replicas(**settings)


def test_ranks_that_form_no_such_groups_are_an_error():
    with pytest.raises(ReplicaGroupsError, match="choose one of 1, 2, 4, 8, 16, 32"):
        planned(free(), 5)


def test_numbers_of_the_whole_cluster_are_not_those_of_a_group():
    spec = replace(free(), cost={"bw_world_all_to_all": 3.0})
    with pytest.raises(CannotPlan, match=r"`cost.bw_world_all_to_all` is a number of the whole"):
        planned(spec, 2)


def test_a_plan_file_says_what_groups_it_is_for():
    notes = planned(free(), Replicas(groups=2, sync_interval=5)).plan().notes
    assert (notes["replica_groups"], notes["world_size"], notes["sync_interval"]) == (
        "2",
        "32",
        "5",
    )
    assert "replica_groups" not in planned(free(), None).plan().notes
    assert math.isfinite(planned(free(), 2).rating)


@pytest.mark.parametrize("replicas", [4, "auto"])
def test_stored_and_followed_plans_cost_the_same_to_sync(tmp_path, replicas):
    first, second = (
        fastplan.plan(model(), sku="h100", world_size=32, replicas=replicas, cache=tmp_path)
        for _ in range(2)
    )
    assert (first.cache.status, second.cache.status) == ("miss", "hit")
    followed = planned(model(), replicas, previous=first.plan())
    assert followed.replan.followed
    for result in (second, followed):
        assert result.replication.candidates == first.replication.candidates
        for one, other in zip(
            result.replication.sync.bytes, first.replication.sync.bytes, strict=True
        ):
            assert one.tolist() == other.tolist()
