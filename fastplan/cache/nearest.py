"""The stored plan whose model is nearest to a request that was not in the cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from fastplan.cache.audit import Unknown, cluster_of
from fastplan.cache.entry import BadEntry, Entry, decode, request_bytes
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.cache.plan_cache import PlanCache
from fastplan.core.record import BadRecord, PlanRecord
from fastplan.core.solve import OutOfRange
from fastplan.plans.plan import Basis, Plan
from fastplan.plans.shards import layout_of

# Comparing is cheap, but a store may hold a hundred thousand entries.
MOST_KEYS = 5000
# Of the tables of both models together, this part must be in both.
_LEAST_COMMON = 0.5


def stored_requests(plans: PlanCache, key: str) -> Iterator[tuple[Entry, bytes]]:
    """A key's entries and their requests, as far as they can be read. Raises StoreError."""
    for _, data in plans.store.read(key):
        try:
            entry = decode(data)
            yield entry, request_bytes(entry)
        except BadEntry:
            continue


def nearest_plan(plans: PlanCache, canonical: bytes) -> Plan | None:
    """The plan that shares most tables with a canonical request; None if none is close.

    Of plans that share as many, one for as many ranks comes first, then the newest. Raises
    StoreError when the store does.
    """
    wanted = json.loads(canonical)
    names = _names(wanted)
    found: list[tuple[Any, Entry, bytes]] = []
    for key in islice(plans.store.keys(), MOST_KEYS):
        for entry, stored in stored_requests(plans, key):
            try:
                document = json.loads(stored)
                theirs = _names(document)
                ranks = document["ranks"]
            except (ValueError, LookupError, TypeError, AttributeError):
                continue  # it keeps something else than a request
            common = len(names & theirs) / max(len(names | theirs), 1)
            if common >= _LEAST_COMMON:
                created = str(entry.provenance.get("created", ""))
                found.append(((common, ranks == wanted["ranks"], created), entry, stored))
    for _, entry, stored in sorted(found, key=lambda each: each[0], reverse=True):
        try:
            return _plan(entry, stored)
        except (ValueError, BadEntry, Unknown, OutOfRange):
            continue
    return None


def _names(document: dict[str, Any]) -> frozenset[tuple[str, str]]:
    count = document["table_count"]
    columns = [document["tables"][name] for name in ("path", "name")]
    full = [[each["all"]] * count if isinstance(each, dict) else each for each in columns]
    return frozenset(zip(*full, strict=True))


def _plan(entry: Entry, canonical: bytes) -> Plan:
    request, document = parse_canonical(canonical)
    record = PlanRecord.unpack(entry.payload)
    if fingerprint(canonical) != entry.key:
        raise BadRecord("its request has another key")
    cluster = cluster_of(entry, document)
    return Plan(
        name=f"entry {entry.key[:12]}",
        layout=layout_of(request, cluster, record),
        fingerprint=entry.key,
        basis=Basis(canonical=canonical, request=request, cluster=cluster, record=record),
    )
