"""What a bundle gives, and what it refuses to give."""

import os

import pytest

from fastplan.bundle import compiled
from fastplan.bundle.bundle import BundleMismatch, UntrustedCode, open_bundle, parse_bundle
from fastplan.bundle.format import Blob, BundleError
from fastplan.bundle.gathering import stored_plans
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import DirectoryStore, MemoryStore
from tests.bundle.samples import FACTS, KERNEL, artifacts, bundle, content, data, plans
from tests.cache.samples import data as entry_data
from tests.cache.samples import key as sample_key


@pytest.fixture
def torch(monkeypatch):
    """A torch that notes what it is given, on an installation as FACTS say."""
    given = {"artifacts": [], "kernels": {}}

    def load(data):
        given["artifacts"].append(data)
        return 3

    monkeypatch.setattr(compiled, "device_name", lambda slot: "cpu")
    monkeypatch.setattr(compiled, "load", load)
    monkeypatch.setattr(compiled, "place_kernel", given["kernels"].__setitem__)
    monkeypatch.setattr("fastplan.bundle.bundle.environment_facts", lambda device: dict(FACTS))
    return given


def flipped(whole, span):
    bad = bytearray(whole)
    bad[span.at + span.size // 2] ^= 1
    return parse_bundle(bytes(bad))


def test_plans_are_those_of_the_cache():
    found = {(plan.part.key, plan.part.name): plan.data for plan in bundle().plans()}
    assert found == plans(10_000, 20_000)
    assert [plan.entry.key for plan in bundle().plans()] == [key for key, _ in found]


def test_plans_fill_a_cache(tmp_path):
    assert bundle().copy_to_cache(tmp_path / "plans") == 2
    assert stored_plans(DirectoryStore(tmp_path / "plans")) == plans(10_000, 20_000)
    store = MemoryStore()
    assert bundle().copy_to_cache(Cache(store)) == 2
    assert stored_plans(store) == plans(10_000, 20_000)


def test_without_a_cache_there_is_nothing_to_fill():
    with pytest.raises(ValueError, match="no cache"):
        bundle().copy_to_cache(False)


@pytest.mark.parametrize(
    ("plan", "stored", "why"),
    [
        ((sample_key(1), "a"), b"no entry", "not an entry"),
        ((sample_key(2), "a"), entry_data(1), "it belongs to the key"),
    ],
)
def test_a_part_that_is_no_such_plan_is_bad(plan, stored, why):
    made = bundle(plans={plan: Blob.of(stored)})
    with pytest.raises(BundleError, match=why):
        made.plans()
    with pytest.raises(BundleError, match=why):
        made.copy_to_cache(Cache(MemoryStore()))
    assert any(why in problem for problem in made.find_damage())


def test_a_damaged_plan_is_named():
    whole = data()
    part = parse_bundle(whole).header.plans[1]
    damaged = flipped(whole, part.span)
    with pytest.raises(BundleError, match=f"plan {part.key}: the checksum does not match"):
        damaged.plans()
    assert damaged.plan(damaged.header.plans[0])
    assert len(damaged.find_damage()) == 1


def test_damaged_code_leaves_plans_alone(torch):
    whole = data()
    for part in (*parse_bundle(whole).header.artifacts, *parse_bundle(whole).header.kernels):
        damaged = flipped(whole, part.span)
        assert len(damaged.plans()) == 2
        with pytest.raises(BundleError, match="the checksum does not match"):
            damaged.load_artifacts(trust=True)
        assert torch == {"artifacts": [], "kernels": {}}


def test_code_is_loaded_when_it_is_trusted(torch):
    loaded = bundle().load_artifacts(trust=True)
    assert (loaded.artifacts, loaded.kernels, loaded.skipped) == (3, 1, ())
    assert torch == {"artifacts": [b"artifacts"], "kernels": {KERNEL: b"library"}}


@pytest.mark.parametrize("trust", [False, None, 1, "yes"])
def test_code_is_not_loaded_without_trust(torch, trust):
    with pytest.raises(UntrustedCode, match="`trust=True`"):
        bundle().load_artifacts(trust=trust)
    with pytest.raises(UntrustedCode):
        bundle().load_artifacts()
    assert torch == {"artifacts": [], "kernels": {}}


@pytest.mark.parametrize("name", ["torch", "triton", "cuda", "python", "device", "machine"])
def test_code_for_another_installation_is_refused(torch, name):
    made = bundle(facts={**FACTS, name: "other"})
    with pytest.raises(BundleMismatch) as caught:
        made.load_artifacts(trust=True)
    expected = f"{name}: made with other, here is {FACTS.get(name, 'none')}"
    assert caught.value.differences == (expected,)
    assert torch == {"artifacts": [], "kernels": {}}


def test_versions_are_compared_exactly(torch):
    with pytest.raises(BundleMismatch, match=r"made with 2\.13\.0, here is 2\.13\.0\+cpu"):
        bundle(facts={**FACTS, "torch": "2.13.0"}).load_artifacts(trust=True)


def test_code_for_another_model_is_refused(torch):
    with pytest.raises(BundleMismatch, match="model: made for ranker, this is retrieval"):
        bundle().load_artifacts(trust=True, model="retrieval")
    bundle().load_artifacts(trust=True, model="ranker")
    bundle(model=None).load_artifacts(trust=True, model="ranker")


@pytest.mark.parametrize("name", ["cpu", "libc"])
def test_kernels_for_another_processor_are_left_out(torch, name):
    loaded = bundle(facts={**FACTS, name: "other"}).load_artifacts(trust=True)
    assert (loaded.artifacts, loaded.kernels) == (3, 0)
    assert loaded.skipped == (f"{name}: made with other, here is {FACTS[name]}",)
    assert torch == {"artifacts": [b"artifacts"], "kernels": {}}


def test_each_local_rank_gets_its_own_code(torch):
    made = bundle(artifacts=(artifacts(0, 2, data=b"even"), artifacts(1, data=b"odd")))
    for slot, expected in ((0, b"even"), (1, b"odd"), (2, b"even"), (7, b"even")):
        torch["artifacts"].clear()
        made.load_artifacts(trust=True, slot=slot)
        assert torch["artifacts"] == [expected]


def test_artifacts_that_torch_cannot_read_are_bad(torch, monkeypatch):
    def load(data):
        raise ValueError("torch can't read its compile artifacts")

    monkeypatch.setattr(compiled, "load", load)
    with pytest.raises(BundleError, match="can't read"):
        bundle().load_artifacts(trust=True)


def test_a_bundle_without_code_gives_torch_nothing(torch):
    for trust in (True, False):
        loaded = bundle(artifacts=(), kernels={}).load_artifacts(trust=trust)
        assert (loaded.artifacts, loaded.kernels) == (0, 0)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "start.bundle"
    path.write_bytes(b"text")
    with pytest.raises(BundleError, match="not a start bundle") as caught:
        open_bundle(path)
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    path.write_bytes(data())
    opened = open_bundle(path)
    path.unlink()
    with pytest.raises(BundleError) as caught:
        opened.plans()
    assert str(caught.value) == f"{path}: {caught.value.reason}"


def test_a_file_that_is_replaced_meanwhile_is_found_out(tmp_path):
    path = tmp_path / "start.bundle"
    path.write_bytes(data())
    opened = open_bundle(path)
    path.write_bytes(data(model="a longer name"))
    with pytest.raises(BundleError):
        opened.plans()
    path.unlink()
    with pytest.raises(BundleError, match="can't be read"):
        opened.plans()


def test_only_a_file_is_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_bundle(tmp_path / "missing")
    with pytest.raises(BundleError, match="not a file"):
        open_bundle(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="not a file"):
        open_bundle(tmp_path / "pipe")


def test_its_content_can_be_written_again():
    first, again = content(), bundle().content()
    assert again.plans.keys() == first.plans.keys()
    assert [blob.read() for blob in again.plans.values()] == [
        blob.read() for blob in first.plans.values()
    ]
    assert again.artifacts[0].blob.read() == b"artifacts"
    assert again.kernels[KERNEL].blob.read() == b"library"
