"""Finds recordings below directories and fsspec URLs, and tells which have to be read again.

A directory of a recorded job is one place, and so is every file of another tool. A place that is
settled is not listed again while its time of change is the same: a new file changes the time of its
directory, and files of a job that has ended don't grow.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastplan.ett.fleet.jobs import RECORDED, FleetError
from fastplan.ett.imports import HEAD_BYTES, recognise
from fastplan.ett.journal import SUFFIX
from fastplan.files.document import open_regular

_DEEPEST = 32
# A directory that changed just now may change again within the same tick of its file system.
_TICK = 2_000_000_000


class Known(NamedTuple):
    """What the database knows about a place."""

    kind: str
    modified: int
    size: int
    files: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A place that has to be read.

    Attributes:
        place: Its path or URL.
        kind: `fastplan`, the name of an importer, or empty if none reads it.
        modified: See `Place`.
        size: Bytes of all its files.
        files: Their names.
        remote: The fsspec file system, for a URL.
    """

    place: str
    kind: str
    modified: int
    size: int
    files: tuple[str, ...] = ()
    remote: Any = field(default=None, compare=False)


class Walk:
    """Walks below some roots. Iterating yields the places to read.

    Args:
        roots: Directories, files, or URLs.
        known: What the database knows, by place.

    Attributes:
        seen: Every place that is there, read or not.
        problems: Directories that can't be listed, and files and links that can't be read.
    """

    def __init__(self, roots: Iterable[str], known: Mapping[str, Known]) -> None:
        self._roots = [clean_root(root) for root in roots]
        self._known = known
        self._now = time.time_ns()
        self.seen: set[str] = set()
        self.problems: list[str] = []
        self._unreadable: list[str] = []

    def __iter__(self) -> Iterator[Found]:
        for root in self._roots:
            if "://" in root:
                yield from self._remote(root)
            elif os.path.isdir(root):
                yield from self._directory(root, os.stat(root).st_mtime_ns, 0)
            elif os.path.isfile(root):
                found = os.stat(root)
                yield from self._file(root, found.st_mtime_ns, found.st_size)
            else:
                raise FleetError(f"{root}: no such directory or file")

    def _directory(self, path: str, modified: int, depth: int) -> Iterator[Found]:
        known = self._known.get(path)
        if known is not None and known.settled and known.modified == modified:
            self.seen.add(path)
            return
        try:
            with os.scandir(path) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._report(path, error)
            return
        names, folders, others = [], [], []
        for entry in listed:
            if entry.name.endswith(SUFFIX):
                names.append(entry.name)
            elif found := self._status(entry):
                if stat.S_ISREG(found.st_mode):
                    others.append((entry.path, found))
                elif stat.S_ISDIR(found.st_mode) and not entry.is_symlink():
                    folders.append((entry.path, found))
        if names:
            yield from self._recording(path, names, modified, len(names) == len(listed))
        for other, found in others:
            yield from self._file(other, found.st_mtime_ns, found.st_size)
        for folder, found in folders if depth < _DEEPEST else ():
            yield from self._directory(folder, found.st_mtime_ns, depth + 1)

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """The status of what an entry is or links to; None after a report if there is none."""
        try:
            return entry.stat()
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or entry.is_symlink():
                self._report(entry.path, error)
            return None  # or it was deleted after the listing

    def _report(self, path: str, error: OSError) -> None:
        self.problems.append(f"{path}: {error.strerror or error}")
        if not isinstance(error, FileNotFoundError):
            self._unreadable.append(path)

    def gone(self) -> list[str]:
        """Returns known places below the roots that are not there, after the walk.

        What is at or below a path that can't be read may be there.
        """
        below = tuple(f"{root.rstrip('/')}/" for root in self._roots)
        hidden = tuple(f"{path}/" for path in self._unreadable)
        return sorted(
            place
            for place in self._known.keys() - set(map(as_stored, self.seen))
            if (place in self._roots or place.startswith(below))
            and not f"{place}/".startswith(hidden)
        )

    def _recording(
        self, path: str, names: list[str], modified: int, alone: bool
    ) -> Iterator[Found]:
        """A directory of a recorded job. With anything else in it, it is always listed again."""
        self.seen.add(path)
        size = 0
        for name in names:
            try:
                size += os.stat(f"{path}/{name}").st_size
            except OSError as error:
                self._report(f"{path}/{name}", error)
                alone = False  # a link may lead somewhere later, which doesn't change the directory
        known = self._known.get(path)
        if known is None or (known.size, known.files) != (size, len(names)):
            recent = self._now - modified < _TICK
            usable = 0 if recent or not alone else modified
            yield Found(path, RECORDED, usable, size, tuple(names))

    def _file(self, path: str, modified: int, size: int) -> Iterator[Found]:
        known = self._known.get(path)
        if known is not None and (known.modified, known.size) == (modified, size):
            self.seen.add(path)
            return
        try:
            with open_regular(path) as file:
                kind = recognise(path, file.read(HEAD_BYTES))
        except OSError as error:
            self._report(path, error)
            return
        self.seen.add(path)
        yield Found(path, kind or "", modified if self._now - modified > _TICK else 0, size)

    def _remote(self, root: str) -> Iterator[Found]:
        from fastplan.ett.fleet.remote import remote_places

        for found in remote_places(root):
            self.seen.add(found.place)
            known = self._known.get(found.place)
            files = len(found.files) or 1
            if known is None or (known.size, known.files) != (found.size, files):
                yield found


def as_stored(text: str) -> str:
    """Returns a text with half characters of UTF-16 as escapes, as the database has it."""
    return text.encode("utf-8", "backslashreplace").decode()


def clean_root(root: str) -> str:
    """Returns an absolute path, or a URL without a slash at its end."""
    return root.rstrip("/") if "://" in root else os.path.abspath(root)
