"""Bounds of plans from a cache: proven anew by a certificate, or not told."""

import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer, GreedyProposer
from torchrec.distributed.types import CacheParams

from fastplan import (
    Cache,
    ObjectiveModel,
    Objectives,
    Replan,
)
from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import MemoryStore
from fastplan.engine.certificate import Certificate, lower_bound
from fastplan.engine.packed_certificate import pack_certificate, proven_bound
from fastplan.planning import caching
from tests.costs.samples import critical_path
from tests.torchrec.test_improving import (
    MIB,
    MOVES,
    Fingerprinted,
    arguments,
    model,
    planned,
)


def changed_entries(cache: Cache, **changes: Any) -> Cache:
    """The same plans in another cache, as somebody else could have written them."""
    store = MemoryStore()
    for stored in cache.store.entries():
        for name, data in cache.store.read(stored.key):
            store.write(stored.key, name, encode(replace(decode(data), **changes)))
    return Cache(store)


@pytest.mark.parametrize(
    "objectives", [Objectives(), Objectives(pins={"t3": 2}), Objectives(together=[["t0", "t1"]])]
)
def test_a_hit_proves_the_bound_again(objectives):
    cache = Cache(MemoryStore())
    first, made = planned(cache=cache, optimize=replace(MOVES, objectives=objectives))
    second, hit = planned(cache=cache, optimize=replace(MOVES, objectives=objectives))
    assert hit.last_run.cache.status == "hit"
    assert first == second
    assert hit.last_run.lower_bound == made.last_run.lower_bound
    assert hit.last_run.gap == made.last_run.gap


def test_other_devices_have_a_bound_that_is_proven_for_them():
    cache = Cache(MemoryStore())
    _, made = planned(cache=cache, optimize=MOVES)
    for more in (MIB, -MIB):
        _, near = planned(cache=cache, optimize=MOVES, memory=(1 << 34) + more)
        assert near.last_run.cache.status == "hit"
        assert 0 < near.last_run.lower_bound <= made.last_run.rating


def test_a_hit_proves_no_bound_that_nobody_reads(monkeypatch):
    cache = Cache(MemoryStore())
    _, made = planned(cache=cache, optimize=MOVES)
    checked = []
    check = caching.proven_bound
    monkeypatch.setattr(
        caching, "proven_bound", lambda *given: checked.append(given) or check(*given)
    )
    _, hit = planned(cache=cache, optimize=MOVES)
    assert "gap" not in repr(hit.last_run)
    assert not checked
    assert hit.last_run.gap == hit.last_run.gap == made.last_run.gap
    assert len(checked) == 1
    assert f"gap {made.last_run.gap:.4%}" in repr(hit.last_run)


def test_a_pickled_hit_has_its_bound():
    cache = Cache(MemoryStore())
    _, made = planned(cache=cache, optimize=MOVES)
    _, hit = planned(cache=cache, optimize=MOVES)
    assert pickle.loads(pickle.dumps(hit.last_run)).gap == made.last_run.gap


FORGED = Certificate(value=1e9, threshold=0.0, slabs=())


@pytest.mark.parametrize("kind", ["none", "bytes", "nothing", "more"])
def test_a_certificate_that_proves_nothing_costs_the_bound_and_not_the_plan(kind):
    cache = Cache(MemoryStore())
    first, made = planned(cache=cache, optimize=MOVES)
    problem = made._fastplan.result.searched.problem
    honest = lower_bound(problem, upper=made.last_run.rating)
    claimed = made.last_run.rating * 0.9999999
    forged = {
        "none": b"",
        "bytes": b"no certificate",
        "nothing": pack_certificate(FORGED, problem, Objectives(), ()),
        "more": pack_certificate(
            replace(honest, value=claimed, threshold=claimed), problem, Objectives(), ()
        ),
    }
    told = {"lower_bound": claimed}
    other = changed_entries(cache, certificate=forged[kind], provenance=told)
    again, hit = planned(cache=other, optimize=MOVES)
    assert hit.last_run.cache.status == "hit"
    assert first == again
    bound = hit.last_run.lower_bound
    assert bound is None or bound < claimed
    assert kind == "more" or bound is None


def rated_otherwise(kind: str) -> dict[str, Any]:
    """Arguments with which a plan's rating is not the one that certificates speak of."""
    cluster = arguments()["topology"]
    if kind == "perf model":
        return {"performance_model": Fingerprinted(cluster), "optimize": MOVES}
    if kind == "objective":
        return {"performance_model": ObjectiveModel(critical_path, cluster), "optimize": MOVES}
    offloaded = ParameterConstraints(
        sharding_types=["table_wise"],
        compute_kernels=["fused_uvm_caching"],
        cache_params=CacheParams(load_factor=0.1),
    )
    return {
        "proposer": [GreedyProposer(), EmbeddingOffloadScaleupProposer()],
        "constraints": {"t0": offloaded, "t1": offloaded},
        "topology": Topology(world_size=2, compute_device="cuda"),
        "optimize": MOVES,
    }


@pytest.mark.parametrize("kind", ["perf model", "objective", "scale-up"])
def test_a_certificate_says_nothing_of_plans_that_are_rated_otherwise(kind):
    cache = Cache(MemoryStore())
    _, made = planned(model(2), cache=cache, **rated_otherwise(kind))
    problem = made._fastplan.result.searched.problem
    true = lower_bound(problem)
    packed = pack_certificate(true, problem, Objectives(), ())
    assert proven_bound(packed, math.inf, problem, Objectives(), ()) == true.value
    other = changed_entries(cache, certificate=packed)
    _, hit = planned(model(2), cache=other, **rated_otherwise(kind))
    assert hit.last_run.cache.status == "hit"
    assert hit.last_run.lower_bound is None


def test_a_followed_plan_keeps_the_bound(tmp_path):
    cache = Cache(tmp_path)
    planned(model(8), cache=cache, optimize=MOVES)
    policy = Replan(reference="scratch", slack=0.2, max_moved=0.8, move_budget=20_000)
    plans = [planned(cache=cache, optimize=MOVES, replan=policy) for _ in range(2)]
    runs = [planner.last_run for _, planner in plans]
    assert runs[0].replan.followed
    assert runs[1].cache.status == "hit"
    assert runs[1].lower_bound == runs[0].lower_bound > 0
