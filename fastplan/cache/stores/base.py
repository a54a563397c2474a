"""The store protocol, the store in memory, and a wrapper that limits the time of every call."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from fastplan.cache.entry import MAX_ENTRY, is_key
from fastplan.cache.stores import threads

SUFFIX = ".plan"
# The most that is read of one key. A key has one entry per class of devices, of a few kB each.
MOST_NAMES = 64
MAX_READ = 48 << 20

T = TypeVar("T")

_NAME = re.compile(r"[0-9a-z-]{1,64}")


class StoreError(Exception):
    """The store failed: not reachable, full, read-only or missing. A miss is not an error."""


class Stored(NamedTuple):
    """An entry in a listing of a store.

    Attributes:
        key: The entry's key.
        name: The entry's name.
        size: The size in bytes.
        used: When it was last used, or written if the store does not record uses, in seconds since
            1970; None if unknown.
    """

    key: str
    name: str
    size: int
    used: float | None


@runtime_checkable
class Store(Protocol):
    """A store of entries as bytes, by key and name. A key has one entry per class of capacities.

    Every method raises ValueError for a malformed key or name, and StoreError if the store fails.
    """

    def read(self, key: str) -> list[tuple[str, bytes]]:
        """Returns the entries of a key as (name, data), by name, as far as `readable` allows.

        No entries is a miss.
        """

    def write(self, key: str, name: str, data: bytes) -> None:
        """Stores an entry and replaces one with the same name. Readers see the old or the new."""

    def delete(self, key: str, name: str) -> None:
        """Removes an entry if it exists."""

    def keys(self) -> Iterator[str]:
        """Returns the keys that have entries, each once."""

    def entries(self) -> Iterator[Stored]:
        """Returns all entries, by key and name."""

    def touch(self, key: str, name: str) -> None:
        """Marks an entry as used, if it exists and the store records uses."""

    def describe(self) -> str:
        """Returns the place of the entries, for messages."""


def check_key(key: str) -> None:
    """Raises ValueError for a malformed key."""
    if not is_key(key):
        raise ValueError(f"`key` must be 16 to 128 lower-case hex digits, not {key!r}")


def check_name(name: str) -> None:
    """Raises ValueError for a malformed name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"`name` must be 1 to 64 of a-z, 0-9 and '-', not {name!r}")


def check_size(max_bytes: int) -> None:
    """Raises ValueError for a limit below one byte."""
    if max_bytes < 1:
        raise ValueError(f"`max_bytes` must be at least 1, not {max_bytes}")


def name_of_file(file_name: str) -> str | None:
    """Returns the entry's name in a file name; None for a file that is not an entry."""
    name = file_name.removesuffix(SUFFIX)
    return name if name != file_name and _NAME.fullmatch(name) else None


