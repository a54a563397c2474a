"""Releases that belong together."""

import re
from pathlib import Path

import pytest

from fastplan.doctor.installed import module_folder
from fastplan.doctor.releases import DEFAULT, RELEASE_OF, TESTED, TORCH_OF, TORCHREC_OF, minor
from fastplan.spec.stock import VERSIONS

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def test_every_release_has_a_torch_of_its_own():
    assert len(RELEASE_OF) == len(TORCH_OF)


def test_the_table_agrees_with_the_one_of_the_fbgemm_that_is_installed():
    folder = module_folder("fbgemm_gpu")
    text = (folder / "__init__.py").read_text() if folder else ""
    theirs = dict(re.findall(r'^    "(1\.\d+)": "(2\.\d+)"', text, re.MULTILINE))
    if not theirs:
        pytest.skip("no FBGEMM with a table here")
    assert theirs == {release: TORCH_OF[release] for release in theirs}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.13.0", "2.13"),
        ("2.13.0+cpu", "2.13"),
        ("2.13.1+cu126", "2.13"),
        ("1.8.0rc1", "1.8"),
        ("2.14.0.dev20260901+cpu", None),
        ("1.8.0+git1234", None),
        ("2026.8.31", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_the_minor_release_of_a_version(version, expected):
    assert minor(version) == expected


def pins(name):
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return [line.partition("==")[2] for line in lines if not line.startswith("#")]


def test_the_tested_versions_are_those_that_make_installs():
    if not REQUIREMENTS.is_dir():
        pytest.skip("not a checkout")
    assert list(TESTED) == pins("torchrec-versions.txt")
    assert set(VERSIONS) <= set(TESTED)
    assert pins("torchrec.txt") == [TORCHREC_OF[DEFAULT]]
    assert minor(pins("torch.txt")[0]) == TORCH_OF[DEFAULT]


def test_every_proposed_torchrec_belongs_to_its_release():
    assert {release: minor(version) for release, version in TORCHREC_OF.items()} == {
        release: release for release in TORCHREC_OF
    }
    assert set(TORCHREC_OF) <= set(TORCH_OF)
