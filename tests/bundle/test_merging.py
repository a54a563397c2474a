"""What one more start adds to a bundle, and what it takes away."""

from dataclasses import replace

import pytest

from fastplan.bundle.bundle import parse_bundle
from fastplan.bundle.compiled import Code
from fastplan.bundle.format import MAX_PLANS, Content, content_bytes
from fastplan.bundle.gathering import merge
from tests.bundle.samples import FACTS, KERNEL, NAMES, artifacts, bundle, kernel, plans
from tests.cache.samples import data as entry_data
from tests.cache.samples import key as sample_key

MADE = Content(model="ranker", facts=FACTS)
SAME = Code(NAMES, b"the same in another order", {KERNEL: b"library"})
OTHER = Code({"inductor": ("f9",)}, b"other", {"cd/other.so": b"other library"})


def after(content):
    """The bundle as the next start finds it."""
    return parse_bundle(content_bytes(content))


def slots_of(found):
    return [part.slots for part in found.header.artifacts]


def test_a_first_bundle_has_all():
    found = after(merge(None, plans(), SAME, 0, MADE))
    assert (found.header.model, found.header.facts) == ("ranker", FACTS)
    assert {(part.key, part.name) for part in found.header.plans} == set(plans())
    assert slots_of(found) == [(0,)]
    assert [part.path for part in found.header.kernels] == [KERNEL]


def test_nothing_new_is_nothing_to_write():
    assert merge(bundle(), {}, None, 0, MADE) is None
    assert merge(bundle(), {}, SAME, 0, MADE) is None
    assert merge(bundle(), plans(10_000, 20_000), SAME, 0, MADE) is None


def test_a_start_that_used_less_takes_nothing_away():
    less = Code({"inductor": ("f2",)}, b"less", {})
    assert merge(bundle(), {}, less, 0, MADE) is None


def test_a_new_plan_is_added_to_the_others():
    found = after(merge(bundle(), plans(30_000), None, 0, MADE))
    assert {part.key for part in found.header.plans} == {
        key for key, _ in plans(10_000, 20_000, 30_000)
    }
    assert slots_of(found) == [(0,)]


def test_a_plan_made_anew_takes_the_place_of_the_old_one():
    ((plan, _),) = plans(10_000).items()
    content = merge(bundle(), {plan: b"anew"}, None, 0, MADE)
    assert content.plans[plan].read() == b"anew"
    assert len(content.plans) == 2


def test_the_oldest_plans_make_room():
    many = {(sample_key(i), "a"): entry_data(i) for i in range(MAX_PLANS)}
    found = after(merge(bundle(), many, None, 0, MADE))
    assert [part.key for part in found.header.plans] == [key for key, _ in many]


def test_ranks_with_the_same_code_share_it():
    found = after(merge(bundle(), {}, SAME, 3, MADE))
    assert slots_of(found) == [(0, 3)]
    assert [part.slots for part in found.header.kernels] == [(0, 3)]
    assert found.content().artifacts[0].blob.read() == b"artifacts"


def test_a_rank_with_other_code_has_its_own():
    found = after(merge(bundle(), {}, OTHER, 1, MADE))
    assert slots_of(found) == [(0,), (1,)]
    assert {part.path: part.slots for part in found.header.kernels} == {
        KERNEL: (0,),
        "cd/other.so": (1,),
    }


def test_new_code_of_a_rank_takes_the_place_of_its_old_code():
    found = after(merge(bundle(), {}, OTHER, 0, MADE))
    assert slots_of(found) == [(0,)]
    assert found.header.artifacts[0].names == OTHER.names
    assert [part.path for part in found.header.kernels] == ["cd/other.so"]


def test_code_that_others_use_stays():
    old = bundle(artifacts=(artifacts(0, 1),), kernels={KERNEL: kernel(0, 1)})
    found = after(merge(old, {}, OTHER, 0, MADE))
    assert slots_of(found) == [(1,), (0,)]
    assert {part.path: part.slots for part in found.header.kernels}[KERNEL] == (1,)


def test_a_new_kernel_alone_is_news():
    more = Code(NAMES, b"", {KERNEL: b"library", "ef/more.so": b"more"})
    found = after(merge(bundle(), {}, more, 0, MADE))
    assert sorted(part.path for part in found.header.kernels) == [KERNEL, "ef/more.so"]
    assert found.content().artifacts[0].blob.read() == b"artifacts"


def test_a_bundle_for_another_model_is_replaced():
    found = after(merge(bundle(), plans(30_000), OTHER, 0, replace(MADE, model="retrieval")))
    assert found.header.model == "retrieval"
    assert [part.key for part in found.header.plans] == [key for key, _ in plans(30_000)]
    assert slots_of(found) == [(0,)]


def test_without_a_model_name_the_bundle_keeps_its_own():
    found = after(merge(bundle(), plans(30_000), None, 0, replace(MADE, model=None)))
    assert (found.header.model, len(found.header.plans)) == ("ranker", 3)


@pytest.mark.parametrize("name", ["torch", "device"])
def test_code_of_another_installation_is_replaced(name):
    old = bundle(facts={**FACTS, name: "other"}, artifacts=(artifacts(0, 1),))
    found = after(merge(old, {}, SAME, 0, MADE))
    assert found.header.facts == FACTS
    assert slots_of(found) == [(0,)]
    assert found.content().artifacts[0].blob.read() == SAME.artifacts
    assert len(found.header.plans) == 2


def test_kernels_of_another_processor_are_replaced():
    old = bundle(facts={**FACTS, "cpu": "other"}, kernels={KERNEL: kernel(0, 1, data=b"other's")})
    found = after(merge(old, {}, SAME, 0, MADE))
    assert found.header.facts == FACTS
    assert slots_of(found) == [(0,)]
    assert found.content().artifacts[0].blob.read() == b"artifacts"
    assert found.content().kernels[KERNEL].blob.read() == b"library"


def test_old_code_keeps_its_facts_when_a_plan_is_added():
    other = {**FACTS, "torch": "2.0"}
    found = after(merge(bundle(facts=other), plans(30_000), None, 0, MADE))
    assert (found.header.facts, slots_of(found)) == (other, [(0,)])
    without = bundle(facts=other, artifacts=(), kernels={})
    assert after(merge(without, plans(30_000), None, 0, MADE)).header.facts == FACTS
