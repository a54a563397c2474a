"""A plan's objects are TorchRec's own, equal to its plan, and nothing in them is shared."""

import copy
import gc
import pickle

import pytest
import torch
from torch.distributed import _remote_device
from torchrec.distributed.types import EnumerableShardingSpec, ShardMetadata

from fastplan.engine import _native
from fastplan.torchrec.write.plan import Shards
from tests.parity.compare import quiet
from tests.parity.small import small, small_constraints
from tests.parity.subject import FastPlanner
from tests.torchrec import start_worker

RANKS = 8


@pytest.fixture
def plan():
    return start_worker.plans(RANKS, RANKS // 2)["fastplan"]


def specs(plan):
    tables = [table for module in plan.plan.values() for table in module.values()]
    return [table.sharding_spec for table in tables if table.sharding_spec is not None]


def shards(plan):
    return [shard for spec in specs(plan) for shard in spec.shards]


def mutable_parts(plan):
    for shard in shards(plan):
        yield from (shard, shard.shard_offsets, shard.shard_sizes, shard.placement)


def test_it_equals_torchrecs_plan_both_ways_round(plan):
    theirs = start_worker.plans(RANKS, RANKS // 2)["torchrec"]
    assert plan == theirs
    assert theirs == plan


def test_its_objects_are_torchs_own(plan):
    assert {type(spec) for spec in specs(plan)} == {EnumerableShardingSpec}
    assert {type(shard) for shard in shards(plan)} == {ShardMetadata}
    assert {type(shard.placement) for shard in shards(plan)} == {_remote_device}
    assert {type(shard.shard_sizes) for shard in shards(plan)} == {list}


def test_no_shard_shares_a_part_with_another(plan):
    parts = list(mutable_parts(plan))
    assert len({id(part) for part in parts}) == len(parts)


def test_a_copy_shares_nothing_with_the_plan(plan):
    copied = copy.deepcopy(plan)
    assert copied == plan
    both = [*mutable_parts(plan), *mutable_parts(copied)]
    assert len({id(part) for part in both}) == len(both)


def test_a_shard_that_is_changed_in_a_copy_is_the_only_one_that_changes(plan):
    before, copied = str(plan), copy.deepcopy(plan)
    first, *others = shards(copied)
    untouched = [str(shard) for shard in others]
    first.placement._device = torch.device("meta")
    first.shard_sizes[0] += 1
    first.shard_offsets[0] += 1
    assert str(plan) == before
    assert [str(shard) for shard in others] == untouched


def test_what_is_one_object_in_the_plan_is_one_in_a_copy(plan):
    found = specs(plan)[0].shards
    found.append(found[0])
    copied = copy.deepcopy(found)
    assert copied[-1] is copied[0]
    assert copied[0] is not found[0]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_copy_leaves_the_collector_as_it_was(plan, enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        copy.deepcopy(specs(plan)[0].shards)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_its_pickle_holds_nothing_of_fastplan(plan):
    data = pickle.dumps(plan)
    assert b"fastplan" not in data
    assert {type(spec.shards) for spec in specs(pickle.loads(data))} == {list}
    assert {type(spec.shards) for spec in specs(plan)} == {Shards}
    assert pickle.loads(data) == plan


def test_two_plans_share_nothing():
    made = start_worker.plans(RANKS, RANKS // 2)
    both = [*mutable_parts(made["fastplan"]), *mutable_parts(made["patched"])]
    assert len({id(part) for part in both}) == len(both)


def test_shards_that_no_plan_shows_are_not_made(monkeypatch):
    """A data-parallel table has a shard for each rank, and no spec."""
    made = []
    own = _native.shard_lists

    def shard_lists(shards, begin, **kinds):
        made.append(len(shards))
        return own(shards, begin, **kinds)

    monkeypatch.setattr(_native, "shard_lists", shard_lists)
    rules = small_constraints(sharding_types=["data_parallel"], compute_kernels=["dense"])
    built = small(constraints=rules)
    planner = FastPlanner(**built.planner_kwargs)
    with quiet():
        tables = planner.plan(built.module, built.sharders).plan[""]
    assert made == [0]
    assert [sharding.sharding_spec for sharding in tables.values()] == 4 * [None]
