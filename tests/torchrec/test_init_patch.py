"""The patched start: what is replaced, what is skipped, and that each function gives the same."""

import copy
import functools
import gc
import random
import sys
from dataclasses import replace
from itertools import chain
from operator import itemgetter

import pytest
import torch.distributed as dist
from torch.distributed import _remote_device
from torch.distributed._shard import sharded_tensor, sharding_spec
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec.distributed import embedding_sharding, model_parallel
from torchrec.distributed.embedding_types import (
    EmbeddingComputeKernel,
    ShardedEmbeddingTable,
)
from torchrec.distributed.sharding import rw_sharding, tw_sharding
from torchrec.distributed.types import ShardMetadata

import fastplan
from fastplan.torchrec.patch import fast_start
from fastplan.torchrec.patch import patch as patching
from fastplan.torchrec.patch.substitutes import replace_known

INFER = "_infer_sharding_spec_from_shards_metadata"
PARSE = "_parse_and_validate_remote_device"
STOCK = {
    (module, name): getattr(module, name)
    for module, name in [
        (embedding_sharding, "group_tables"),
        (rw_sharding, "group_tables"),
        (tw_sharding, "group_tables"),
        (rw_sharding.BaseRwEmbeddingSharding, "_shard"),
        (sharded_tensor.api, PARSE),
        (sharding_spec, INFER),
        (sharding_spec.api, INFER),
        (model_parallel.DistributedModelParallel, "_init_dmp"),
    ]
}


def replaced() -> list[bool]:
    return [getattr(*place) is not stock for place, stock in STOCK.items()]


def test_functions_are_replaced_wherever_they_are_held_and_given_back():
    with fastplan.patch(init=True):
        assert all(replaced())
    assert not any(replaced())


def test_the_planner_is_patched_too():
    with fastplan.patch(init=True):
        assert model_parallel.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner


def test_without_init_nothing_of_the_start_is_replaced():
    with fastplan.patch():
        assert not any(replaced())


def test_a_second_patch_inside_leaves_the_first_in_place():
    with fastplan.patch(init=True):
        with fastplan.patch(init=True):
            pass
        assert all(replaced())
    assert not any(replaced())


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch):
    """A reason is logged once per process, so each test begins with none."""
    monkeypatch.setattr(patching, "_logged", set())


def test_all_functions_are_applied_on_a_known_version(caplog):
    with fastplan.patch(init=True) as patch:
        assert {known.name for known in fast_start.REPLACEMENTS} <= set(patch.applied)
        assert patch.skipped == {}
    assert caplog.records == []


@pytest.mark.parametrize("known", fast_start.REPLACEMENTS, ids=lambda known: known.function)
def test_another_function_is_skipped_by_name_and_the_others_are_applied(known, monkeypatch, caplog):
    holder, name = known._holder(known.function)
    another = lambda *args: None  # noqa: E731
    monkeypatch.setattr(holder, name, another)
    with fastplan.patch(init=True) as patch, fastplan.patch(init=True):
        assert list(patch.skipped) == [known.name]
        assert "has different source" in patch.skipped[known.name]
        assert getattr(holder, name) is another
        others = {each.name for each in fast_start.REPLACEMENTS} - {known.name}
        assert others <= set(patch.applied)
        assert known.name not in patch.applied
        places = [place for place in STOCK if place[1] != name]
        assert all(getattr(*place) is not STOCK[place] for place in places)
        assert model_parallel.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner
    assert getattr(holder, name) is another
    [record] = caplog.records
    assert (record.levelname, known.name in record.getMessage()) == ("WARNING", True)


def test_a_replacement_whose_helper_changed_is_skipped(monkeypatch):
    monkeypatch.setattr(embedding_sharding, "_prefetch_and_cached", lambda table: False)
    with fastplan.patch(init=True) as patch:
        assert embedding_sharding.group_tables is STOCK[embedding_sharding, "group_tables"]
        [(name, reason)] = patch.skipped.items()
    assert name.endswith("embedding_sharding.group_tables")
    assert "_prefetch_and_cached" in reason


