"""A start takes what it can from a bundle, and nothing that is wrong with one stops it."""

import logging
import multiprocessing
import os
import time

import pytest

from fastplan.bundle import compiled, starting
from fastplan.bundle.bundle import LoadedCode, open_bundle
from fastplan.bundle.compiled import Code
from fastplan.bundle.format import Blob
from fastplan.bundle.starting import RankInfo, rank_from_environment, start
from fastplan.cache.entry import BadEntry
from tests.bundle.samples import FACTS, KERNEL, NAMES, data, plans
from tests.cache.planned import keep

FIRST = Code(NAMES, b"artifacts", {KERNEL: b"library"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "start.bundle"


@pytest.fixture
def there(path):
    path.parent.mkdir()
    path.write_bytes(data())
    path.chmod(0o644)
    return path


@pytest.fixture
def torch(monkeypatch):
    """A torch that has compiled FIRST, on an installation as FACTS say."""
    given = {"compiled": FIRST, "loaded": []}

    def load(data):
        given["loaded"].append(data)
        return 3

    monkeypatch.setattr(compiled, "device_name", lambda slot: "cpu")
    monkeypatch.setattr(compiled, "load", load)
    monkeypatch.setattr(compiled, "place_kernel", lambda path, data: None)
    monkeypatch.setattr(compiled, "collect_compiled_code", lambda since: given["compiled"])
    for place in ("bundle", "starting"):
        monkeypatch.setattr(
            f"fastplan.bundle.{place}.environment_facts", lambda device: dict(FACTS)
        )
    return given


def test_a_first_start_has_nothing_and_leaves_all(path, torch, caplog):
    begun = start(path, trust=True, model="ranker")
    assert (begun.plans, begun.artifacts, begun.kernels, begun.notes) == (0, 0, 0, [])
    key = keep(begun.cache.store)
    assert begun.save()
    found = open_bundle(path)
    assert [part.key for part in found.header.plans] == [key]
    assert found.header.artifacts[0].names == NAMES
    assert (found.header.model, found.find_damage()) == ("ranker", [])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_second_start_has_all_and_leaves_nothing(there, torch):
    begun = start(there, trust=True, model="ranker")
    assert (begun.plans, begun.artifacts, begun.kernels, begun.notes) == (2, 3, 1, [])
    assert torch["loaded"] == [b"artifacts"]
    ((key, name), entry) = next(iter(plans(10_000).items()))
    assert begun.cache.store.read(key) == [(name, entry)]
    before = there.stat().st_mtime_ns, there.stat().st_ino
    assert not begun.save()
    assert (there.stat().st_mtime_ns, there.stat().st_ino) == before


def test_without_trust_there_are_plans_only(there, torch):
    begun = start(there)
    assert (begun.plans, begun.artifacts, begun.notes) == (2, 0, [])
    assert torch["loaded"] == []
    keep(begun.cache.store, rows=30_000)
    assert begun.save()
    found = open_bundle(there)
    assert len(found.header.plans) == 3
    assert found.content().artifacts[0].blob.read() == b"artifacts"


def test_the_key_of_the_environment_decides_which_plans_are_used(there, torch, monkeypatch):
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "k" * 32)
    cache = start(there).cache
    for entry in plans(10_000).values():
        with pytest.raises(BadEntry, match="not signed"):
            cache.decode(entry)
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "short")
    with pytest.raises(ValueError, match="FASTPLAN_CACHE_KEY: "):
        start(there)


def test_trust_is_yes_or_no(path):
    with pytest.raises(TypeError, match="`trust` must be True or False"):
        start(path, trust="yes")


