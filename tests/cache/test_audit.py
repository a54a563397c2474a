"""Entries that hold what they promise, and those that don't."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fastplan.cache import audit as audit_module
from fastplan.cache.audit import BAD, GOOD, PARTLY, audit
from fastplan.cache.entry import decode, pack_request, request_bytes
from fastplan.cache.fingerprint import fingerprint
from fastplan.cache.stores import MemoryStore
from fastplan.model.objectives import Objectives
from fastplan.model.plan import PlanRecord
from tests.cache.planned import CONTEXT, keep, keep_better
from tests.cache.samples import entry as random_entry
from tests.problems import GIB


@pytest.fixture
def entry():
    return stored()


def stored(**arguments):
    store = MemoryStore()
    key = keep(store, **arguments)
    ((_, data),) = store.read(key)
    return decode(data)


def with_record(entry, **changes):
    record = replace(PlanRecord.unpack(entry.payload), **changes)
    return replace(entry, payload=record.pack(), rating=record.rating)


def with_request(entry, **changes):
    """The entry with another request, under that one's key."""
    document = {**json.loads(request_bytes(entry)), **changes}
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return replace(entry, request=pack_request(text), key=fingerprint(text))


def test_a_plan_as_it_was_stored_is_good(entry):
    assert audit(entry) == (GOOD, None)


def test_bytes_that_are_no_plan_are_bad():
    verdict = audit(random_entry(1))
    assert verdict.status == BAD
    assert "plan record version" in verdict.reason


def test_a_header_with_another_rating_is_bad(entry):
    verdict = audit(replace(entry, rating=entry.rating + 1))
    assert verdict.status == BAD
    assert "its header says" in verdict.reason


def test_a_rating_that_does_not_come_out_again_is_bad(entry):
    verdict = audit(with_record(entry, rating=entry.rating * 2))
    assert verdict.status == BAD
    assert "the rating is" in verdict.reason


def test_a_plan_over_the_capacities_it_claims_to_be_solved_for_is_bad(entry):
    verdict = audit(replace(entry, capacities=((8, 1 << 20, 1 << 20, 0),)))
    assert verdict.status == BAD
    assert "over its capacity" in verdict.reason


def test_ranks_outside_the_cluster_are_bad(entry):
    ranks = PlanRecord.unpack(entry.payload).ranks
    assert len(ranks)
    assert audit(with_record(entry, ranks=ranks + 8)).status == BAD
    assert audit(with_record(entry, ranks=ranks[:-1])).status == BAD


def test_another_number_of_ranks_than_the_request_has_is_bad(entry):
    verdict = audit(replace(entry, capacities=((1 << 60, 1, 1, 1),)))
    assert verdict == (BAD, f"it was solved for {1 << 60} ranks, its request has 8")


@pytest.mark.parametrize("ranks", [1 << 20, (1 << 20) + 1, 1 << 24])
def test_a_small_entry_with_many_ranks_needs_little_memory(entry, ranks):
    planted = replace(with_request(entry, ranks=ranks), capacities=((ranks, GIB, 8 * GIB, 0),))
    tracemalloc.start()
    try:
        verdict = audit(planted)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20
    if ranks > 1 << 20:
        why = f"it was solved for {ranks} ranks; at most {1 << 20} are checked"
        assert verdict == (PARTLY, why)
    else:
        assert verdict.status == GOOD


@pytest.mark.parametrize("name", ["local_world_size", "group_size"])
def test_hosts_that_no_cluster_has_are_bad(entry, name):
    verdict = audit(with_request(entry, context={**CONTEXT, name: 1 << 31}))
    assert verdict == (BAD, f"`{name}` must be between 1 and 2^24")


def test_more_memory_than_the_core_can_add_up_is_checked_in_part(entry):
    verdict = audit(replace(entry, capacities=((8, (1 << 63) - 1, 0, 0),)))
    assert verdict.status == PARTLY
    assert verdict.reason.startswith("its costs can't be recomputed: `rank_hbm`")