def test_a_replacement_whose_helper_is_gone_is_skipped(monkeypatch):
    monkeypatch.delattr(embedding_sharding, "_prefetch_and_cached")
    with fastplan.patch(init=True) as patch:
        [reason] = patch.skipped.values()
    assert reason == (
        "_prefetch_and_cached does not exist in torchrec.distributed.embedding_sharding"
    )


def test_a_function_that_somebody_has_wrapped_is_skipped(monkeypatch):
    wrapped = functools.wraps(embedding_sharding.group_tables)(lambda *args: None)
    monkeypatch.setattr(embedding_sharding, "group_tables", wrapped)
    with fastplan.patch(init=True) as patch:
        assert "group_tables has different source" in "".join(patch.skipped.values())
        assert embedding_sharding.group_tables is wrapped


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"function": "no_such_function"}, "no_such_function does not exist in torchrec"),
        ({"function": "NoClass.method"}, "NoClass.method does not exist in torchrec"),
        ({"module": "torchrec.no_such_module"}, "torchrec.no_such_module can't be imported"),
        ({"module": "math", "function": "ceil", "relies_on": ()}, "ceil has no source to compare"),
    ],
)
def test_a_function_that_is_gone_is_skipped(change, reason):
    gone = replace(fast_start.REPLACEMENTS[0], **change)
    applied = replace_known((gone, *fast_start.REPLACEMENTS[1:]))
    for stand_in in applied.substitutes.values():
        stand_in.release()
    assert list(applied.skipped) == [gone.name]
    assert reason in applied.skipped[gone.name]
    assert len(applied.substitutes) == len(fast_start.REPLACEMENTS) - 1
    assert not any(replaced())


def test_a_torch_without_what_the_replacements_need_leaves_the_planner_patched(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastplan.torchrec.patch.fast_start", None)
    with fastplan.patch(init=True) as patch:
        assert model_parallel.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner
        [(name, reason)] = patch.skipped.items()
    assert name == "fastplan.torchrec.patch.fast_start"
    assert "can't be imported" in reason


def test_the_start_may_be_recorded_at_the_same_time(monkeypatch):
    calls = []
    owner = model_parallel.DistributedModelParallel

    @functools.wraps(owner._init_dmp)
    def recorded(*args):
        calls.append(gc.isenabled())

    monkeypatch.setattr(owner, "_init_dmp", recorded)
    with fastplan.patch(init=True):
        owner._init_dmp(None, None)
    assert calls == [False]
    assert owner._init_dmp is recorded


def test_what_somebody_replaces_afterwards_stays(monkeypatch):
    patch = fastplan.patch(init=True)
    mine = lambda ranks: []  # noqa: E731
    with monkeypatch.context() as changed:
        changed.setattr(embedding_sharding, "group_tables", mine)
        patch.undo()
        assert embedding_sharding.group_tables is mine
    embedding_sharding.group_tables = STOCK[embedding_sharding, "group_tables"]
    assert not any(replaced())


def cut(generator: random.Random) -> list[ShardMetadata]:
    """Shards of a table: even chunks in some order, or something near them."""
    dims, chunks, size = generator.choice([1, 2]), generator.randint(1, 6), generator.randint(1, 5)
    rows = max(1, size * chunks - generator.choice([0, 0, 1, size, 3]))
    shards = []
    for i in range(chunks):
        start = generator.choice([size * i, min(size * i, rows)])
        length = max(0, min(rows - size * i, size))
        offset, extent = ([start], [length]) if dims == 1 else ([start, 0], [length, 8])
        if dims == 2 and generator.random() < 0.1:
            offset, extent = [0, 8 * i], [rows, 8]
        shards.append(ShardMetadata(offset, extent, f"rank:{generator.randint(0, 7)}/cpu"))
    if generator.random() < 0.3:
        generator.shuffle(shards)
    return shards


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def test_inferred_specs_are_the_stock_ones():
    generator = random.Random(0)
    stock = STOCK[sharding_spec.api, INFER]
    faster = fast_start.sharding_spec(stock)
    seen = []
    for _ in range(3000):
        shards = cut(generator)
        expected, actual = outcome(stock, shards), outcome(faster, shards)
        assert type(actual) is type(expected)
        assert str(actual) == str(expected)
        if isinstance(expected, ChunkShardingSpec):
            pairs = zip(actual.placements, expected.placements, strict=True)
            assert all(ours is theirs for ours, theirs in pairs)
        seen.append(type(expected))
    assert {ChunkShardingSpec, EnumerableShardingSpec, tuple} <= set(seen)
    assert min(seen.count(kind) for kind in set(seen)) > 50


@pytest.fixture
def fake_group():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "place", ["rank:3/cpu", "rank:7/cuda:1", "rank:8/cpu", "cpu", "worker/cpu"]
)
def test_placements_are_validated_as_by_the_stock_function(fake_group, place):
    stock = STOCK[sharded_tensor.api, PARSE]
    faster = fast_start.remote_device(stock)
    device = _remote_device(place)
    assert outcome(faster, fake_group, device) == outcome(stock, fake_group, device)
    assert outcome(faster, fake_group, None) == outcome(stock, fake_group, None)


