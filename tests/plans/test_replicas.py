"""Plans that replica groups can't use are refused by table, rank and group."""

import re

import numpy as np
import pytest

from fastplan.model.plan import Layout, Plan, TableLayout
from fastplan.model.replicas import ReplicaGroups, ReplicaGroupsError
from fastplan.plans.replicas import (
    NotSynchronized,
    RankOutsideGroup,
    ReplicaPlanError,
    ReplicasDiffer,
    ShardsMissing,
    ShardsOverlap,
    check_layout,
    check_replicas,
    noted_groups,
    planned_groups,
)
from tests.plans.samples import mapped_to_group

GROUPS = ReplicaGroups(world_size=8, groups=2, ranks_per_host=4)
ROWS = [[10 * i, 0, 10, 8, i] for i in range(4)]


def table(shards, kind="row_wise", kernel="fused", shape=(40, 8), name="t"):
    return TableLayout("m", name, kind, kernel, shape, np.array(shards, np.int64), {})


def layout(*tables):
    return Layout(tables=tables)


def test_no_groups_are_named_as_such():
    with pytest.raises(ReplicaGroupsError, match="`groups` must be 1 or more, not 0"):
        planned_groups(Plan(name="m", layout=layout()), 0)


def refused(*tables, groups=GROUPS, **more):
    with pytest.raises(ReplicaPlanError) as error:
        check_layout(layout(*tables), groups, **more)
    return error.value


def test_whole_plans_pass():
    corners = [[0, 0, 20, 4, 0], [0, 4, 10, 4, 3], [10, 4, 30, 4, 1], [20, 0, 20, 4, 1]]
    copies = [[0, 0, 0, 0, rank] for rank in range(4)]
    check_layout(
        layout(
            table(ROWS),
            table(corners, "column_wise"),  # not the blocks of a cut
            table(copies, "data_parallel", "dense", None),
            table([[0, 0, 40, 8, 3]], "table_wise", "fused_uvm_caching"),
        ),
        GROUPS,
    )


def test_a_rank_outside_of_the_group_is_named():
    error = refused(
        table([[0, 0, 40, 8, 4]], "table_wise"), table([[0, 0, 40, 8, 1]], "table_wise")
    )
    assert type(error) is RankOutsideGroup
    assert (error.table, error.rank, error.group) == ("m.t", 4, None)
    assert "a shard is on rank 4, and a replica group has ranks 0 to 3: plan for 4 ranks" in str(
        error
    )


def test_a_plan_that_is_mapped_already_is_recognised():
    error = refused(*mapped_to_group(layout(table(ROWS)), GROUPS, 1).tables)
    assert (error.table, error.rank, error.group) == ("m.t", 5, 1)
    assert "DMPCollection has mapped the plan already" in str(error)


@pytest.mark.parametrize(
    ("kind", "shards", "rank"),
    [
        ("row_wise", [[0, 0, 20, 8, 0], [20, 0, 20, 8, 1]], 2),
        ("data_parallel", [[0, 0, 0, 0, rank] for rank in (0, 1, 3)], 2),
    ],
)
def test_a_rank_without_its_shard_is_named(kind, shards, rank):
    error = refused(table(shards, kind))
    assert type(error) is ShardsMissing
    assert error.rank == rank
    assert f"{kind} needs a shard on every rank of a replica group, and rank 2 of 4" in str(error)


def test_missing_cells_are_counted():
    shards = [[0, 0, 40, 4, 0], [0, 4, 30, 4, 1]]
    error = refused(table(shards, "column_wise"))
    assert type(error) is ShardsMissing
    assert "its 2 shards hold 280 of 320 cells (40 x 8)" in str(error)


def test_the_models_own_shape_counts_if_it_is_known():
    cut = table(ROWS)
    check_layout(layout(cut), GROUPS, shapes={"m.t": (40, 8)})
    assert type(refused(cut, shapes={"m.t": (50, 8)})) is ShardsMissing
    assert "reaches beyond" in str(refused(cut, shapes={"m.t": (35, 8)}))


def test_overlapping_shards_are_named():
    shards = [[0, 0, 20, 8, 0], [20, 0, 20, 4, 1], [19, 4, 21, 4, 2]]
    error = refused(table(shards, "column_wise"))
    assert type(error) is ShardsOverlap
    assert "shards 0 (rank 0) and 2 (rank 2) overlap" in str(error)


@pytest.mark.parametrize("kernel", ["dense", "key_value", "fused_triton", "dram_virtual_table"])
def test_kernels_that_sync_leaves_out_are_refused(kernel):
    error = refused(table([[0, 0, 40, 8, 1]], "table_wise", kernel))
    assert type(error) is NotSynchronized
    assert f"does not synchronize kernel {kernel}" in str(error)
    assert "`compute_kernels`" in str(error)
    one_copy = ReplicaGroups(world_size=4, groups=1, ranks_per_host=4)
    check_layout(layout(table([[0, 0, 40, 8, 1]], "table_wise", kernel)), one_copy)


@pytest.mark.parametrize("consecutive", [False, True])
def test_plans_mapped_to_each_group_are_alike(consecutive):
    groups = ReplicaGroups(
        world_size=8, groups=2, ranks_per_host=4, use_inter_host_allreduce=consecutive
    )
    plan = layout(table(ROWS), table([[0, 0, 40, 8, 2]], "table_wise", name="u"))
    mapped = {rank: mapped_to_group(plan, groups, groups.group_of(rank)) for rank in range(8)}
    check_replicas(mapped, groups)
    moved = layout(table(ROWS), table([[0, 0, 40, 8, 1]], "table_wise", name="u"))
    other = 7  # of the second group in both layouts
    mapped[other] = mapped_to_group(moved, groups, 1)
    with pytest.raises(ReplicasDiffer, match=re.escape("position 2 and 1 of the group")) as error:
        check_replicas(mapped, groups)
    assert (error.value.table, error.value.rank, error.value.group) == ("m.u", other, 1)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (layout(), "rank 1 (replica group 1) does not have it in its plan"),
        (layout(table(ROWS), table(ROWS, name="u")), "rank 0 (replica group 0) does not have it"),
        (layout(table(ROWS, kernel="fused_uvm")), "their kernel, fused and fused_uvm"),
        (layout(table(ROWS[:2])), "their number of shards, 4 and 2"),
        (layout(table([[0, 0, 9, 8, 0], *ROWS[1:]])), "the offsets or sizes of shard 0"),
    ],
)
def test_every_difference_between_groups_is_named(other, problem):
    plans = {
        0: mapped_to_group(layout(table(ROWS)), GROUPS, 0),
        1: mapped_to_group(other, GROUPS, 1),
    }
    with pytest.raises(ReplicasDiffer, match=re.escape(problem)):
        check_replicas(plans, GROUPS)


def test_a_plan_with_ranks_of_another_group_is_refused():
    plans = {0: mapped_to_group(layout(table(ROWS)), GROUPS, 1)}
    with pytest.raises(RankOutsideGroup, match="rank 1 in the plan of replica group 0"):
        check_replicas(plans, GROUPS)


def test_notes_without_numbers_say_what_to_do():
    plan = Plan(name="p", layout=layout(table(ROWS)), notes={"replica_groups": "two"})
    with pytest.raises(ReplicaGroupsError, match="plan again, or remove both notes"):
        noted_groups(plan)
