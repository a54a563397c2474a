"""Jobs that follow a previous plan without TorchRec."""

from dataclasses import replace

import pytest

from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import MemoryStore
from fastplan.engine.optimize import Optimize
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.objectives import NO_OBJECTIVES
from fastplan.planning import plan as planning
from fastplan.planning.plan import plan
from fastplan.planning.policy import Replan
from fastplan.spec.lower import lower
from fastplan.spec.model import TopologySpec
from tests.sweep.samples import hardware, model

FREE = Replan(max_moved=1.0, slack=1.0)
NEVER = Replan(max_changed=0.0)
BETTER = Optimize(time_budget=None, move_budget=1_000)


def job(ranks=4, rows=1_000_000):
    topology = TopologySpec(hardware=hardware(), world_size=ranks)
    return lower(model(rows=rows, topology=topology))


def old(**changes):
    return plan(job(**changes)).plan()


@pytest.mark.parametrize("optimization", [None, BETTER], ids=["torchrec", "better"])
def test_a_plan_that_follows_has_a_key_of_its_own(optimization):
    scratch = plan(job(), optimize=optimization)
    planned = plan(job(), previous=old(ranks=8), replan=FREE, optimize=optimization)
    assert planned.replan.followed
    assert planned.key != scratch.key
    other = plan(job(), previous=old(ranks=8), replan=NEVER, optimize=optimization)
    assert other.replan.followed
    assert len({planned.key, other.key, scratch.key}) == 3


@pytest.mark.parametrize("optimization", [None, BETTER], ids=["torchrec", "better"])
def test_a_plan_that_does_not_follow_has_the_key_of_the_plan_from_scratch(optimization):
    scratch = plan(job(), optimize=optimization)
    planned = plan(job(), previous=old(rows=900_000), replan=NEVER, optimize=optimization)
    assert not planned.replan.followed
    assert planned.record.rating == scratch.record.rating
    assert planned.key == scratch.key
    assert planned.plan().fingerprint == scratch.key.fingerprint


def test_a_plan_that_follows_is_kept_and_never_taken_from_the_cache():
    store = MemoryStore()
    cache = Cache(store)
    for _ in range(2):
        planned = plan(job(), previous=old(ranks=8), replan=FREE, optimize=BETTER, cache=cache)
        assert planned.cache.status == "miss"
        assert planned.cache.reason == "the cache was not searched"
    assert [stored.key for stored in store.entries()] == [planned.key.fingerprint]
    candidate, _ = cache.find(planned.key.fingerprint, job().cluster, lambda candidate: candidate)
    assert candidate.record.rating == planned.rating
    assert candidate.certificate == planned.certificate
    problem = Problem(estimate(job().request), job().cluster)
    bound = proven_bound(candidate.certificate, planned.rating, problem, NO_OBJECTIVES, ())
    assert bound == planned.lower_bound
    assert plan(job(), cache=cache, optimize=BETTER).cache.status == "miss"


def test_a_plan_that_does_not_follow_is_found_by_those_that_ask_for_one_from_scratch():
    cache = Cache(MemoryStore())
    planned = plan(job(), previous=old(rows=900_000), replan=NEVER, cache=cache)
    known = plan(job(), cache=cache)
    assert (known.cache.status, known.rating) == ("hit", planned.rating)


def test_a_plan_whose_search_was_interrupted_is_not_kept(monkeypatch):
    found = planning.improve
    monkeypatch.setattr(
        planning,
        "improve",
        lambda *args, **more: replace(found(*args, **more), stopped_by="interrupted"),
    )
    store = MemoryStore()
    planned = plan(job(), previous=old(ranks=8), replan=FREE, optimize=BETTER, cache=Cache(store))
    assert planned.interrupted
    assert list(store.entries()) == []
