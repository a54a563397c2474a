"""Lists the entries of a store, and selects entries to delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from fastplan.cache.entry import BadEntry, Entry, decode
from fastplan.cache.stores import Store, Stored, StoreError


class NoSuchEntry(ValueError):
    """No key, or more than one key, has this prefix."""


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry and its place in the store; `problem` says why it can't be read."""

    stored: Stored
    entry: Entry | None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a store may contain. None is no limit.

    Attributes:
        age: Seconds since the last use.
        size: Bytes of all entries.
        count: Number of entries.
    """

    age: float | None = None
    size: int | None = None
    count: int | None = None


def read_items(store: Store, listed: Iterable[Stored]) -> Iterator[EntryInfo]:
    """Reads the listed entries, which must be grouped by key. Deleted entries are skipped."""
    for key, group in groupby(listed, attrgetter("key")):
        of_key = list(group)
        try:
            data = dict(store.read(key))
        except StoreError as error:
            yield from (EntryInfo(stored, None, str(error)) for stored in of_key)
            continue
        for stored in of_key:
            if stored.name in data:
                yield _read_item(stored, data[stored.name])


def entries_with_prefix(store: Store, prefix: str) -> list[Stored]:
    """Returns the entries of the only key with this prefix.

    Raises:
        NoSuchEntry: No key, or more than one key, has this prefix.
    """
    found = [stored for stored in store.entries() if stored.key.startswith(prefix.lower())]
    keys = sorted({stored.key for stored in found})
    if not keys or not prefix:
        raise NoSuchEntry(f"no entry in {store.describe()} has a key that begins with {prefix!r}")
    if len(keys) > 1:
        shown = ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
        raise NoSuchEntry(f"{len(keys)} keys begin with {prefix!r}: {shown}")
    return found


def select_for_pruning(entries: Iterable[Stored], limits: Limits, now: float) -> list[Stored]:
    """Returns the entries over the limits, least recently used first.

    Entries of unknown age are deleted first for `size` and `count`, and never for `age`.
    """
    by_use = sorted(entries, key=lambda stored: (stored.used or 0.0, stored.key, stored.name))
    size = sum(stored.size for stored in by_use)
    count = len(by_use)
    chosen = []
    for stored in by_use:
        old = limits.age is not None and stored.used is not None and now - stored.used > limits.age
        large = limits.size is not None and size > limits.size
        many = limits.count is not None and count > limits.count
        if old or large or many:
            chosen.append(stored)
            size -= stored.size
            count -= 1
    return chosen


def _read_item(stored: Stored, data: bytes) -> EntryInfo:
    try:
        entry = decode(data)
        if entry.key != stored.key:
            raise BadEntry(f"it belongs to the key {entry.key}")
    except BadEntry as problem:
        return EntryInfo(stored, None, problem.reason)
    return EntryInfo(stored, entry)
