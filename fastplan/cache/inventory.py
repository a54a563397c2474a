"""What is in a store: its entries read as far as they can be, and which of them may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from fastplan.cache.entry import BadEntry, Entry, decode
from fastplan.cache.stores import Store, Stored, StoreError


class NoSuchEntry(ValueError):
    """No entry, or more than one, has a key that begins like that."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry and where it lies; `problem` says why it can't be read."""

    stored: Stored
    entry: Entry | None
    problem: str | None = None


def read_items(store: Store, listed: Iterable[Stored]) -> Iterator[Item]:
    """The listed entries, which must be grouped by key. One that is gone since is left out."""
    for key, group in groupby(listed, attrgetter("key")):
        of_key = list(group)
        try:
            data = dict(store.read(key))
        except StoreError as error:
            yield from (Item(stored, None, str(error)) for stored in of_key)
            continue
        for stored in of_key:
            if stored.name in data:
                yield _item(stored, data[stored.name])


def _item(stored: Stored, data: bytes) -> Item:
    try:
        entry = decode(data)
        if entry.key != stored.key:
            raise BadEntry(f"it belongs to the key {entry.key}")
    except BadEntry as problem:
        return Item(stored, None, problem.reason)
    return Item(stored, entry)


def with_key(store: Store, beginning: str) -> list[Stored]:
    """The entries of the only key that begins like that; raises NoSuchEntry."""
    found = [stored for stored in store.entries() if stored.key.startswith(beginning.lower())]
    keys = sorted({stored.key for stored in found})
    if not keys or not beginning:
        raise NoSuchEntry(
            f"no entry in {store.describe()} has a key that begins with {beginning!r}"
        )
    if len(keys) > 1:
        shown = ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
        raise NoSuchEntry(f"{len(keys)} keys begin with {beginning!r}: {shown}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may stay. None is no limit."""

    age: float | None = None  # seconds since the last use
    size: int | None = None  # bytes of all entries
    count: int | None = None


def to_prune(entries: Iterable[Stored], limits: Limits, now: float) -> list[Stored]:
    """The entries over the limits, least recently used first. Those of unknown age count as old
    when there are too many, and as young otherwise."""
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