def tables_of_ranks(generator: random.Random) -> list[list[ShardedEmbeddingTable]]:
    """Ranks that are like the one before, or differ from it in one thing that counts."""
    kernels = [
        EmbeddingComputeKernel.FUSED,
        EmbeddingComputeKernel.FUSED_UVM_CACHING,
        EmbeddingComputeKernel.FUSED_UVM,
    ]
    params = [{"lr": 0.1}, {"lr": 0.2, "cache_load_factor": 0.3}, {"prefetch_pipeline": True}, None]
    first = [
        ShardedEmbeddingTable(
            num_embeddings=100 + i,
            embedding_dim=16,
            name=f"t{i}",
            local_cols=generator.choice([8, 16]),
            compute_kernel=generator.choice(kernels),
            fused_params=generator.choice(params),
        )
        for i in range(generator.randint(0, 5))
    ]
    ranks = [first]
    for _ in range(5):
        ranks.append([copy.copy(table) for table in ranks[-1]])
        if ranks[-1] and generator.random() < 0.5:
            table = generator.choice(ranks[-1])
            change = generator.choice(["compute_kernel", "fused_params", "local_cols", "gone"])
            if change == "gone":
                ranks[-1].remove(table)
            else:
                values = {"compute_kernel": kernels, "fused_params": params, "local_cols": [8, 16]}
                setattr(table, change, generator.choice(values[change]))
    return ranks


def test_tables_are_grouped_as_by_the_stock_function():
    generator = random.Random(1)
    stock = STOCK[embedding_sharding, "group_tables"]
    faster = fast_start.group_tables(stock)
    for _ in range(200):
        ranks = tables_of_ranks(generator)
        expected, actual = stock(ranks), faster(ranks)
        assert actual == expected
        for ours, theirs in zip(chain(*actual), chain(*expected), strict=True):
            pairs = zip(ours.embedding_tables, theirs.embedding_tables, strict=True)
            assert all(one is other for one, other in pairs)


def test_ranks_that_are_alike_are_grouped_once_and_share_no_settings():
    given = []

    def spy(ranks):
        given.extend(map(len, ranks))
        return STOCK[embedding_sharding, "group_tables"](ranks)

    table = ShardedEmbeddingTable(
        num_embeddings=10, embedding_dim=8, name="t", local_cols=8, fused_params={"lr": 0.1}
    )
    groups = fast_start.group_tables(spy)([[copy.copy(table)] for _ in range(4)])
    assert given == [1, 0, 0, 0]
    settings = list(map(itemgetter(0), groups))
    assert len({id(group.fused_params) for group in settings}) == len(groups)


def test_tables_of_different_weightedness_are_refused_as_before():
    ranks = [
        [ShardedEmbeddingTable(num_embeddings=10, embedding_dim=8, name="t", is_weighted=weighted)]
        for weighted in (True, False)
    ]
    stock = STOCK[embedding_sharding, "group_tables"]
    assert outcome(fast_start.group_tables(stock), ranks) == outcome(stock, ranks)
