"""Entries in a directory, for any number of processes and hosts at once.

    <root>/ab/<key>/<name>.plan

There are no locks. An entry is written to a temporary file and renamed, readers see all of it or
nothing, and a writer recreates its folder if another process removed it. A process that is killed
leaves at most a temporary file, which a later sweep removes.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import SystemRandom
from threading import Thread
from typing import NamedTuple

from fastplan.cache.entry import MAX_ENTRY, is_key
from fastplan.cache.stores.base import (
    SUFFIX,
    KeyEntries,
    Stored,
    StoreError,
    check_key,
    check_name,
    check_size,
    name_of_file,
    readable,
)
from fastplan.cache.stores.folder import Folder, Way
from fastplan.model.log import escaped_logger

_log = escaped_logger(__name__)

_PREFIX = re.compile(r"[0-9a-f]{2}")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
_STALE_SECONDS = 3600.0
# How often a write is repeated when its folder is removed. Each time, another process must have
# swept at exactly that moment.
_TRIES = 10

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_ADVICE = {
    errno.ENOSPC: "free some space there or choose another directory",
    errno.EDQUOT: "free some space there or choose another directory",
    errno.EACCES: "choose a directory with the rights to do so",
    errno.EPERM: "choose a directory with the rights to do so",
    errno.EROFS: "choose a directory that can be written to",
    errno.ENOTDIR: "choose a directory, or remove the file with this name",
}


class _File(NamedTuple):
    """The file of an entry in a sweep; the least recently used sort first."""

    time: int
    key: str
    name: str
    inode: int
    size: int


class DirectoryStore:
    """Entries in a directory, which the first write creates. A missing directory is empty.

    After every eighth of `max_bytes` that is written, a daemon thread sweeps the directory: it
    removes the least recently used entries. Processes start at a random point of that eighth, so
    many short ones sweep as often as a long one. No other call takes longer with more entries.

    Other files are left alone. Links inside the directory are never followed.

    Args:
        path: The directory.
        max_bytes: The approximate limit for all entries.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int = 256 << 20) -> None:
        check_size(max_bytes)
        self._root = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._max_bytes = max_bytes
        self._slack = max(1, max_bytes // 8)
        self._until_sweep = SystemRandom().randint(1, self._slack)
        self._sweeper: Thread | None = None

    def read(self, key: str) -> list[tuple[str, bytes]]:
        """Returns the readable entries; raises StoreError only if none of them can be read."""
        check_key(key)
        with self._reported("reading"):
            try:
                with self._folders(key) as folders:
                    return _entries(folders[-1], _details(folders[-1]))
            except FileNotFoundError:
                return []

    def use(self, key: str) -> KeyEntries:
        """Does what read(), touch() and is_private() do, and opens the key's folder once."""
        check_key(key)
        with self._reported("reading"):
            try:
                with self._folders(key) as folders:
                    details = _details(folders[-1])
                    entries = _entries(folders[-1], details)
                    for name, _ in entries:
                        with suppress(OSError):  # a lost mark costs at most a later miss
                            folders[-1].mark(name + SUFFIX)
                    return KeyEntries(entries, bool(entries) and _are_private(folders, details))
            except FileNotFoundError:
                return KeyEntries([], False)

    def write(self, key: str, name: str, data: bytes) -> None:
        check_key(key)
        check_name(name)
        with self._reported("writing"):
            for left in reversed(range(_TRIES)):
                try:
                    with self._folder(key, make=True) as folder:
                        _write_atomically(folder, name + SUFFIX, data)
                    break
                except OSError as error:
                    if not left or not _is_gone(error):
                        raise
        self._until_sweep -= len(data)
        if self._until_sweep <= 0 and (self._sweeper is None or not self._sweeper.is_alive()):
            self._until_sweep = self._slack
            sweeper = Thread(
                target=self._sweep_quietly, args=(key, name), name="fastplan-sweep", daemon=True
            )
            # No thread can be started while the interpreter exits; other processes will sweep.
            with suppress(RuntimeError):
                sweeper.start()
                self._sweeper = sweeper

    def delete(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        with self._reported("deleting"), suppress(FileNotFoundError):
            with self._folder(key) as folder:
                folder.remove(name + SUFFIX)
            self._remove_if_empty(key)

    def keys(self) -> Iterator[str]:
        with self._reported("listing"):
            for key, folder in self._walk():
                if _names(folder):
                    yield key

    def entries(self) -> Iterator[Stored]:
        with self._reported("listing"):
            for key, folder in self._walk():
                for name in _names(folder):
                    with suppress(FileNotFoundError, PermissionError):
                        info = folder.stat(name + SUFFIX)
                        yield Stored(key, name, info.st_size, info.st_mtime)

    def touch(self, key: str, name: str) -> None:
        """Marks an entry as used. A read-only directory is not an error."""
        check_key(key)
        check_name(name)
        with self._reported("marking as used"):
            try:
                with self._folder(key) as folder:
                    folder.mark(name + SUFFIX)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise

    def is_private(self, key: str) -> bool:
        """Returns whether only this user and root can have written the entries of a key."""
        try:
            with self._folders(key) as folders:
                return _are_private(folders, _details(folders[-1]))
        except OSError:
            return False

    def describe(self) -> str:
        return self._root

    def sweep(self, keep: tuple[str, str] | None = None) -> int:
        """Removes stale temporary files and the least recently used entries over the limit.

        Any number of processes can sweep at once: each counts what another one removed.

        Args:
            keep: The (key, name) of an entry that stays. The last used entry stays too.

        Returns:
            The bytes of the removed entries.

        Raises:
            StoreError: The directory can't be read or changed.
        """
        removed = 0
        with self._reported("sweeping"):
            files, total = self._survey()
            files.sort()
            for file in files[:-1]:
                if total <= self._max_bytes - self._slack:
                    break
                if (file.key, file.name) == keep:
                    continue
                gone = self._evict(file)
                if gone is not None:
                    total -= file.size
                    removed += gone
        return removed

    def wait_for_sweep(self) -> None:
        """Waits for the end of a sweep that a write has started, if any."""
        if self._sweeper is not None:
            self._sweeper.join()

    def _sweep_quietly(self, key: str, name: str) -> None:
        try:
            self.sweep(keep=(key, name))
        except StoreError as error:
            _log.warning("%s", error)

    def _survey(self) -> tuple[list[_File], int]:
        """Returns all entries, and the bytes of entries and of temporary files in use."""
        files = []
        total = 0
        stale = time.time() - _STALE_SECONDS
        for key, folder in self._walk():
            listed = folder.files()
            for file in listed:
                name = name_of_file(file.name)
                if name is None and not _TEMPORARY.fullmatch(file.name):
                    continue
                with suppress(FileNotFoundError, PermissionError):
                    info = folder.stat(file.name)
                    if name is not None:
                        files.append(_File(info.st_mtime_ns, key, name, info.st_ino, info.st_size))
                    elif info.st_mtime < stale:
                        folder.remove(file.name)
                        continue
                    total += info.st_size
            if not listed:
                self._remove_if_empty(key)
        return files, total

    def _evict(self, file: _File) -> int | None:
        """Returns the bytes removed: 0 if another process was first, None if the entry stays."""
        try:
            with self._folder(file.key) as folder:
                info = folder.stat(file.name + SUFFIX)
                if (info.st_mtime_ns, info.st_ino) != (file.time, file.inode):
                    return None  # used or written after the survey
                folder.remove(file.name + SUFFIX)
            self._remove_if_empty(file.key)
        except FileNotFoundError:
            return 0
        except (PermissionError, NotADirectoryError):
            return None
        return file.size

    def _remove_if_empty(self, key: str) -> None:
        with suppress(OSError), Folder(self._root) as root:
            with root.enter(key[:2]) as prefix:
                prefix.remove_folder(key)
            root.remove_folder(key[:2])

    def _walk(self) -> Iterator[tuple[str, Folder]]:
        """Yields the keys with their open folders; skips removed and inaccessible ones."""
        try:
            root = Folder(self._root)
        except FileNotFoundError:
            return
        skipped = (FileNotFoundError, NotADirectoryError, PermissionError)
        with root:
            for prefix_name in filter(_PREFIX.fullmatch, root.folders()):
                with suppress(*skipped), root.enter(prefix_name) as prefix:
                    for key in filter(is_key, prefix.folders()):
                        if key.startswith(prefix_name):
                            with suppress(*skipped), prefix.enter(key) as folder:
                                yield key, folder

    @contextmanager
    def _folder(self, key: str, make: bool = False) -> Iterator[Folder]:
        """Opens the folder of a key."""
        with self._folders(key, make) as folders:
            yield folders[-1]

    def _folders(self, key: str, make: bool = False) -> Way:
        """Opens the root, and the folders below it down to that of a key."""
        if make:
            os.makedirs(self._root, exist_ok=True)
        return Way(self._root, (key[:2], key), make=make)

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            inner = error.filename if error.filename != self._root else None
            where = f" (at {inner} in it)" if isinstance(inner, str) else ""
            advice = f"; {_ADVICE[error.errno]}" if error.errno in _ADVICE else ""
            raise StoreError(
                f"{self._root}: {doing} failed: {error.strerror or error}{where}{advice}"
            ) from error


def _details(folder: Folder) -> dict[str, os.stat_result]:
    """Returns the details of all entries in a folder, by name."""
    details = {}
    for name in _names(folder):
        with suppress(FileNotFoundError):
            details[name] = folder.stat(name + SUFFIX)
    return details


def _entries(folder: Folder, details: dict[str, os.stat_result]) -> list[tuple[str, bytes]]:
    """Reads the entries that may be read; raises OSError only if none of them can be."""
    found = []
    failure = None
    for name in readable((name, info.st_size) for name, info in details.items()):
        try:
            data = folder.read(name + SUFFIX, MAX_ENTRY)
        except OSError as error:
            failure = failure if _is_gone(error) else error
            continue
        if data is not None:
            found.append((name, data))
    if failure is not None and not found:
        raise failure
    return found


def _names(folder: Folder) -> list[str]:
    """Returns the names of all entries in a folder, sorted."""
    return sorted(filter(None, (name_of_file(file.name) for file in folder.files())))


def _are_private(folders: list[Folder], entries: dict[str, os.stat_result]) -> bool:
    """Returns whether only this user and root can have written the entries."""
    details = [*entries.values(), *(folder.details() for folder in folders)]
    return all(map(_is_private_to_user, details))


def _is_private_to_user(info: os.stat_result) -> bool:
    """Returns whether a file or folder belongs to this user or root, and no other can write."""
    own = getattr(os, "geteuid", lambda: -1)()
    return info.st_uid in (own, 0) and own >= 0 and not info.st_mode & 0o022


def _is_gone(error: OSError) -> bool:
    """Returns whether another process, or another host, has removed the file."""
    return error.errno in (errno.ENOENT, errno.ESTALE)


def _write_atomically(folder: Folder, file_name: str, data: bytes) -> None:
    """Writes a file completely or not at all."""
    temporary = f".{os.urandom(8).hex()}.tmp"
    fd = folder.create(temporary)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            # Otherwise a crash of the machine could leave an empty file with the new name.
            os.fsync(fd)
        finally:
            os.close(fd)
        folder.replace(temporary, file_name)
    except BaseException:
        with suppress(OSError):
            folder.remove(temporary)
        raise
