"""What a source distribution and a wheel hold, asked of setuptools without compiling anything;
that the extra `dev` has the tools that `make` installs, and that `cuda` is a set that loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastplan.doctor.releases import DEFAULT, TORCH_OF, TORCHREC_OF

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tracked():
    """The files of the checkout, by their paths in it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare with")
    command = ["git", "ls-files"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in listing.stdout.splitlines() if (ROOT / name).exists()}


def setuptools(*arguments):
    command = [sys.executable, "setup.py", "-q", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_a_source_distribution_holds_every_file_of_the_checkout(tracked, tmp_path):
    # SOURCES.txt is the list that `sdist` packs.
    setuptools("egg_info", "--egg-base", tmp_path)
    packed = (tmp_path / "fastplan.egg-info" / "SOURCES.txt").read_text().splitlines()
    assert tracked - set(packed) == set()


def test_a_wheel_holds_every_file_of_the_package_and_nothing_else(tracked, tmp_path):
    setuptools("build_py", "--build-lib", tmp_path)
    packed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in tracked if name.startswith("fastplan/")} - packed == set()
    assert all(name.startswith("fastplan/") for name in packed)


@pytest.fixture
def extras():
    toml = pytest.importorskip("tomllib")  # of Python 3.11
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["optional-dependencies"]


def test_the_extra_dev_is_what_make_installs(extras):
    pinned = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    assert extras["dev"] == pinned


def test_the_extra_cuda_is_one_release_of_torch_fbgemm_and_torchrec(extras):
    pins = dict(line.split("==") for line in extras["cuda"])
    assert pins == {
        "torch": f"{TORCH_OF[DEFAULT]}.*",
        "fbgemm-gpu": f"{DEFAULT}.*",
        "torchrec": TORCHREC_OF[DEFAULT],
    }


def test_no_extra_leaves_a_part_of_the_set_to_pip(extras):
    """TorchRec alone brings the newest torch and FBGEMM, which can't be imported together."""
    parts = ("torch", "fbgemm", "torchrec")
    for name, lines in extras.items():
        named = [part for part in parts if any(line.startswith(part) for line in lines)]
        assert named in ([], list(parts)), name


def test_the_readmes_commands_install_the_set_of_the_tests():
    text = (ROOT / "README.md").read_text()
    files = ("torch.txt", "torchrec-deps.txt", "torchrec.txt")
    lines = [line for name in files for line in (ROOT / "requirements" / name).read_text().split()]
    pins = dict(line.split("==") for line in lines if "==" in line)
    for name in ("torch", "fbgemm-gpu-cpu", "torchmetrics", "torchrec"):
        assert f" {name}=={pins[name]}" in text
