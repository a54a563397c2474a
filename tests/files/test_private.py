"""Directories that nobody else can write to or exchange, links on the way included."""

import os
from pathlib import Path

import pytest

from fastplan.files import private
from fastplan.files.private import DirectoryNotPrivate, private_directory


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A path through two links: first/a -> second/b -> third, each in a directory of its own."""
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "second" / "b").symlink_to("../third")
    (tmp_path / "first" / "a").symlink_to(tmp_path / "second" / "b")
    return tmp_path / "first" / "a" / "mine"


def test_links_in_private_directories_are_followed(chain: Path, tmp_path: Path) -> None:
    assert private_directory(chain, "PLACE") == chain
    assert (tmp_path / "third" / "mine").is_dir()


@pytest.mark.parametrize("open_to_all", ["first", "second", "third"])
def test_every_directory_of_a_link_counts(chain: Path, tmp_path: Path, open_to_all: str) -> None:
    (tmp_path / open_to_all).chmod(0o777)
    with pytest.raises(DirectoryNotPrivate, match=rf"all users can write to .*{open_to_all}"):
        private_directory(chain, "PLACE")
    (tmp_path / open_to_all).chmod(0o1777)  # others can't exchange what is ours
    assert private_directory(chain, "PLACE") == chain


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_is_refused(chain: Path, tmp_path: Path) -> None:
    (tmp_path / "second").chmod(0o1777)
    os.chown(tmp_path / "second" / "b", 65534, -1, follow_symlinks=False)
    with pytest.raises(DirectoryNotPrivate, match=r"second/b, above .* belongs to user 65534"):
        private_directory(chain, "PLACE")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        [*private._looked_up_in(tmp_path / "a" / "mine")]


def test_the_parent_of_a_links_target_counts(tmp_path: Path) -> None:
    (tmp_path / "deep" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/inner")
    place = tmp_path / "link" / ".." / "mine"
    assert (tmp_path / "deep") in [*private._looked_up_in(place)]


def test_only_the_user_can_enter_a_private_directory_whatever_the_umask(tmp_path: Path) -> None:
    place = tmp_path / "above" / "mine"
    before = os.umask(0)
    try:
        private_directory(place, "PLACE")
    finally:
        os.umask(before)
    assert place.parent.stat().st_mode & 0o777 == 0o755
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)  # others could write to files that a library creates in it
    private_directory(place, "PLACE")
    assert place.stat().st_mode & 0o777 == 0o700
