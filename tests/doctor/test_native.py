"""doctor shows the verdict on the installed TorchRec, part by part."""

import pytest

from fastplan.doctor import NOTE, OK, PROBLEM, native


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FASTPLAN_PROOF", raising=False)


def test_a_known_source_is_named():
    [finding] = native.check_native()
    assert finding.level == OK
    assert finding.text.endswith("is known, and every part is native")


def test_prove_compares_plans_and_shows_progress(monkeypatch):
    monkeypatch.setattr(native, "DRAWS", 1)
    seen = []
    [finding] = native.check_native(prove=True, progress=lambda *at: seen.append(at))
    assert finding.level == OK
    assert "15 plans were compared" in finding.text
    assert [done for done, _, _ in seen] == list(range(15))
    assert {total for _, total, _ in seen} == {15}


def test_an_unknown_source_is_proven(monkeypatch):
    monkeypatch.setenv("FASTPLAN_PROOF", "force")
    summary, statistics = native.check_native()
    assert summary.level == statistics.level == NOTE
    assert "is not known, and was proven by a self-check; 15 plans were compared" in summary.text
    assert statistics.text.startswith("statistics: TorchRec's own code, because")


def test_a_report_that_fails_is_a_problem(monkeypatch):
    monkeypatch.setattr(native, "_CODE", "raise RuntimeError('of this test')")
    [finding] = native.check_native()
    assert finding.level == PROBLEM
    assert "RuntimeError: of this test" in finding.text
