"""The TorchRec of these tests is known, and a known source costs nothing but a hash."""

import os
import re

import pytest

from fastplan.torchrec.support import digest, known, support, verdict
from fastplan.torchrec.support.watch import ESTIMATES, PLANNER, STATISTICS, Watch

VERSION = digest.torchrec_version()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FASTPLAN_PROOF", raising=False)
    return tmp_path


@pytest.fixture
def unknown(monkeypatch):
    monkeypatch.setattr(verdict, "KNOWN", {})


def test_the_installed_source_is_known_under_its_newest_release():
    found = verdict.verdict(Watch())
    assert found.origin == "known"
    assert found.name.rpartition(".")[0] == VERSION.rpartition(".")[0]


def test_only_the_oldest_releases_have_a_part_that_is_not_native():
    found = {each.name: set(each.reasons) for each in known.KNOWN.values()}
    assert found.pop("1.5.0") == found.pop("1.6.1") == {ESTIMATES}
    assert not any(found.values())


def test_a_known_source_runs_no_self_check(monkeypatch):
    monkeypatch.setattr(verdict, "proven", None)
    assert verdict.verdict(Watch()).plans == 0


def test_an_unknown_source_is_proven_once_and_remembered(unknown, own_cache, monkeypatch):
    first = verdict.verdict(Watch())
    assert first.origin == "proven"
    assert first.plans >= 14
    assert set(first.reasons) - {ESTIMATES} == {STATISTICS}
    [file] = own_cache.glob("fastplan/verdicts/*.json")
    assert first.digest in file.name
    monkeypatch.setattr(verdict, "proven", None)
    again = verdict.verdict(Watch())
    assert again == first


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"reasons": [], "plans": 1}', b"\xff"])
def test_a_damaged_verdict_is_proven_again(unknown, own_cache, monkeypatch, damage):
    calls = []
    monkeypatch.setattr(
        verdict,
        "proven",
        lambda name, digest: (
            calls.append(1) or verdict.Verdict(name=name, digest=digest, origin="proven")
        ),
    )
    verdict.verdict(Watch())
    [file] = own_cache.glob("fastplan/verdicts/*.json")
    file.write_bytes(damage)
    verdict.verdict(Watch())
    assert len(calls) == 2


def test_a_verdict_that_others_can_write_is_not_used(unknown, own_cache, monkeypatch):
    monkeypatch.setattr(
        verdict,
        "proven",
        lambda name, digest: verdict.Verdict(name=name, digest=digest, origin="proven"),
    )
    folder = own_cache / "fastplan" / "verdicts"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    verdict.verdict(Watch())
    assert not list(folder.iterdir())


def test_only_the_user_can_write_to_a_verdict(unknown, own_cache, monkeypatch):
    monkeypatch.setattr(
        verdict,
        "proven",
        lambda name, digest: verdict.Verdict(name=name, digest=digest, origin="proven"),
    )
    before = os.umask(0)
    try:
        verdict.verdict(Watch())
    finally:
        os.umask(before)
    [file] = own_cache.glob("fastplan/verdicts/*.json")
    assert file.stat().st_mode & 0o777 == 0o644


def test_skip_lets_torchrec_plan_without_a_self_check(unknown, monkeypatch):
    monkeypatch.setenv("FASTPLAN_PROOF", "skip")
    monkeypatch.setattr(verdict, "proven", None)
    found = verdict.verdict(Watch())
    assert "FASTPLAN_PROOF=skip" in found.reasons[PLANNER]


def test_force_proves_a_known_source(monkeypatch):
    monkeypatch.setenv("FASTPLAN_PROOF", "force")
    assert verdict.verdict(Watch()).origin == "proven"


def test_another_value_is_reported_and_ignored(monkeypatch, caplog):
    monkeypatch.setenv("FASTPLAN_PROOF", "maybe")
    assert verdict.verdict(Watch()).origin == "known"
    assert "must be auto, skip or force, not 'maybe'" in caplog.text


def test_a_self_check_that_fails_lets_torchrec_plan(unknown, monkeypatch):
    def fail():
        raise RuntimeError("of this test")

    monkeypatch.setattr("fastplan.torchrec.support.proof.prove", fail)
    assert "RuntimeError: of this test" in verdict.verdict(Watch()).reasons[PLANNER]


def test_the_name_of_an_unknown_source_has_version_and_digest(unknown, monkeypatch):
    monkeypatch.setenv("FASTPLAN_PROOF", "skip")
    assert re.fullmatch(rf"{re.escape(VERSION)} \([0-9a-f]{{8}}\)", verdict.verdict(Watch()).name)


def test_the_name_of_a_known_source_is_a_release():
    assert support.torchrec_name() in {each.name for each in known.KNOWN.values()}
