"""What a source distribution and a wheel hold, asked of setuptools without compiling anything;
and that the extra `dev` has the tools that `make` installs."""

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_extra_dev_is_what_make_installs():
    toml = pytest.importorskip("tomllib")  # of Python 3.11
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    assert project["optional-dependencies"]["dev"] == pinned
