"""The file of a recorder: whole lines, appended, by a process that may be killed or out of disk."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from fastplan.ett.identity import Identity
from fastplan.ett.values import warn

SUFFIX = ".ett.jsonl"
HELD = 1 << 16  # bytes kept while the disk takes none
_PATIENCE = 1_000_000_000  # nanoseconds until it is asked again


class Journal:
    """Appends lines to a new file of its own. Raises OSError if it can't be made, later never.

    Every write is one system call with whole lines on a descriptor that appends: a killed process
    leaves at most one torn line, the last. What a full disk refuses is held back, up to HELD bytes,
    and written once there is room; lines beyond that are counted in `lost`. Times are the caller's.
    A job that closes the descriptor ends its record: the number may be another file's by then.
    """

    def __init__(self, directory: str, identity: Identity) -> None:
        os.makedirs(directory, exist_ok=True)
        name = f"attempt{identity.attempt:03}.rank{identity.rank:05}.{secrets.token_hex(4)}{SUFFIX}"
        self.path = os.path.join(directory, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file: int | None = os.open(self.path, flags, 0o644)
        self._identity = _identity(self._file)
        self._held = b""
        self._try_at = 0
        self.lost = 0
        self._told = False

    @property
    def blocked(self) -> bool:
        """Whether lines wait for a disk that took none the last time."""
        return bool(self._held)

    def write(self, lines: str, now: int) -> None:
        """Appends lines, each with its line end, after those that still wait."""
        waiting = self._held + lines.encode("ascii")
        file = self._open()
        if file is None:
            return
        if not self._held or now >= self._try_at:
            try:
                while waiting:
                    waiting = waiting[os.write(file, waiting) :]
            except OSError as error:
                self._try_at = now + _PATIENCE
                self._tell(error)
        self._held = self._kept(waiting)

    def close(self) -> None:
        """Tries a last time, and closes the file."""
        self._try_at = 0
        self.write("", 0)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file as it is."""
        file = self._open()
        if file is not None:
            with suppress(OSError):
                os.close(file)
            self._file = None

    def _open(self) -> int | None:
        """The descriptor as long as it is this file's."""
        if self._file is not None and _identity(self._file) != self._identity:
            self._file = None
            self._held = b""
            warn("%s ends here: something in the job has closed it", self.path)
        return self._file

    def _kept(self, waiting: bytes) -> bytes:
        """The first of the waiting lines; the rest of a line that is half written stays first."""
        if len(waiting) <= HELD:
            return waiting
        end = waiting.rfind(b"\n", 0, HELD) + 1 or waiting.find(b"\n") + 1
        self.lost += waiting.count(b"\n", end)
        return waiting[:end]

    def _tell(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            warn("%s can't be written for now: %s", self.path, error)


def _identity(file: int) -> tuple[int, int] | None:
    """Which file an open descriptor is for; None if it is not open."""
    try:
        found = os.fstat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def obstacle(directory: str) -> str | None:
    """Why nothing can be recorded there, as far as can be told without writing anything."""
    place = os.path.abspath(directory)
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is not a directory"
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place} can't be written to"
