"""Environment variables that would stop fastplan, or have no effect."""

import os

import pytest

from fastplan.doctor import checks
from fastplan.doctor.checks import check_values, examine


def findings(environment, planner_works=True):
    return [
        (found.level, found.text, found.fix) for found in check_values(environment, planner_works)
    ]


@pytest.mark.parametrize("value", ["", "0"])
def test_what_is_off_is_fine(value):
    names = ("FASTPLAN_PATCH", "FASTPLAN_SHADOW", "FASTPLAN_ETT", "FASTPLAN_ETT_LAUNCHED")
    assert findings(dict.fromkeys(names, value), planner_works=False) == []


def test_a_file_of_skus_must_be_there_and_right(monkeypatch, tmp_path):
    path = tmp_path / "skus.json"
    monkeypatch.setenv("FASTPLAN_SKUS", str(path))
    [(level, text, fix)] = findings(os.environ)
    assert (level, fix) == ("problem", "unset FASTPLAN_SKUS")
    assert text.startswith("FASTPLAN_SKUS: ")
    assert str(path) in text
    path.write_text('{"name": "x", "like": "h100"}')
    assert findings(os.environ) == []
    path.write_text('{"name": "x", "like": "h1000"}')
    assert findings(os.environ)[0][0] == "problem"


def test_a_shadow_must_be_known():
    assert findings({"FASTPLAN_SHADOW": "1"}) == findings({"FASTPLAN_SHADOW": "torchrec"}) == []
    [(level, text, fix)] = findings({"FASTPLAN_SHADOW": "yes"})
    assert (level, fix) == ("problem", "export FASTPLAN_SHADOW=1")
    assert text == "FASTPLAN_SHADOW must be 1, torchrec or 0, not 'yes': nothing is compared"


def test_a_patch_must_be_known_and_have_a_torchrec():
    [(level, text, fix)] = findings({"FASTPLAN_PATCH": "yes"})
    assert (level, fix) == ("problem", "export FASTPLAN_PATCH=1")
    assert text == "FASTPLAN_PATCH must be 1, init or 0, not 'yes': `import fastplan` fails"
    for value in ("1", "init"):
        assert findings({"FASTPLAN_PATCH": value}) == []
        [(level, text, fix)] = findings({"FASTPLAN_PATCH": value}, planner_works=False)
        assert (level, fix) == ("problem", "unset FASTPLAN_PATCH")
        assert f"FASTPLAN_PATCH={value} needs TorchRec" in text
        assert text.endswith("it has no effect")


def test_records_need_a_directory(tmp_path):
    assert findings({"FASTPLAN_ETT": str(tmp_path)}) == []
    assert findings({"FASTPLAN_ETT": str(tmp_path / "new" / "job")}) == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        [(level, text, fix)] = findings({"FASTPLAN_ETT": str(tmp_path / place)})
        assert (level, fix) == ("problem", "export FASTPLAN_ETT=DIR")
        assert f"{place} records nothing: {tmp_path / 'file'}: Not a directory" in text


def test_a_launch_that_is_no_time_is_noted():
    assert findings({"FASTPLAN_ETT_LAUNCHED": "1700000000.5"}) == []
    [(level, text, _)] = findings({"FASTPLAN_ETT_LAUNCHED": "yesterday"})
    assert (level, "not 'yesterday': it is ignored" in text) == ("note", True)


def test_doctor_looks_at_them(monkeypatch):
    monkeypatch.setattr(checks, "try_imports", lambda *modules: {})
    monkeypatch.setenv("FASTPLAN_PATCH", "1")
    assert any("FASTPLAN_PATCH=1 needs TorchRec" in found.text for found in examine())


def test_a_cache_key_that_is_too_short_is_a_problem_and_is_not_shown():
    assert findings({"FASTPLAN_CACHE_KEY": 16 * "k"}) == []
    [(level, text, fix)] = findings({"FASTPLAN_CACHE_KEY": "hush"})
    assert (level, fix) == ("problem", "export FASTPLAN_CACHE_KEY=$(openssl rand -hex 16)")
    assert "must have at least 16 bytes, not 4" in text
    assert "hush" not in text
