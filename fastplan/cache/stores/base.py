"""What a store is, and the keys and names it takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from fastplan.cache.entry import MAX_ENTRY, is_key

SUFFIX = ".plan"
# What is read of one key at most. A key has an entry per class of devices, of some kB each.
MOST_NAMES = 64
MAX_READ = 48 << 20

_NAME = re.compile(r"[0-9a-z-]{1,64}")


class StoreError(Exception):
    """The store could not do it: down, full, read-only, not there. Never a mere miss."""


class Stored(NamedTuple):
    """An entry as a store lists it, unread.

    `size` is in bytes. `used` is when it was last marked as used, or written where no marks are
    kept, in seconds since 1970.
    """

    key: str
    name: str
    size: int
    used: float | None


@runtime_checkable
class Store(Protocol):
    """Entries as bytes, by key and name: a key holds one entry per class of capacities.

    Every method raises ValueError for a malformed key or name, and StoreError if the medium fails.
    """

    def read(self, key: str) -> list[tuple[str, bytes]]:
        """The entries under the key as (name, data), by name; none is a miss.

        Of more than `readable` allows, only those.
        """

    def write(self, key: str, name: str, data: bytes) -> None:
        """Keeps the entry, in place of one of the same name. Readers see the old or the new one."""

    def delete(self, key: str, name: str) -> None:
        """Removes the entry if it is there."""

    def keys(self) -> Iterator[str]:
        """The keys that hold entries, each once."""

    def entries(self) -> Iterator[Stored]:
        """All entries, by key and name."""

    def touch(self, key: str, name: str) -> None:
        """Marks the entry as used, if it is there and the store can keep such marks."""

    def describe(self) -> str:
        """Where the entries are, for a message."""


def check_key(key: str) -> None:
    if not is_key(key):
        raise ValueError(f"`key` must be 16 to 128 lower-case hex digits, not {key!r}")


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"`name` must be 1 to 64 of a-z, 0-9 and '-', not {name!r}")


def check_size(max_bytes: int) -> None:
    if max_bytes < 1:
        raise ValueError(f"`max_bytes` must be at least 1, not {max_bytes}")


def name_of_file(file_name: str) -> str | None:
    """The entry's name in that file's name; None for a file that is no entry."""
    name = file_name.removesuffix(SUFFIX)
    return name if name != file_name and _NAME.fullmatch(name) else None


def readable(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Which of a key's entries are read, given their sizes in bytes; sorted.

    Small ones come first: whoever floods a key with large files does not hide its plans.
    """
    chosen, left = [], MAX_READ
    for size, name in sorted((size, name) for name, size in sizes)[:MOST_NAMES]:
        left -= size
        if size > MAX_ENTRY or left < 0:
            break
        chosen.append(name)
    return sorted(chosen)
