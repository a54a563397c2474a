"""Stored plans whose models are nearest to a request that was not in the cache.

What is read here was written by anybody. Every number is bounded by the request at hand before it
is used, and an entry that fails in any way is no entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.cache.audit import cluster_of
from fastplan.cache.entry import BadEntry, Entry, request_bytes
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.cache.plan_cache import PlanCache
from fastplan.cache.sketch import TableName, likeness, names_in, read_name, sketch_of
from fastplan.cache.stores import Stored, StoreError
from fastplan.cache.stores.guarded import Deadline
from fastplan.engine.layout import layout_of
from fastplan.model.plan import Basis, Plan
from fastplan.model.record import PlanRecord

# Entries that are listed, and those of them that are read.
_MOST_LISTED = 20_000
_MOST_READ = 8
# Of the tables of both models together, this part must be in both.
_LEAST_COMMON = 0.5
# How much larger than the one at hand a request and its cluster may be: a model that shares half
# of all tables has twice as many at most.
_TIMES_BYTES = 4
_TIMES_RANKS = 16
_LEAST_BYTES = 1 << 16
_LEAST_SHARDS = 1 << 20


class NearEntry(NamedTuple):
    """An entry with a request that can be compared."""

    entry: Entry
    canonical: bytes
    document: dict[str, Any]
    names: frozenset[TableName]


def near_entries(
    plans: PlanCache, canonical: bytes, *, deadline: Deadline, most: int = _MOST_READ
) -> Iterator[NearEntry]:
    """Entries of other requests, those with most tables in common first, then the last used.

    Ends when the time is up. Raises StoreError when the store can't be listed.
    """
    wanted = json.loads(canonical)
    key = fingerprint(canonical)
    listed = plans.store.entries(_MOST_LISTED, deadline)
    ranked = _ranked((each for each in listed if each.key != key), wanted)
    limit = _TIMES_BYTES * len(canonical) + _LEAST_BYTES
    for stored in ranked[:most]:
        if deadline.passed:
            return
        try:
            data = dict(plans.store.read(stored.key, deadline)).get(stored.name, b"")
            near = _read(plans.decode(data), stored, limit)
        except StoreError:
            return
        except Exception:  # somebody else's bytes
            continue
        yield near


def _ranked(listed: Iterator[Stored], wanted: dict[str, Any]) -> list[Stored]:
    ranks, sketch = wanted["ranks"] & 0xFFFF, sketch_of(names_in(wanted))

    def rank(stored: Stored) -> tuple[float, bool, float]:
        told = read_name(stored.name)
        if told is None:
            return _LEAST_COMMON, False, stored.used or 0.0
        return likeness(sketch, told[1]), told[0] == ranks, stored.used or 0.0

    return sorted(listed, key=rank, reverse=True)


def _read(entry: Entry, stored: Stored, limit: int) -> NearEntry:
    canonical = request_bytes(entry, limit)
    if entry.key != stored.key or fingerprint(canonical) != entry.key:
        raise BadEntry("its request has another key")
    document = json.loads(canonical)
    return NearEntry(entry, canonical, document, names_in(document))


def nearest_plan(plans: PlanCache, canonical: bytes, deadline: Deadline) -> Plan | None:
    """The plan that shares most tables with a canonical request; None if none is close.

    Of plans that share as many, one for as many ranks comes first, then the newest, or the last
    used of those with all tables. Raises StoreError when the store can't be listed.
    """
    wanted = json.loads(canonical)
    names, ranks = names_in(wanted), wanted["ranks"]
    found: list[tuple[Any, NearEntry]] = []
    for near in near_entries(plans, canonical, deadline=deadline):
        common = len(names & near.names) / len(names | near.names)
        alike = common == 1.0 and near.document.get("ranks") == ranks
        if alike and (plan := _attempt(near, len(names), ranks)) is not None:
            return plan  # none is nearer
        if common >= _LEAST_COMMON and not alike:
            created = str(near.entry.provenance.get("created", ""))
            found.append(((common, near.document.get("ranks") == ranks, created), near))
    for _, near in sorted(found, key=lambda each: each[0], reverse=True):
        if deadline.passed:
            return None
        if (plan := _attempt(near, len(names), ranks)) is not None:
            return plan
    return None


def _attempt(near: NearEntry, tables: int, ranks: int) -> Plan | None:
    try:
        return _plan(near, tables=tables, ranks=ranks)
    except Exception:  # it is no plan, or one too large to be of use
        return None


def _plan(near: NearEntry, *, tables: int, ranks: int) -> Plan:
    """The plan of an entry, for a request of so many tables and ranks."""
    entry = near.entry
    solved = sum(run[0] for run in entry.capacities)
    if solved > _TIMES_RANKS * ranks:
        raise BadEntry(f"it was solved for {solved} ranks, and here are {ranks}")
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
