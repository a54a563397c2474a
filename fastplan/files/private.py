"""Directories that only this user can write to, for files that are trusted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST_LINKS = 40  # as Linux has it


class DirectoryNotPrivate(Exception):
    """Other users can write to the directory. The message says why and what to do."""


def make_directories(place: Path) -> None:
    """Creates a directory and those above it that are missing. Whatever the umask is, no other user
    can write to them.

    Raises:
        OSError: One of them can't be created.
    """
    missing = [each for each in (place, *place.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o755, exist_ok=True)


def private_directory(place: Path, variable: str) -> Path:
    """Creates a directory if necessary and returns it. Only this user can enter it afterwards.

    Args:
        place: The directory.
        variable: The environment variable that names another one, for messages.

    Raises:
        DirectoryNotPrivate: Other users can write to it.
        OSError: It can't be created or read.
    """
    make_directories(place.parent)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if hasattr(os, "geteuid"):  # on other systems the user's folders are private
        _check_private(place, variable)
        # Other libraries create files here with the permissions that the umask leaves.
        with suppress(OSError):  # not every file system has permissions
            place.chmod(stat.S_IMODE(place.stat().st_mode) & 0o700)
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
    # Whoever can write to a directory above could exchange this one after the check.
    for above in dict.fromkeys(_looked_up_in(place)):
        found = above.lstat()
        if found.st_uid not in (os.geteuid(), 0):
            raise DirectoryNotPrivate(
                f"{above}, above {place}, belongs to user {found.st_uid}: set {variable}"
            )
        if stat.S_ISLNK(found.st_mode):  # its mode means nothing
            continue
        if found.st_mode & stat.S_ISVTX:  # others can't exchange what is ours
            continue
        if found.st_mode & stat.S_IWOTH:
            raise DirectoryNotPrivate(
                f"all users can write to {above}, above {place}: `chmod o-w` it"
            )
        if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
            raise DirectoryNotPrivate(
                f"group {found.st_gid} can write to {above}, above {place}: `chmod g-w` it"
            )


def _looked_up_in(place: Path) -> Iterator[Path]:
    """Yields the links on the way to a path, and the directories in which names are looked up."""
    here, parts = Path(place.anchor or "/"), [*reversed(place.absolute().parts[1:])]
    links = 0
    while parts:
        yield here
        name = parts.pop()
        found = here.parent if name == ".." else here / name
        if not found.is_symlink():
            here = found
            continue
        yield found
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
        target = found.readlink()
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        here = Path(target.anchor) if target.is_absolute() else here


def _is_own_group(number: int) -> bool:
    """Returns whether a group is the one that many systems create for each user alone."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and group.gr_name == user.pw_name and not group.gr_mem
