"""The rest of what doctor looks at."""

import os
import re
import sys
from pathlib import Path

import pytest

import fastplan
from fastplan.doctor import checks
from fastplan.doctor.checks import (
    VARIABLES,
    check_cache,
    check_core,
    check_extras,
    check_gpus,
    check_numpy,
    check_python,
    check_variables,
)
from fastplan.doctor.installed import Package, Stack
from fastplan.doctor.probe import Outcome

CPU = Package("torch", "2.13.0+cpu", "cpu")
CUDA = Package("torch", "2.13.0", "cu130")


@pytest.mark.parametrize(
    ("version", "level"),
    [((3, 9, 18), "problem"), ((3, 10, 0), "ok"), ((3, 11, 7), "ok"), ((4, 0, 0), "ok")],
)
def test_python_must_be_new_enough(version, level):
    assert check_python(version).level == level


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Outcome(version="1.26.4"), "ok"),
        (Outcome(version="2.4.6"), "ok"),
        (Outcome(version="2.5.0rc1"), "ok"),
        (Outcome(version="1.25.2"), "problem"),
        (Outcome(errors=("ModuleNotFoundError: numpy",), missing="numpy"), "problem"),
        (Outcome(errors=("ImportError: broken",)), "problem"),
        (None, "problem"),
    ],
)
def test_numpy_must_be_there_and_new_enough(outcome, level):
    found = check_numpy(outcome)
    assert found.level == level
    assert (found.fix is None) == (level == "ok")


def test_the_native_core_loads_or_the_way_out_is_told(monkeypatch, tmp_path):
    assert check_core(Outcome()).level == "ok"
    broken = check_core(Outcome(errors=("ImportError: GLIBC",)))
    assert (broken.level, "does not load: ImportError: GLIBC" in broken.text) == ("problem", True)
    monkeypatch.setattr(checks, "module_folder", lambda _: tmp_path)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "_native.pyi").write_text("")
    gone = Outcome(errors=("x",), missing="fastplan.engine._native")
    assert check_core(gone).text == "the native core is not built"
    (tmp_path / "engine" / "_native.cpython-399-x.so").write_text("")
    found = check_core(gone)
    assert "only for another Python: _native.cpython-399-x.so" in found.text
    assert found.fix.endswith("pip install --force-reinstall --no-deps fastplan")
    (tmp_path.parent / "setup.py").write_text("")
    assert check_core(gone).fix.endswith(f"--no-deps --editable {tmp_path.parent}")


@pytest.mark.parametrize(
    ("torch", "driver", "usable", "level", "told"),
    [
        (None, (), None, "ok", "none, and planning needs none"),
        (CPU, (), (), "ok", "none, and"),
        (None, ("A",), None, "ok", "1 x A"),
        (CUDA, ("A", "A", "B"), ("A", "A", "B"), "ok", "2 x A, 1 x B"),
        (CPU, ("A",), (), "note", "1 x A, but torch is a CPU build"),
        (CUDA, ("A",), (), "note", "1 x A, but torch can't use them"),
    ],
)
def test_gpus_are_counted(torch, driver, usable, level, told):
    outcome = None if usable is None else Outcome(gpus=usable)
    found = check_gpus(Stack(torch, (), None, driver), outcome)
    assert found.level == level
    assert found.text.startswith(told)


def test_extras_that_are_missing_are_fine(monkeypatch):
    monkeypatch.setattr(checks, "version_of", {"PyYAML": "6.0"}.get)
    found = check_extras()
    assert found.level == "ok"
    assert found.text.startswith("PyYAML 6.0; not installed: fsspec (caches at URLs), ")


def test_a_cache_that_can_be_written_to_is_fine(tmp_path):
    assert check_cache({"FASTPLAN_CACHE": str(tmp_path)}).text == str(tmp_path)
    found = check_cache({"FASTPLAN_CACHE": f"file://{tmp_path}/new/plans"})
    assert found.level == "ok"
    assert found.text == f"{tmp_path}/new/plans, created when the first plan is stored"
    assert list(tmp_path.iterdir()) == []
    assert check_cache({"FASTPLAN_CACHE": "memory:"}).level == "ok"
    assert "fastplan" in check_cache({}).text


def test_a_cache_that_cannot_be_written_to_is_a_problem(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        found = check_cache({"FASTPLAN_CACHE": str(tmp_path / place)})
        assert found.level == "problem"
        assert "can't be written to" in found.text
        assert found.fix == "export FASTPLAN_CACHE=DIR"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may everything")
def test_a_read_only_cache_is_a_problem(tmp_path):
    tmp_path.chmod(0o500)
    assert check_cache({"FASTPLAN_CACHE": str(tmp_path)}).level == "problem"


def test_a_cache_at_a_url_is_asked(monkeypatch):
    pytest.importorskip("fsspec")
    assert check_cache({"FASTPLAN_CACHE": "memory://plans"}).level == "ok"
    unknown = check_cache({"FASTPLAN_CACHE": "nowhere://plans"})
    assert (unknown.level, unknown.fix) == ("problem", None)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    found = check_cache({"FASTPLAN_CACHE": "gs://bucket/plans"})
    assert found.level == "problem"
    assert found.fix.endswith("pip install gcsfs")


def test_a_cache_on_another_host_is_a_problem():
    assert check_cache({"FASTPLAN_CACHE": "file://host/plans"}).level == "problem"


def test_variables_that_mean_nothing_are_noted():
    names = dict.fromkeys((*VARIABLES, "FASTPLAN_CACH", "FASTPLAN_ZZZZ", "HOME", "XFASTPLAN_A"), "")
    found = list(check_variables(names))
    assert [(finding.level, finding.text) for finding in found] == [
        ("note", "FASTPLAN_CACH is not a fastplan variable: did you mean FASTPLAN_CACHE?"),
        ("note", "FASTPLAN_ZZZZ is not a fastplan variable"),
    ]
    assert found[0].fix == "unset FASTPLAN_CACH"


def test_every_variable_that_the_code_reads_is_known():
    folder = Path(fastplan.__file__).parent
    sources = [*folder.rglob("*.py"), folder.parent / "setup.py"]
    read = {
        name
        for source in sources
        if source.exists()
        for name in re.findall(r"""["'](FASTPLAN_[A-Z_]+)["']""", source.read_text())
    }
    assert read <= set(VARIABLES)
