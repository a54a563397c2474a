"""The layout of a plan that is followed: read quickly, and equal to the careful reading."""

import copy

import numpy as np
import pytest
import torch
from torch.distributed import _remote_device
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology

from fastplan import EmbeddingShardingPlanner, Replan
from fastplan.plans.checks import PlanFileError
from fastplan.torchrec.plan_files import describe_plan
from fastplan.torchrec.plan_json import plan_layout
from tests.torchrec.plans import SEEDS, made, one_table, spec
from tests.torchrec.shardings import column_wise, plan_of, row_wise, table_wise

SHARDERS = [EmbeddingBagCollectionSharder()]


def assert_same_layout(found, expected):
    assert (found.device, found.ranks_per_host) == (expected.device, expected.ranks_per_host)
    assert len(found.tables) == len(expected.tables)
    for own, other in zip(found.tables, expected.tables, strict=True):
        assert own[:5] == other[:5]
        assert np.array_equal(own.shards, other.shards)


@pytest.mark.parametrize("seed", SEEDS[:60])
def test_the_layout_of_a_drawn_plan_is_the_one_of_its_file(seed):
    plan, _ = made(seed)
    found = plan_layout(plan)
    assert found is not None
    assert_same_layout(found, describe_plan(plan).layout)


def test_every_way_to_split_a_table():
    plan = plan_of({"a": table_wise(10, 1), "b": column_wise(12, 0, 2), "c": row_wise(9, 0, 1, 2)})
    assert_same_layout(plan_layout(plan), describe_plan(plan).layout)


def other_rank(plan):
    plan.plan["tables"]["b"].ranks[0] = 3


def no_placement(plan):
    plan.plan["tables"]["b"].sharding_spec.shards[0].placement = None


def no_ranks(plan):
    plan.plan["tables"]["b"].ranks = None


def one_dimension(plan):
    shard = plan.plan["tables"]["b"].sharding_spec.shards[0]
    shard.shard_sizes, shard.shard_offsets = [12], [0]


def huge_offset(plan):
    plan.plan["tables"]["b"].sharding_spec.shards[0].shard_offsets = [2**60, 0]


def truth_as_a_rank(plan):
    sharding = plan.plan["tables"]["b"]
    sharding.ranks = [True, 2]
    sharding.sharding_spec.shards[0].placement = _remote_device("rank:1/cpu")


CHANGES = [other_rank, no_placement, no_ranks, one_dimension, huge_offset, truth_as_a_rank]


@pytest.mark.parametrize("change", CHANGES)
def test_other_plans_are_left_to_the_careful_reader(change):
    plan = plan_of({"a": table_wise(10, 1), "b": column_wise(12, 0, 2)})
    change(plan)
    assert plan_layout(plan) is None


def test_a_plan_that_no_file_can_have_is_refused_as_before():
    plan = one_table(sharding_spec=spec(([0, 0], [2**60, 4], "rank:0/cpu")), ranks=[0])
    used = planner(previous=plan)
    with pytest.raises(PlanFileError, match="previous plan"):
        used.plan(model(), SHARDERS)


ROWS = {f"t{i}": 20_000 * (i % 7 + 3) for i in range(40)}


def model(rows=None):
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=64, num_embeddings=n, feature_names=[f"f_{name}"]
        )
        for name, n in (rows or ROWS).items()
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def planner(**more):
    topology = Topology(world_size=4, compute_device="cuda", local_world_size=2)
    return EmbeddingShardingPlanner(topology=topology, stats=[], deterministic=True, **more)


POLICY = Replan(max_moved=0.5, slack=0.2)


def test_a_small_change_of_a_plan_needs_no_search_and_gives_the_planners_plan():
    first = planner()
    plan = first.plan(model(), SHARDERS)
    after = model({**ROWS, "new": 1000})
    found = []
    for previous in (first, copy.deepcopy(plan)):
        used = planner(previous=previous, replan=POLICY)
        found.append(used.plan(after, SHARDERS))
        assert used.last_run.replan.followed
        assert used.last_run.replan.scratch_rating is None
        assert "search" not in used.last_run.seconds
    assert str(found[0]) == str(found[1])


def test_a_plan_for_other_costs_is_compared_with_one_from_scratch():
    # All tables on the host's memory: balanced, and far from what a search finds.
    slow = {name: ParameterConstraints(compute_kernels=["fused_uvm"]) for name in ROWS}
    plan = planner(constraints=slow).plan(model(), SHARDERS)
    used = planner(previous=plan, replan=POLICY)
    used.plan(model({**ROWS, "new": 1000}), SHARDERS)
    assert used.last_run.replan.scratch_rating is not None
    assert used.last_run.rating <= 1.2 * used.last_run.replan.scratch_rating
