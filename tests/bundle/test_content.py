"""Bundles appear whole or not at all."""

import os

import pytest

from fastplan.bundle.bundle import open_bundle
from fastplan.bundle.format import Blob, BundleError, content_bytes, write_content
from tests.bundle.samples import content


def test_a_bundle_is_written(tmp_path):
    write_content(content(), tmp_path / "start.bundle")
    assert open_bundle(tmp_path / "start.bundle").find_damage() == []
    assert os.listdir(tmp_path) == ["start.bundle"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "start.bundle"
    write_content(content(), path)
    before = path.read_bytes()

    def unreadable():
        raise BundleError("damaged")

    blob = Blob.of(b"x")._replace(read=unreadable)
    with pytest.raises(BundleError):
        write_content(content(plans={("0" * 16, "a"): blob}), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["start.bundle"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "start.bundle").symlink_to(tmp_path / "there" / "real")
    write_content(content(), tmp_path / "start.bundle")
    assert (tmp_path / "start.bundle").is_symlink()
    assert open_bundle(tmp_path / "there" / "real").find_damage() == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_content(content(), tmp_path / "missing" / "start.bundle")


def test_the_order_of_facts_does_not_matter(monkeypatch):
    monkeypatch.setattr("time.gmtime", lambda: (2026, 1, 1, 0, 0, 0, 3, 1, 0))
    one = content_bytes(content(facts={"torch": "2", "python": "3"}))
    assert one == content_bytes(content(facts={"python": "3", "torch": "2"}))
