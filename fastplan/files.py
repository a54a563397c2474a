"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> None:
    """Puts a whole file in place of the old one, behind a link if there is one.

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
            with open(draft, "xb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: str | os.PathLike[str], draft: Path) -> Iterator[None]:
    """Errors of the draft are told of the file: the draft is gone when they are read."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.filename not in (None, os.fspath(draft)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
