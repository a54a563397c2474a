"""Files that appear whole or not at all."""

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
    """Puts a whole file in place of the old one, behind a link if there is one.

    It is open to those that the old one was open to, and its owner's, as far as this process may
    say so. Without `others_write`, nobody but its owner may write to it, whoever could before.
    Devices and pipes, such as /dev/stdout, are written to and stay what they are. An OSError names
    the file as it was given, whatever had to be written on the way.
    """
    given = Path(path)
    if given.exists() and not (given.is_file() or given.is_dir()):
        with open(path, "wb") as stream:
            stream.writelines(pieces)
        return
    target = given.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with _naming(path, draft):
            with open(_create(draft, _stat(target), others_write), "wb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _create(draft: Path, old: os.stat_result | None, others_write: bool) -> int:
    """A new file with the owner and the permissions of the old one, if there is one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    new = 0o666 if others_write else 0o644
    file = os.open(draft, flags, new if old is None else 0o600)
    if old is not None and hasattr(os, "fchown"):
        mode = stat.S_IMODE(old.st_mode) & 0o777
        if not _give(file, old):  # what the old group might do, another may not, unless all may
            mode &= ~0o070 | (mode & 0o007) << 3
        with suppress(OSError):  # not every file system has permissions
            os.fchmod(file, mode if others_write else mode & ~0o022)
    return file


def _give(file: int, old: os.stat_result) -> bool:
    """Gives the file to the old one's owner and group; whether it is the group's."""
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
def _naming(path: str | os.PathLike[str], draft: Path) -> Iterator[None]:
    """Errors of the draft are told of the file: the draft is gone when they are read."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.filename not in (None, os.fspath(draft)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
