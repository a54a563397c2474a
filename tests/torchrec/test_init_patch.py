"""The patched start: what is replaced, what is refused, and that each function gives the same."""

import copy
import functools
import gc
import random
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
from fastplan.torchrec.patch.patch import PatchRefused, replace_all

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


@pytest.mark.parametrize("known", fast_start.REPLACEMENTS, ids=lambda known: known.function)
def test_another_function_is_refused_by_name_and_nothing_is_replaced(known, monkeypatch):
    holder, name = known._holder(known.function)
    another = lambda *args: None  # noqa: E731
    monkeypatch.setattr(holder, name, another)
    with pytest.raises(PatchRefused, match=rf"{known.name} has different source") as refused:
        fastplan.patch(init=True)
    assert "fastplan.patch() without `init`" in str(refused.value)
    assert getattr(holder, name) is another
    assert sum(replaced()) <= 1
    assert model_parallel.EmbeddingShardingPlanner is not fastplan.EmbeddingShardingPlanner


def test_what_a_replacement_relies_on_is_compared_too(monkeypatch):
    monkeypatch.setattr(embedding_sharding, "_prefetch_and_cached", lambda table: False)
    with pytest.raises(PatchRefused, match="group_tables has different source"):
        fastplan.patch(init=True)


def test_a_function_that_somebody_has_wrapped_is_refused(monkeypatch):
    wrapped = functools.wraps(embedding_sharding.group_tables)(lambda *args: None)
    monkeypatch.setattr(embedding_sharding, "group_tables", wrapped)
    with pytest.raises(PatchRefused, match="group_tables has different source"):
        fastplan.patch(init=True)


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


def test_a_function_that_is_gone_is_refused():
    gone = replace(fast_start.REPLACEMENTS[0], function="no_such_function")
    with pytest.raises(PatchRefused, match="no_such_function does not exist"):
        replace_all((gone,))


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
