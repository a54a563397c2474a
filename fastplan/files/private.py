"""Directories that only this user can write to, for files that are believed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


class DirectoryNotPrivate(Exception):
    """Other users can write to the directory. The message says why and what to do."""


def private_directory(place: Path, variable: str) -> Path:
    """Creates a directory if necessary and returns it.

    Args:
        place: The directory.
        variable: The environment variable that names another one, for messages.

    Raises:
        DirectoryNotPrivate: Other users can write to it.
        OSError: It can't be created or read.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if hasattr(os, "geteuid"):  # on other systems the user's folders are private
        _check_private(place, variable)
    return place


def _check_private(place: Path, variable: str) -> None:
    """Raises DirectoryNotPrivate if other users can write to the directory or replace it."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryNotPrivate(f"{place} is not a directory")
    if found.st_uid != os.geteuid():
        raise DirectoryNotPrivate(f"{place} belongs to user {found.st_uid}: set {variable}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DirectoryNotPrivate(f"others can write to {place}: `chmod 700` it, or set {variable}")
    for above in place.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise DirectoryNotPrivate(
                f"all users can write to {above}, above {place}: `chmod o-w` it"
            )