@pytest.mark.parametrize(
    ("raised", "status"), [(KeyError("x" * 100_000), BAD), (MemoryError(), PARTLY)]
)
def test_an_error_that_no_check_foresees_is_a_short_reason(entry, monkeypatch, raised, status):
    def fail(*_):
        raise raised

    monkeypatch.setattr(audit_module, "verify_plan", fail)
    verdict = audit(entry)
    assert verdict.status == status
    assert 0 < len(verdict.reason) <= 300


def test_a_request_with_another_key_is_bad(entry):
    assert audit(replace(entry, key="ab" * 20)) == (BAD, "the key of its request differs")


def test_a_request_that_cannot_be_unpacked_is_bad(entry):
    assert audit(replace(entry, request=b"no zlib")).status == BAD


def test_without_a_request_only_the_rest_is_checked(entry):
    assert audit(replace(entry, request=b"")) == (PARTLY, "it has no request")


@pytest.mark.parametrize(
    "changes", [{"plan_version": 99}, {"tables": {}}, {"cost": None}, {"menus": []}, {"ranks": "8"}]
)
def test_a_request_that_cannot_be_read_back_is_checked_in_part(entry, changes):
    verdict = audit(with_request(entry, **changes))
    assert verdict.status == PARTLY
    assert verdict.reason.startswith("its request can't be read: ")


@pytest.mark.parametrize(
    "custom", [[["mine.PerfModel", "1"]], [["scaleup"], "text"], [[]], None, 7, {"a": 1}]
)
def test_custom_parts_with_a_say_in_costs_are_not_computed_again(custom):
    verdict = audit(stored(context={**CONTEXT, "custom": custom}))
    assert verdict == (PARTLY, "custom parts affect its costs")


@pytest.mark.parametrize("custom", [[[0, ["mine.Proposer", "1"]]], [["scaleup", 0, True, False]]])
def test_custom_proposers_change_nothing_about_a_plan(custom):
    assert audit(stored(context={**CONTEXT, "custom": custom})) == (GOOD, None)


@pytest.mark.parametrize("size", [None, 0, "4", True])
def test_a_request_that_does_not_tell_hosts_is_checked_in_part(size):
    verdict = audit(stored(context={**CONTEXT, "group_size": size}))
    assert verdict.status == PARTLY
    assert "share a host" in verdict.reason


def test_resized_caches_are_checked_in_part(entry):
    verdict = audit(with_record(entry, load_factor=np.array([0.5, np.nan, np.nan])))
    assert verdict.status == PARTLY
    assert "resized caches" in verdict.reason


def better(**arguments):
    store = MemoryStore()
    key = keep_better(store, **arguments)
    ((_, data),) = store.read(key)
    return decode(data)


@pytest.mark.parametrize(
    "rules", [None, Objectives(pins={"a": 2}), Objectives(together=[["b", "c"]])]
)
def test_a_certificate_is_checked_for_the_plans_that_were_allowed(rules):
    entry = better(objectives=rules)
    assert entry.certificate
    assert audit(entry) == (GOOD, None)


@pytest.mark.parametrize("forged", [b"x", b"\1" + bytes(40)])
def test_a_certificate_that_proves_nothing_does_not_make_a_plan_bad(forged):
    verdict = audit(replace(better(), certificate=forged))
    assert verdict == (PARTLY, "its certificate does not prove a bound, so no bound is reported")


@pytest.mark.parametrize(
    "told",
    [
        *(7, {"objectives": []}, {"objectives": {"pins": 7}}, {"objectives": {"pins": [[1, 2]]}}),
        *({"objectives": {"together": [[1, 2]]}}, {"objectives": {"pins": {"a": None}}}),
        *({"objectives": {"together": 7}}, {"objectives": {"together": [[["a"], "b"]]}}),
    ],
    ids=range(8),
)
def test_rules_that_are_none_are_checked_in_part(told):
    entry = better()
    context = json.loads(request_bytes(entry))["context"]
    verdict = audit(with_request(entry, context={**context, "optimize": told}))
    assert verdict == (PARTLY, "its request does not say which plans its bound is about")
