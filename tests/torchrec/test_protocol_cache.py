"""TorchRec 1.9's PlanCache protocol, satisfied without importing it."""

import pytest

from fastplan.cache.stores import MemoryStore
from fastplan.torchrec.differences.search_space import IS_SHOWN
from fastplan.torchrec.loader import PlanMetadata, ProtocolPlanCache
from tests.torchrec.test_caching import model, planned

METADATA = PlanMetadata(created_by="me", sku="h100", world_size=4, extra={"why": "test"})
FINGERPRINT = "any text: not hexadecimal/../at all"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_plan_comes_back_with_its_metadata(store):
    plan, _ = planned(False)
    ProtocolPlanCache(store).put(FINGERPRINT, plan, METADATA)
    assert ProtocolPlanCache(store).get(FINGERPRINT) == (plan, METADATA)


def test_an_unknown_fingerprint_finds_nothing(store):
    assert ProtocolPlanCache(store).get(FINGERPRINT) is None


def test_a_later_plan_replaces_the_earlier(store):
    cache = ProtocolPlanCache(store)
    for rows in (50_000, 70_000):
        plan, _ = planned(False, model(rows=rows))
        cache.put(FINGERPRINT, plan, METADATA)
    found = cache.get(FINGERPRINT)
    assert found is not None
    assert found[0] == plan


def test_damaged_and_renamed_entries_are_not_used(store):
    cache = ProtocolPlanCache(store)
    plan, _ = planned(False)
    cache.put(FINGERPRINT, plan, METADATA)
    cache.put("other", plan, METADATA)
    own, other = sorted(store.keys(), key=lambda key: len(store.read(key)[0][1]), reverse=True)
    (name, data), *_ = store.read(other)
    store.write(own, name, data)
    assert cache.get(FINGERPRINT) is None
    store.write(own, name, data[:-3])
    assert cache.get(FINGERPRINT) is None


class BrokenStore(MemoryStore):
    def read(self, key: str) -> list[tuple[str, bytes]]:
        raise OSError("no route to host")

    def write(self, key: str, name: str, data: bytes) -> None:
        raise OSError("no route to host")


def test_a_store_that_fails_is_a_warning(caplog):
    cache = ProtocolPlanCache(BrokenStore())
    plan, _ = planned(False)
    cache.put(FINGERPRINT, plan, METADATA)
    assert cache.get(FINGERPRINT) is None
    assert "no route to host" in caplog.text


@pytest.mark.skipif(not IS_SHOWN, reason="new in TorchRec 1.9")
def test_it_is_a_plan_cache_to_torchrec(store):
    from torchrec.distributed.planner.dry_run.protocols import CacheMetadata, PlanCache

    cache = ProtocolPlanCache(store)
    assert isinstance(cache, PlanCache)
    plan, _ = planned(False)
    cache.put(FINGERPRINT, plan, CacheMetadata(created_by="me", sku="h100", world_size=4))
    found = cache.get(FINGERPRINT)
    assert found is not None
    assert found[1].sku == "h100"
