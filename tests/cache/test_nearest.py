"""Entries that are near a request: which are read, in what order, and for how long."""

import zlib
from types import SimpleNamespace

import pytest

from fastplan.cache.entry import (
    decode,
    encode,
    entry_name,
    read_name,
    request_bytes,
    similarity,
    sketch_of,
    table_names,
)
from fastplan.cache.nearest import near_entries, nearest_plan
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import MemoryStore, StoreError, base
from fastplan.cache.stores.base import Deadline
from fastplan.cache.why_miss import explain_miss
from tests.cache.planned import CLUSTER, keep
from tests.cache.samples import entry as sample
from tests.cache.samples import key as some_key


def names(*parts):
    return [("m", f"t{i}") for part in parts for i in range(*part)]


def canonical(store, key):
    ((_, data),) = store.read(key)
    return request_bytes(decode(data))


@pytest.mark.parametrize("shared", [1.0, 0.9, 0.5, 0.1, 0.0])
def test_sketches_agree_in_about_as_many_places_as_models_share_tables(shared):
    kept = int(500 * 2 * shared / (1 + shared))
    one, other = names((0, 500)), names((0, kept), (1000, 1500 - kept))
    found = similarity(sketch_of(one), sketch_of(other))
    assert found == pytest.approx(shared + (1 - shared) / 16, abs=0.2)
    assert (found == 1.0) == (shared == 1.0)


def test_a_sketch_does_not_depend_on_the_order_of_tables():
    assert sketch_of(names((0, 9))) == sketch_of([*reversed(names((0, 9)))])


def test_a_name_tells_ranks_and_sketch():
    sketch = sketch_of(names((0, 9)))
    assert read_name(entry_name("ab" * 10, 4096, sketch)) == (4096, sketch)
    assert read_name("ab" * 10) is None


@pytest.mark.parametrize("count", [0, -1, 2, 10**15, 1e30, "3", None, True])
def test_a_document_with_a_made_up_number_of_tables_is_refused(count):
    columns = {"path": {"all": ""}, "name": ["a", "b", "c"]}
    with pytest.raises((ValueError, TypeError)):
        table_names({"table_count": count, "tables": columns})


def test_most_tables_in_common_come_first():
    store = MemoryStore()
    far = keep(store, names=("x", "y", "z"))
    near = keep(store, names=("a", "b", "c", "d"))
    wanted = canonical(store, keep(store, names=("a", "b", "c")))
    found = near_entries(Cache(store), wanted, deadline=Deadline(60.0))
    assert [each.entry.key for each in found] == [near, far]


def test_the_nearest_plan_shares_half_of_all_tables():
    store = MemoryStore()
    keep(store, names=("a", "x", "y", "z"))
    wanted = canonical(store, keep(store, names=("a", "b", "c")))
    assert nearest_plan(Cache(store), wanted, Deadline(60.0)) is None
    near = keep(store, names=("b", "c", "d"))
    plan = nearest_plan(Cache(store), wanted, Deadline(60.0))
    assert plan is not None
    assert plan.fingerprint == near


class Clock:
    """Stands for the time module: every read of a store takes a second."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Slow(MemoryStore):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.reads = 0

    def read(self, key):
        self.reads += 1
        self.clock.now += 1.0
        return super().read(key)


@pytest.fixture
def slow(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=clock.monotonic))
    store = Slow(clock)
    for number in range(12):
        keep(store, names=("a", "b", "c"), rows=1000 + number)
    return store


@pytest.mark.parametrize("lookup", ["nearest", "why"])
def test_a_lookup_over_many_entries_ends_at_its_deadline(slow, lookup):
    wanted = canonical(slow, keep(slow, names=("a", "b", "c")))
    slow.reads = 0
    plans = Cache(slow, timeout=5.0)
    if lookup == "why":
        explain_miss(wanted, plans)
    else:
        nearest_plan(plans, wanted, Deadline(5.0))
    assert slow.reads <= 6


def test_all_candidates_of_a_key_share_one_deadline(slow):
    key = keep(slow, names=("a", "b", "c"))
    ((_, data),) = slow.read(key)
    for number in range(20):
        slow.write(key, f"{number:020x}", data)
    tried = []

    def accept(candidate):
        slow.clock.now += 1.0
        tried.append(candidate)
        raise ValueError("not this one")

    _, reason = Cache(slow, timeout=5.0).find(key, CLUSTER, accept)
    assert len(tried) <= 5
    assert "not read within 5 s" in reason


def test_a_lookup_that_runs_out_of_time_does_not_condemn_the_store(slow):
    plans = Cache(slow, timeout=5.0)
    deadline = Deadline(5.0)
    slow.clock.now += 5.0
    with pytest.raises(StoreError, match="timed out"):
        plans.store.read(some_key(99), deadline)
    assert plans.store.read(some_key(99)) == []


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{}", b"[]", b"3", b'{"ranks":1}', b""])
def test_an_entry_that_keeps_something_else_is_no_entry(text):
    store = MemoryStore()
    good = keep(store, names=("a", "b", "c"), rows=2000)
    wanted = canonical(store, keep(store, names=("a", "b", "c")))
    ((name, _),) = store.read(good)
    bad = sample(1, request=zlib.compress(text) if text else b"")
    store.write(bad.key, name, encode(bad))
    plan = nearest_plan(Cache(store), wanted, Deadline(60.0))
    assert plan is not None
    assert plan.fingerprint == good
    assert explain_miss(wanted, Cache(store)).nearest == good
