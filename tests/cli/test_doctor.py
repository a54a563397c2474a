"""`fastplan doctor` in installations that work, that don't, and that are empty."""

import json
import sys

import pytest

from fastplan.doctor.installed import read_stack
from tests.cli.command import run
from tests.doctor.sites import PIP, Site

SYMBOL = """
try:
    raise OSError("/site/fbgemm_gpu/fbgemm_gpu_py.so: undefined symbol: _ZN3c104impl")
except OSError as error:
    raise OSError("Could not load this library: /site/fbgemm_gpu/fbgemm_gpu_py.so") from error
"""


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


def test_this_installation_is_healthy():
    ended = run("doctor", "--json")
    found = json.loads(ended.stdout)
    assert [finding for finding in found["findings"] if finding["level"] == "problem"] == []
    assert (ended.returncode, found["healthy"]) == (0, True)
    assert "planner" in [finding["subject"] for finding in found["findings"]]


def test_it_works_where_nothing_is_installed(site):
    code, found = site.findings()
    assert code == 2
    assert found["python"][0][0] == "ok"
    assert found["numpy"] == [("problem", "not installed", f"{PIP} install 'numpy>=1.26'")]
    assert found["packages"][0][:2] == (
        "problem",
        "not installed: click, jinja2, msgspec, platformdirs, rich",
    )
    assert found["torchrec"][0][0] == "note"
    assert "torch" not in found


def test_numpy_and_the_packages_of_the_command_line_are_enough(site):
    code, found = site.numpy().findings()
    assert code == 0
    assert found["core"][0][:2] == ("ok", "fastplan 0.1.0, the native core loads")
    assert [name for name, told in found.items() if told[0][0] != "ok"] == ["torchrec"]


def test_an_fbgemm_for_another_torch_is_told_with_the_way_out(site):
    site.numpy().torch("2.13.0+cu126", "12.6").fbgemm("1.7.0", SYMBOL, name="fbgemm-gpu")
    code, found = site.torchrec().findings()
    assert code == 2
    assert found["torch"] == [("ok", "2.13.0+cu126, the cu126 build", None)]
    ((level, text, fix),) = found["fbgemm"]
    assert (level, text) == (
        "problem",
        "fbgemm-gpu 1.7.0 was built for a different torch than 2.13.0+cu126 (_ZN3c104impl)",
    )
    if read_stack().driver:
        assert fix == (
            f"{PIP} uninstall -y fbgemm-gpu && {PIP} install 'fbgemm-gpu==1.8.*' "
            "--index-url INDEX  # INDEX: the URL of PyTorch's cu126 builds, from its download page"
        )
    else:
        assert f"{PIP} install 'fbgemm-gpu-cpu==1.8.*'" in fix
    assert found["torchrec"][0][:2] == ("ok", "1.8.0")


def test_a_broken_torch_does_not_stop_it(site):
    site.numpy().torch(code="raise ImportError('libtorch_cpu.so: bad ELF')")
    code, found = site.fbgemm().torchrec().findings()
    assert code == 2
    assert found["torch"] == [("problem", "ImportError: libtorch_cpu.so: bad ELF", None)]
    assert found["fbgemm"][0][:2] == ("ok", "1.8.0, the CPU build")


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_an_import_that_crashes_does_not_stop_it(site):
    crash = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()"
    code, found = site.numpy().torch().fbgemm(code=crash).torchrec().findings()
    assert code == 2
    assert found["fbgemm"][0][:2] == ("problem", "importing crashes Python (SIGABRT)")
    assert "cache" in found


def test_missing_requirements_are_one_problem(site):
    site.numpy().torch().fbgemm()
    site.torchrec(code="import pyre_extensions", requires=("tqdm", "pyre-extensions"))
    code, found = site.findings()
    assert code == 2
    assert found["torchrec"] == [
        (
            "problem",
            "needs tqdm, pyre-extensions, not installed",
            f"{PIP} install tqdm pyre-extensions",
        )
    ]


def test_the_version_of_torchrec_is_no_problem(site):
    site.numpy().torch("2.12.0+cpu").fbgemm("1.7.0").torchrec("1.7.0", requires=())
    _, found = site.findings()
    assert found["torchrec"] == [("ok", "1.7.0", None)]
    assert found["fbgemm"] == [("ok", "1.7.0, the CPU build", None)]


def test_text_has_a_line_per_finding_and_one_per_fix(site):
    ended = site.doctor(FASTPLAN_CASHE="\x1b[31m")
    lines = ended.stdout.splitlines()
    assert ended.returncode == 2
    assert any(line.startswith("problem  numpy        not installed") for line in lines)
    assert f"                      fix: {PIP} install 'numpy>=1.26'" in lines
    assert any(
        line.endswith("FASTPLAN_CASHE is not a fastplan variable: did you mean FASTPLAN_CACHE?")
        for line in lines
    )
    assert lines[-1] == "3 problems, 2 notes"  # numpy, packages, the place of the cache
    assert "\x1b" not in ended.stdout


def test_levels_are_coloured_where_colours_are_wanted(site):
    assert "\x1b[31mproblem\x1b[0m" in site.doctor(FORCE_COLOR="1").stdout
    assert "\x1b" not in site.doctor("--no-color", FORCE_COLOR="1").stdout
