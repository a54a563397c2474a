"""Jobs planned without TorchRec: what is checked before a plan is returned or kept."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.cache.entry import decode, encode
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import MemoryStore
from fastplan.engine import _native
from fastplan.engine.optimize import Optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.plan import PlanRecord
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from fastplan.planning import plan as planning
from fastplan.planning.plan import plan
from fastplan.spec.lower import lower
from fastplan.spec.model import TopologySpec
from tests.sweep.samples import hardware, model


@pytest.mark.parametrize("changes", [{"rating": 1e-9}, {"ranks": [99, 99]}], ids=str)
def test_an_optimized_plan_that_is_not_sound_is_not_used(changes, monkeypatch):
    found = planning.improve
    monkeypatch.setattr(
        planning, "improve", lambda *args, **more: replace(found(*args, **more), **changes)
    )
    job = lower(model(topology=TopologySpec(hardware=hardware(), world_size=4)))
    settings = Optimize(time_budget=None, move_budget=1_000)
    result = plan(job, optimize=settings)
    assert "failed verification" in result.not_optimized
    assert result.record.pack() == plan(job).record.pack()
    assert result.lower_bound is None


def kept(job):
    """A cache with the job's plan, the plan, and a way to put another one in its place."""
    cache = Cache(MemoryStore())
    key = plan(job, cache=cache).key.fingerprint
    ((name, data),) = cache.store.read(key)
    entry = decode(data)

    def put(record):
        made = replace(entry, payload=record.pack(), rating=record.rating)
        cache.store.write(key, name, encode(made))

    return cache, PlanRecord.unpack(entry.payload), put


def test_a_stored_plan_is_taken_only_with_the_rating_that_it_has():
    job = lower(model(topology=TopologySpec(hardware=hardware(), world_size=4)))
    cache, record, put = kept(job)
    assert plan(job, cache=cache).cache.status == "hit"
    put(replace(record, rating=0.9 * record.rating))
    again = plan(job, cache=cache)
    assert again.cache.status == "miss"
    assert "the rating is" in again.cache.reason
    assert again.rating == record.rating


def test_a_stored_plan_that_is_legal_but_worse_than_torchrecs_is_a_miss():
    job = lower(model(topology=TopologySpec(hardware=hardware(), world_size=4)))
    cache, record, put = kept(job)
    space = estimate(job.request)
    whole = space.option_type == SHARDING_TYPE_INDEX["table_wise"]
    fused = space.option_kernel == KERNEL_INDEX["fused"]
    options = np.flatnonzero(whole & fused).astype(np.int32)
    ranks = np.zeros(len(options), np.int32)
    problem = Problem(space, job.cluster)
    rating = _native.rate(problem.handle, {"options": options, "ranks": ranks})
    assert record.rating < rating < 9 * record.rating
    put(PlanRecord.of(space, options, ranks, rating))
    again = plan(job, cache=cache)
    assert again.cache.status == "miss"
    assert "TorchRec's own proposals reach" in again.cache.reason
    assert again.rating == record.rating


def with_memory(job, hbm):
    cluster = job.cluster
    return replace(job, cluster=replace(cluster, rank_hbm=(hbm,) * len(cluster.rank_hbm)))


@pytest.mark.parametrize(("hbm", "status"), [(64 << 20, "hit"), (36_600_000, "miss")])
def test_a_plan_for_slightly_less_memory_hits_if_it_is_about_as_good(hbm, status):
    """Below 36.57 MB a rank must leave a table in host memory, and the rating is 2.6 x as high."""
    job = lower(model(topology=TopologySpec(hardware=hardware(), world_size=4)))
    cache = Cache(MemoryStore())
    less = plan(with_memory(job, int(0.995 * hbm)), cache=cache)
    found = plan(with_memory(job, hbm), cache=cache)
    best = plan(with_memory(job, hbm)).rating
    assert found.cache.status == status
    assert found.rating == best
    assert (less.rating > 2 * best) == (status == "miss")