def readable(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Selects the entries of a key that are read, given their sizes in bytes.

    Small entries come first, so that large files can't hide plans. The result is sorted.
    """
    chosen, left = [], MAX_READ
    for size, name in sorted((size, name) for name, size in sizes)[:MOST_NAMES]:
        left -= size
        if size > MAX_ENTRY or left < 0:
            break
        chosen.append(name)
    return sorted(chosen)


class MemoryStore:
    """A store in the memory of the process, for any number of threads.

    Args:
        max_bytes: The limit for all entries. The least recently used are removed first; the last
            written entry stays, even if it is over the limit.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        check_size(max_bytes)
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._names: dict[str, set[str]] = {}
        self._lock = Lock()

    def read(self, key: str) -> list[tuple[str, bytes]]:
        check_key(key)
        with self._lock:
            found = {name: self._entries[key, name] for name in self._names.get(key, ())}
        return [(name, found[name]) for name in readable((n, len(found[n])) for n in found)]

    def write(self, key: str, name: str, data: bytes) -> None:
        check_key(key)
        check_name(name)
        with self._lock:
            self._remove(key, name)
            self._entries[key, name] = bytes(data)
            self._names.setdefault(key, set()).add(name)
            self._bytes += len(data)
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                self._remove(*next(iter(self._entries)))

    def delete(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        with self._lock:
            self._remove(key, name)

    def keys(self) -> Iterator[str]:
        with self._lock:
            return iter(sorted(self._names))

    def entries(self) -> Iterator[Stored]:
        with self._lock:
            return iter(
                [Stored(*at, len(data), None) for at, data in sorted(self._entries.items())]
            )

    def touch(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        with self._lock:
            if (key, name) in self._entries:
                self._entries.move_to_end((key, name))

    def describe(self) -> str:
        return "memory:"

    def _remove(self, key: str, name: str) -> None:
        data = self._entries.pop((key, name), None)
        if data is None:
            return
        self._bytes -= len(data)
        self._names[key].remove(name)
        if not self._names[key]:
            del self._names[key]


class Deadline:
    """The end of a lookup, for any number of calls."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; 0 after the end."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left == 0.0


class KeyEntries(NamedTuple):
    """The entries of a key, and whether no other user can have written them."""

    entries: list[tuple[str, bytes]]
    is_private: bool


class GuardedStore:
    """A store with a time limit for every call. A call that takes longer raises StoreError.

    After a call has failed or timed out, all later calls fail immediately, so a store that is down
    costs one time-out. A call that hangs continues in a daemon thread, which does not keep the
    interpreter alive. Several calls can share a `deadline`.

    Results are checked: a custom store can only return entries, and no more than fit into memory.

    Args:
        store: The store to wrap.
        timeout: The limit in seconds.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        if not timeout > 0:
            raise ValueError(f"`timeout` must be positive, not {timeout}")
        self._store = store
        self._timeout = timeout
        self._failure: str | None = None

    def read(self, key: str, deadline: Deadline | None = None) -> list[tuple[str, bytes]]:
        check_key(key)
        return self._call("reading", lambda: _checked(self._store.read(key)), deadline)

    def use(self, key: str, deadline: Deadline | None = None) -> KeyEntries:
        """Reads the entries of a key and marks them as used, in one call."""
        check_key(key)
        return self._call("reading", lambda: self._used(key), deadline)

    def _used(self, key: str) -> KeyEntries:
        store = self._store
        # A subclass may override a step, such as read(): then its steps are taken one by one.
        if "use" in vars(type(store)):
            entries, own = store.use(key)  # type: ignore[attr-defined]
            return KeyEntries(_checked(entries), own is True)
        is_private = getattr(store, "is_private", None)  # optional for stores
        entries = _checked(store.read(key))
        own = bool(entries) and is_private is not None and is_private(key) is True
        with suppress(StoreError):  # a lost mark costs at most a later miss
            for name, _ in entries:
                store.touch(key, name)
        return KeyEntries(entries, own)

    def write(self, key: str, name: str, data: bytes) -> None:
        check_key(key)
        check_name(name)
        self._call("writing", lambda: self._store.write(key, name, data))

    def delete(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        self._call("deleting", lambda: self._store.delete(key, name))

    def keys(self) -> Iterator[str]:
        return iter(self._call("listing", lambda: list(self._store.keys())))

    def entries(
        self, most: int | None = None, deadline: Deadline | None = None
    ) -> Iterator[Stored]:
        """Returns all entries, or the first `most`."""
        listed = self._call("listing", lambda: list(islice(self._store.entries(), most)), deadline)
        return iter(listed)

    def touch(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        self._call("marking as used", lambda: self._store.touch(key, name))

    def describe(self) -> str:
        return self._store.describe()

    def _call(self, doing: str, action: Callable[[], T], deadline: Deadline | None = None) -> T:
        if self._failure is not None:
            raise StoreError(f"not tried again after a failure: {self._failure}")
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(action())
            except BaseException as error:  # raised in the caller's thread
                errors.append(error)

        late = f"{self.describe()}: {doing} timed out after {self._timeout:g} s"
        seconds = self._timeout if deadline is None else min(self._timeout, deadline.left)
        if not seconds:
            raise StoreError(late)
        try:
            ended = threads.run(work, seconds)
        except RuntimeError as error:
            raise StoreError(f"{self.describe()}: {doing} failed: {error}") from error
        if not ended:
            # Near the end of a long lookup, a short wait does not show that the store is broken.
            if seconds > self._timeout / 2:
                self._failure = late
            raise StoreError(late)
        if results:
            return results[0]
        cause = errors[0]
        if isinstance(cause, StoreError):
            self._failure = str(cause)
        else:
            self._failure = f"{self.describe()}: {doing} failed: {type(cause).__name__}: {cause}"
        raise StoreError(self._failure) from cause


def _checked(entries: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Returns the entries of a key that are safe to read."""
    found = dict(entries)
    for name, data in found.items():
        if type(name) is not str or not isinstance(data, bytes):
            raise TypeError(f"an entry must be a name and bytes, not {name!r:.40}, {data!r:.40}")
    return [(name, found[name]) for name in readable((n, len(found[n])) for n in found)]
