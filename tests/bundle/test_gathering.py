"""Plans are found in files, caches and bundles."""

from dataclasses import replace

import pytest

from fastplan.bundle.gathering import NoPlansFound, collect_plans
from fastplan.cache.entry import check_signature, decode, parse_key
from fastplan.cache.inventory import NoSuchEntry
from fastplan.cache.stores import DirectoryStore
from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import write_plan
from tests.bundle.samples import data, plans
from tests.cache.planned import keep
from tests.plans.samples import SEEDS, random_plan


def keys(found):
    return {key for key, _ in found}


def test_a_cache_gives_all_its_plans(tmp_path):
    store = DirectoryStore(tmp_path)
    made = {keep(store), keep(store, rows=20_000)}
    assert keys(collect_plans([str(tmp_path)])) == made


def test_keys_choose_from_a_cache(tmp_path):
    store = DirectoryStore(tmp_path)
    key = keep(store)
    keep(store, rows=20_000)
    assert keys(collect_plans([str(tmp_path)], [key[:12]])) == {key}
    with pytest.raises(NoSuchEntry):
        collect_plans([str(tmp_path)], ["ffffffffffff"])


def test_plans_for_several_capacities_are_all_taken(tmp_path):
    store = DirectoryStore(tmp_path)
    assert keep(store) == keep(store, hbm=2 << 30)
    assert len(collect_plans([str(tmp_path)])) == 2


def test_another_bundle_gives_its_plans(tmp_path):
    (tmp_path / "other.bundle").write_bytes(data())
    found = collect_plans([str(tmp_path / "other.bundle")])
    assert {plan: blob.read() for plan, blob in found.items()} == plans(10_000, 20_000)


def test_a_plan_file_becomes_an_entry(tmp_path):
    plan = random_plan(SEEDS[0])
    write_plan(plan, tmp_path / "plan.json")
    (((key, _), blob),) = collect_plans([str(tmp_path / "plan.json")]).items()
    entry = decode(blob.read())
    assert key == entry.key == plan.fingerprint
    assert entry.rating == plan.basis.record.rating
    assert entry.provenance["ranks"] == plan.ranks


def test_a_plan_file_becomes_a_signed_entry(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "k" * 32)
    write_plan(random_plan(SEEDS[0]), tmp_path / "plan.json")
    (blob,) = collect_plans([str(tmp_path / "plan.json")]).values()
    check_signature(decode(blob.read()), parse_key("k" * 32))


def test_a_certificate_goes_with_its_plan_and_a_noted_bound_does_not(tmp_path):
    made = random_plan(SEEDS[0])
    proven = replace(made.basis, certificate=b"proof")
    noted = {**made.notes, "lower_bound": "0.1"}
    write_plan(replace(made, notes=noted, basis=proven), tmp_path / "plan.json")
    ((_, blob),) = collect_plans([str(tmp_path / "plan.json")]).items()
    entry = decode(blob.read())
    assert entry.certificate == b"proof"
    assert "lower_bound" not in entry.provenance


def test_a_plan_without_a_basis_is_refused_with_the_way_out(tmp_path):
    write_plan(replace(random_plan(SEEDS[0]), basis=None), tmp_path / "plan.json")
    with pytest.raises(NoPlansFound, match=r"plan\.json: .*planner=planner"):
        collect_plans([str(tmp_path / "plan.json")])


def test_places_without_plans_are_told(tmp_path):
    with pytest.raises(NoPlansFound, match="empty: no such file or directory"):
        collect_plans([str(tmp_path / "empty")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoPlansFound, match="no plans"):
        collect_plans([str(tmp_path / "empty")])
    (tmp_path / "text").write_text("text")
    with pytest.raises(PlanFileError):
        collect_plans([str(tmp_path / "text")])


def test_a_damaged_entry_is_not_passed_on(tmp_path):
    store = DirectoryStore(tmp_path)
    key = keep(store)
    ((name, whole),) = store.read(key)
    store.write(key, name, whole[:-1])
    with pytest.raises(NoPlansFound, match=f"entry {key} is bad"):
        collect_plans([str(tmp_path)])
