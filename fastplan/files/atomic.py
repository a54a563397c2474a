"""Atomic file replacement."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace_file(
    path: str | os.PathLike[str], pieces: Iterable[bytes], *, others_write: bool = True
) -> None:
    """Replaces a file atomically. If the path is a link, its target is replaced.

    The new file gets the old one's permissions, owner and group, as far as this process may set
    them. Devices and pipes, such as /dev/stdout, are written to directly.

    Args:
        path: The file.
        pieces: The new content.
        others_write: Whether users other than the owner keep their permission to write.

    Raises:
        OSError: The file can't be written. The error names `path`, not the temporary file.
    """
    given = Path(path)
    if given.exists() and not (given.is_file() or given.is_dir()):
        with open(path, "wb") as stream:
            stream.writelines(pieces)
        return
    target = given.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with _errors_for(path, draft):
            with open(_create(draft, _stat(target), others_write), "wb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _create(draft: Path, old: os.stat_result | None, others_write: bool) -> int:
    """Creates a file with the owner and the permissions of the old one, if any."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    new = 0o666 if others_write else 0o644
    file = os.open(draft, flags, new if old is None else 0o600)
    if old is not None and hasattr(os, "fchown"):
        mode = stat.S_IMODE(old.st_mode) & 0o777
        if not _copy_owner(file, old):  # another group gets only what all users may do
            mode &= ~0o070 | (mode & 0o007) << 3
        with suppress(OSError):  # not every file system has permissions
            os.fchmod(file, mode if others_write else mode & ~0o022)
    return file


def _copy_owner(file: int, old: os.stat_result) -> bool:
    """Sets the owner and the group of the old file; returns whether the group was set."""
    for user in (old.st_uid, -1):
        with suppress(OSError):
            os.fchown(file, user, old.st_gid)
            return True
    return os.fstat(file).st_gid == old.st_gid


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _errors_for(path: str | os.PathLike[str], draft: Path) -> Iterator[None]:
    """Makes errors name the target file instead of the temporary file."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.filename not in (None, os.fspath(draft)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
