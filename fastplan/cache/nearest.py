"""Finds stored plans whose models are nearest to a request that was not in the cache.

Entries are untrusted input. Every number is bounded by the request in use before it is used, and an
entry that fails in any way is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.cache.audit import cluster_of
from fastplan.cache.entry import (
    BadEntry,
    Entry,
    TableName,
    read_name,
    request_bytes,
    similarity,
    sketch_of,
    table_names,
)
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.cache.plan_cache import Cache, short_reason
from fastplan.cache.stores.base import Deadline, Stored, StoreError
from fastplan.engine.layout import layout_of
from fastplan.files.storage import parse_json
from fastplan.model.plan import Basis, Plan, PlanRecord

# Entries that are listed, and those of them that are read.
_MOST_LISTED = 20_000
_MOST_READ = 8
# The share of all tables of both models that must be in both.
_LEAST_COMMON = 0.5
# How much larger than the request in use a stored request and its cluster may be: a model that
# shares half of all tables has at most twice as many.
_TIMES_BYTES = 4
_TIMES_RANKS = 16
_LEAST_BYTES = 1 << 16
_LEAST_SHARDS = 1 << 20


class NearEntry(NamedTuple):
    """An entry with its request."""

    entry: Entry
    canonical: bytes
    document: dict[str, Any]
    names: frozenset[TableName]


def near_entries(
    plans: Cache, canonical: bytes, *, deadline: Deadline, most: int = _MOST_READ
) -> Iterator[NearEntry]:
    """Yields entries of other requests: most tables in common first, then the last used.

    Args:
        plans: The cache.
        canonical: The request.
        deadline: Stops at this time.
        most: The number of entries to read.

    Raises:
        StoreError: The store can't be listed.
        ValueError: `canonical` is not a request.
    """
    wanted, names = read_request(canonical)
    key = fingerprint(canonical)
    listed = plans.store.entries(_MOST_LISTED, deadline)
    ranked = _ranked((each for each in listed if each.key != key), wanted, names)
    limit = _TIMES_BYTES * len(canonical) + _LEAST_BYTES
    for stored in ranked[:most]:
        if deadline.passed:
            return
        try:
            data = dict(plans.store.read(stored.key, deadline)).get(stored.name, b"")
            near = _read(plans.decode(data), stored, limit)
        except StoreError:
            return
        except Exception:  # untrusted bytes
            continue
        yield near


def read_request(canonical: bytes) -> tuple[dict[str, Any], frozenset[TableName]]:
    """Returns a request of any version of fastplan as JSON, and its tables.

    Raises:
        ValueError: The bytes are not a request.
    """
    try:
        document = parse_json(canonical.decode())
        if type(document) is not dict:
            raise TypeError("it is not an object")
        names = table_names(document)
        if type(document["ranks"]) is not int:
            raise ValueError("`ranks` must be a whole number")
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"it can't be compared: {short_reason(error)}") from None
    return document, names


def _ranked(
    listed: Iterator[Stored], wanted: dict[str, Any], names: frozenset[TableName]
) -> list[Stored]:
    ranks, sketch = wanted["ranks"] & 0xFFFF, sketch_of(names)

    def rank(stored: Stored) -> tuple[float, bool, float]:
        parsed = read_name(stored.name)
        if parsed is None:
            return _LEAST_COMMON, False, stored.used or 0.0
        return similarity(sketch, parsed[1]), parsed[0] == ranks, stored.used or 0.0

    return sorted(listed, key=rank, reverse=True)


def _read(entry: Entry, stored: Stored, limit: int) -> NearEntry:
    canonical = request_bytes(entry, limit)
    if entry.key != stored.key or fingerprint(canonical) != entry.key:
        raise BadEntry("the key of its request differs")
    return NearEntry(entry, canonical, *read_request(canonical))


def nearest_plan(plans: Cache, canonical: bytes, deadline: Deadline) -> Plan | None:
    """Returns the plan that shares most tables with a request.

    Among equal plans, one for the same number of ranks comes first, then the newest; among those
    with all tables, the last used.

    Args:
        plans: The cache.
        canonical: The request.
        deadline: When the lookup must end.

    Returns:
        The plan, or None if no plan shares half of the tables.

    Raises:
        StoreError: The store can't be listed.
    """
    wanted, names = read_request(canonical)
    ranks = wanted["ranks"]
    found: list[tuple[Any, NearEntry]] = []
    for near in near_entries(plans, canonical, deadline=deadline):
        common = len(names & near.names) / len(names | near.names)
        is_same = common == 1.0 and near.document.get("ranks") == ranks
        if is_same and (plan := _try_entry(near, len(names), ranks)) is not None:
            return plan  # no other entry is nearer
        if common >= _LEAST_COMMON and not is_same:
            created = str(near.entry.provenance.get("created", ""))
            found.append(((common, near.document.get("ranks") == ranks, created), near))
    for _, near in sorted(found, key=lambda each: each[0], reverse=True):
        if deadline.passed:
            return None
        if (plan := _try_entry(near, len(names), ranks)) is not None:
            return plan
    return None


def _try_entry(near: NearEntry, tables: int, ranks: int) -> Plan | None:
    try:
        return _plan(near, tables=tables, ranks=ranks)
    except Exception:  # not a plan, or one that is too large
        return None


def _plan(near: NearEntry, *, tables: int, ranks: int) -> Plan:
    """Returns the plan of an entry, for a request with these numbers of tables and ranks."""
    entry = near.entry
    solved = sum(run[0] for run in entry.capacities)
    if solved > _TIMES_RANKS * ranks:
        raise BadEntry(f"it was solved for {solved} ranks, not {ranks}")
    request, document = parse_canonical(near.canonical)
    record = PlanRecord.unpack(entry.payload)
    cluster = cluster_of(entry, document)
    most = _LEAST_SHARDS + _TIMES_RANKS * tables * ranks
    return Plan(
        name=f"entry {entry.key[:12]}",
        layout=layout_of(request, cluster, record, most_shards=most),
        fingerprint=entry.key,
        basis=Basis(canonical=near.canonical, request=request, cluster=cluster, record=record),
    )
