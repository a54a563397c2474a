"""Releases that belong together."""

import re

import pytest

from fastplan.doctor.installed import RELEASE_OF, TORCH_OF, minor, module_folder, supported_torchrec


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


@pytest.mark.parametrize(
    ("torch", "expected"),
    [("2.13", "1.8.0"), ("2.14", "1.9.2"), ("2.12", None), ("3.0", None), (None, None)],
)
def test_the_supported_torchrec_for_a_torch(torch, expected):
    assert supported_torchrec(torch) == expected
