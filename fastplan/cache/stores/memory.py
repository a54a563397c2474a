"""Entries in the process's memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

from fastplan.cache.stores.base import Stored, check_key, check_name, check_size, readable


class MemoryStore:
    """Up to `max_bytes` of entries, for any number of threads; the least recently used go first.

    What was just written stays, even if it is over the limit on its own.
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