@pytest.mark.parametrize("damage", [b"", b"text", data()[:-1], data()[:40], data() + b"x"])
def test_a_damaged_bundle_costs_a_warning_and_is_replaced(there, torch, caplog, damage):
    there.write_bytes(damage)
    begun = start(there, trust=True)
    assert (begun.plans, begun.artifacts) == (0, 0)
    assert "can't be used" in begun.notes[0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert begun.save()
    assert open_bundle(there).find_damage() == []


@pytest.mark.parametrize("which", ["plans", "artifacts", "kernels"])
def test_damage_behind_the_header_costs_just_that_part(there, torch, which):
    whole = bytearray(data())
    span = getattr(open_bundle(there).header, which)[0].span
    whole[span.at] ^= 1
    there.write_bytes(bytes(whole))
    begun = start(there, trust=True)
    assert begun.plans == (1 if which == "plans" else 2)
    assert begun.artifacts == (3 if which == "plans" else 0)
    assert len(begun.notes) == 1
    keep(begun.cache.store, rows=30_000)
    assert begun.save()
    found = open_bundle(there)
    assert found.find_damage() == []
    assert len(found.header.plans) == begun.plans + 1
    assert found.header.artifacts[0].names == NAMES


def test_plans_of_an_older_version_cost_a_warning_and_are_replaced(there, torch):
    """The bundle is read, its code is used, and its plans are planned again."""
    old = {plan: entry[:13] + b"\x01\x00" + entry[15:] for plan, entry in plans().items()}
    there.write_bytes(data(plans={plan: Blob.of(entry) for plan, entry in old.items()}))
    begun = start(there, trust=True)
    assert (begun.plans, begun.artifacts) == (0, 3)
    assert "older schema 1, this version reads 2: an older fastplan stored it" in begun.notes[0]
    keep(begun.cache.store, rows=30_000)
    assert begun.save()
    assert open_bundle(there).find_damage() == []
    assert len(open_bundle(there).header.plans) == 1


def test_a_bundle_for_another_model_is_not_used_and_replaced(there, torch):
    begun = start(there, trust=True, model="retrieval")
    assert (begun.plans, begun.artifacts) == (0, 0)
    assert begun.notes == [f"{there} is for model ranker, this is retrieval"]
    assert begun.save()
    found = open_bundle(there).header
    assert (found.model, found.plans) == ("retrieval", ())


def test_code_of_other_versions_is_not_used_and_the_difference_is_named(there, torch):
    there.write_bytes(data(facts={**FACTS, "torch": "2.0"}))
    begun = start(there, trust=True)
    assert (begun.plans, begun.artifacts) == (2, 0)
    assert begun.notes[0].endswith("torch: made with 2.0, here is 2.13.0+cpu")
    assert begun.save()
    assert open_bundle(there).header.facts["torch"] == "2.13.0+cpu"


def test_a_plan_that_was_not_there_is_explained(there, torch):
    begun = start(there, trust=True)
    keep(begun.cache.store, rows=20_001)
    assert begun.save()
    (note,) = begun.notes
    assert note.startswith(f"no plan of {there} is for this model and cluster: tables[sparse.a].")


def test_what_is_compiled_later_is_saved_later(path, torch):
    begun = start(path, trust=True)
    assert begun.save()
    assert not begun.save()
    later = {**NAMES, "inductor": ("f1", "f2", "f3")}
    torch["compiled"] = Code(later, b"more artifacts", FIRST.kernels)
    keep(begun.cache.store)
    assert begun.save()
    (part,) = open_bundle(path).header.artifacts
    assert part.names == later
    assert begun.notes == []


def test_whatever_torch_raises_is_a_warning(there, torch, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("inductor has moved")

    monkeypatch.setattr(compiled, "load", fail)
    begun = start(there, trust=True)
    assert (begun.plans, begun.artifacts) == (2, 0)
    assert "inductor has moved" in begun.notes[0]
    monkeypatch.setattr(compiled, "collect_compiled_code", fail)
    assert not begun.save()
    assert "RuntimeError: inductor has moved" in begun.notes[1]


def test_kernels_for_another_processor_are_a_note(there, torch, monkeypatch):
    monkeypatch.setattr(
        "fastplan.bundle.bundle.Bundle.load_artifacts",
        lambda self, **_: LoadedCode(3, 0, ("cpu: made with a, here is b",)),
    )
    begun = start(there, trust=True)
    assert begun.artifacts == 3
    assert "compiled again: cpu: made with a, here is b" in begun.notes[0]


def test_a_folder_in_its_place_is_a_warning(path, torch):
    path.mkdir(parents=True)
    begun = start(path, trust=True)
    assert "not a file" in begun.notes[0]
    assert not begun.save()
    assert "can't be written" in begun.notes[1]
    assert os.listdir(path.parent) == [f".{path.name}.lock", path.name]


def test_nothing_planned_and_nothing_compiled_writes_nothing(path, torch):
    torch["compiled"] = None
    assert not start(path, trust=True).save()
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("variables", "place", "saves"),
    [
        ({}, RankInfo(0, 0), True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, RankInfo(0, 0), True),
        ({"RANK": "3", "LOCAL_RANK": "3"}, RankInfo(3, 3), True),
        ({"RANK": "11", "LOCAL_RANK": "3"}, RankInfo(11, 3), False),
        ({"RANK": "0"}, RankInfo(0, 0), True),
        ({"RANK": "5"}, RankInfo(5, 0), False),
        ({"LOCAL_RANK": "2"}, RankInfo(2, 2), True),
        ({"RANK": "x", "LOCAL_RANK": "-1"}, RankInfo(0, 0), True),
    ],
)
def test_the_launcher_tells_which_rank_this_is(monkeypatch, variables, place, saves):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_from_environment() == place
    assert place.saves == saves


def test_ranks_of_other_hosts_do_not_write(path, torch, monkeypatch):
    monkeypatch.setenv("RANK", "8")
    monkeypatch.setenv("LOCAL_RANK", "0")
    begun = start(path, trust=True)
    keep(begun.cache.store)
    assert not begun.save()
    assert not path.exists()


def test_one_rank_of_a_host_warns(there, torch, monkeypatch, caplog):
    there.write_bytes(b"damaged")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert start(there).notes
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def save_slot(path, slot, begin):
    """A rank whose code is its own, as on GPUs."""
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(slot)
    code = Code({"inductor": (f"f{slot}",)}, b"code %d" % slot, {f"k/{slot}.so": b"library"})
    compiled.collect_compiled_code = lambda since: code
    compiled.device_name = lambda slot: "cpu"
    compiled.load = lambda data: 0
    compiled.place_kernel = lambda path, data: None
    begun = start(path, trust=True)
    if slot == 0:
        keep(begun.cache.store)
    begin.wait()
    assert begun.save(), begun.notes


def test_ranks_that_save_at_once_lose_nothing(path):
    processes = multiprocessing.get_context("fork")
    begin = processes.Barrier(8)
    ranks = [processes.Process(target=save_slot, args=(path, i, begin)) for i in range(8)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0] * 8
    found = open_bundle(path)
    assert sorted(part.slots for part in found.header.artifacts) == [(i,) for i in range(8)]
    assert sorted(part.path for part in found.header.kernels) == [f"k/{i}.so" for i in range(8)]
    assert (len(found.header.plans), found.find_damage()) == (1, [])
    assert sorted(os.listdir(path.parent)) == [f".{path.name}.lock", path.name]


def test_a_writer_that_hangs_costs_a_warning(there, torch, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(starting, "_LOCK_TIMEOUT", 0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with open(there.with_name(f".{there.name}.lock"), "ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        begun = start(there, trust=True)
        keep(begun.cache.store, rows=30_000)
        assert not begun.save()
    assert "another process has been writing it" in begun.notes[-1]
    assert begun.save()


def test_where_files_cannot_be_locked_they_are_written_all_the_same(path, torch, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(38, "not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    begun = start(path, trust=True)
    keep(begun.cache.store)
    assert begun.save()


OTHERS = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
WRITERS = [
    pytest.param(lambda path: path.chmod(0o664), "mode 664", id="its group's"),
    pytest.param(lambda path: path.chmod(0o646), "mode 646", id="everybody's"),
    pytest.param(lambda path: os.chown(path, 1234, -1), "user 1234", marks=OTHERS, id="another's"),
]


@pytest.mark.parametrize(("change", "told"), WRITERS)
def test_code_that_others_may_have_written_is_never_loaded(there, torch, change, told):
    change(there)
    begun = start(there, trust=True, model="ranker")
    assert (begun.plans, begun.artifacts, torch["loaded"]) == (2, 0, [])
    assert len(begun.notes) == 1
    assert told in begun.notes[0]


@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize(("change", "told"), WRITERS)
def test_nor_is_it_written_to_a_file_of_ones_own(there, torch, change, told, trust):
    torch["compiled"] = Code({"inductor": ("own",)}, b"own code", {}) if trust else None
    change(there)
    begun = start(there, trust=trust)
    keep(begun.cache.store, rows=30_000)
    assert begun.save()
    found = open_bundle(there)
    assert len(found.header.plans) == 3
    assert [part.names for part in found.header.artifacts] == [{"inductor": ("own",)}] * trust
    assert found.header.kernels == ()


def test_a_bundle_that_others_could_write_to_is_closed_to_them_and_trusted_again(there, torch):
    there.chmod(0o664)
    begun = start(there, trust=True)
    assert begun.save()
    assert there.stat().st_mode & 0o777 == 0o644
    assert start(there, trust=True).artifacts == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_is_trusted_by_all(there, torch, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert start(there, trust=True).artifacts == 3


def test_a_link_in_place_of_the_lock_is_not_followed(path, torch, tmp_path):
    path.parent.mkdir()
    elsewhere = tmp_path / "elsewhere"
    path.with_name(f".{path.name}.lock").symlink_to(elsewhere)
    begun = start(path, trust=True)
    assert not begun.save()
    assert "can't be written" in begun.notes[0]
    assert not elsewhere.exists()


def test_a_pipe_in_place_of_the_bundle_or_its_lock_is_not_waited_for(path, torch):
    path.parent.mkdir()
    os.mkfifo(path)
    begun = start(path, trust=True)
    assert "not a file" in begun.notes[0]
    path.unlink()
    os.mkfifo(path.with_name(f".{path.name}.lock"))
    begun = start(path, trust=True)
    begun.save()


def test_the_name_of_a_bundle_plays_no_tricks_in_a_log(tmp_path, torch, caplog):
    caplog.set_level(logging.INFO, logger="fastplan")
    start(tmp_path / "plans\x1b[2J\u202e")
    assert "\\x1b[2J\\u202e" in caplog.text
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text
