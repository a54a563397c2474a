"""Whatever somebody writes into a shared cache: no exception, no forbidden plan, no bad one."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CacheParams

from fastplan import Cache, EmbeddingShardingPlanner
from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import MemoryStore
from fastplan.model.plan import NO_LOAD_FACTOR, PlanRecord
from fastplan.model.vocabulary import KERNEL_INDEX
from tests.torchrec import poison


@pytest.fixture(scope="module")
def entry():
    return poison.honest()


@pytest.fixture(scope="module")
def best():
    return poison.best_rating()


@pytest.mark.parametrize("arguments", poison.USES, ids=["plan", "replan"])
@pytest.mark.parametrize("way", poison.WAYS)
def test_a_poisoned_cache_gives_torchrecs_plan_all_the_same(tmp_path, entry, best, way, arguments):
    store = poison.shared(tmp_path)
    poison.WAYS[way](store, entry)
    run = poison.use(Cache(store, timeout=60.0), **arguments)
    assert run.rating == best


@pytest.mark.parametrize("way", ["bombs", "huge_files", "many_ranks", "many_shards", "many_tables"])
def test_a_poisoned_cache_costs_little_memory(tmp_path, entry, way):
    store = poison.shared(tmp_path)
    poison.WAYS[way](store, entry)
    tracemalloc.start()
    try:
        poison.use(Cache(store, timeout=60.0), replan="auto")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < poison.MEMORY


def test_a_bad_plan_of_a_nearby_model_is_not_followed(tmp_path, entry, best):
    store = poison.shared(tmp_path)
    poison.one_slow_rank(store, entry)
    store.delete(entry.key, store.read(entry.key)[0][0])
    run = poison.use(Cache(store, timeout=60.0), replan="auto")
    assert run.cache.status == "miss"
    assert run.rating == best


def cached_planner(cache):
    """One whose constraints allow nothing but the cached kernel."""
    rules = {
        name: ParameterConstraints(
            compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=0.2)
        )
        for name in poison.NAMES
    }
    return EmbeddingShardingPlanner(
        topology=poison.planner(None)._topology, constraints=rules, cache=cache, stats=[]
    )


@pytest.mark.parametrize(
    ("kernel", "factor"),
    [
        ("fused", NO_LOAD_FACTOR),
        ("fused_uvm_caching", 0.9),
        ("fused_uvm_caching", NO_LOAD_FACTOR),
        ("fused", 0.5),
    ],
)
def test_a_cache_that_the_constraints_do_not_allow_is_a_miss(kernel, factor):
    cache = Cache(MemoryStore())
    made = cached_planner(cache)
    plan = made.plan(poison.model(), poison.SHARDERS)
    key = made.last_run.cache.fingerprint
    ((name, data),) = cache.store.read(key)
    entry = decode(data)
    record = PlanRecord.unpack(entry.payload)
    tables = len(record.table)
    changed = replace(
        record,
        kernel=np.full(tables, KERNEL_INDEX[kernel], np.uint8),
        load_factor=np.full(tables, factor),
    )
    cache.store.write(key, name, encode(replace(entry, payload=changed.pack())))
    again = cached_planner(cache)
    assert again.plan(poison.model(), poison.SHARDERS) == plan
    assert again.last_run.cache.status == "miss"
    assert "no proposer resizes caches" in again.last_run.cache.reason


def test_a_store_that_cancels_or_exits_costs_a_warning_and_not_the_plan(best):
    class Leaving(MemoryStore):
        def read(self, key):
            raise SystemExit(3)

    made = poison.planner(Cache(Leaving()))
    made.plan(poison.model(), poison.SHARDERS)
    assert made.last_run.rating == best
    assert made.last_run.cache.status == "failed"
    assert "SystemExit: 3" in made.last_run.cache.reason


@pytest.mark.parametrize(("mode", "status"), [(0o755, "hit"), (0o775, "miss"), (0o757, "miss")])
def test_only_plans_in_a_private_directory_are_used_without_a_comparison(
    tmp_path, entry, mode, status
):
    store = poison.shared(tmp_path)
    poison.one_slow_rank(store, entry)
    tmp_path.chmod(mode)
    assert poison.use(Cache(store, timeout=60.0)).cache.status == status


def test_with_a_key_only_signed_plans_are_used(best):
    store = MemoryStore()
    stranger = poison.planner(Cache(store))
    stranger.plan(poison.model(), poison.SHARDERS)
    ours = Cache(store, key="a secret that we share")
    first = poison.use(ours)
    assert first.cache.status == "miss"
    assert "not signed" in first.cache.reason
    assert poison.use(ours).cache.status == "hit"
    others = poison.use(Cache(store, key="a secret of somebody else"))
    assert others.cache.status == "miss"
    assert "another key" in others.cache.reason


def test_the_environment_has_the_key_of_caches_that_are_given_by_their_place(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "a secret that we share")
    made = poison.planner(str(tmp_path))
    made.plan(poison.model(), poison.SHARDERS)
    monkeypatch.delenv("FASTPLAN_CACHE_KEY")
    assert poison.use(Cache(tmp_path, key="a secret that we share")).cache.status == "hit"
