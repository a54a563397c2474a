"""Lists the entries of a store, verifies them, and selects entries to delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from fastplan.cache.entry import BadEntry, Entry, decode, request_bytes
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.cache.stores import Store, Stored, StoreError
from fastplan.model.objectives import Objectives
from fastplan.model.request import Cluster, Request

if TYPE_CHECKING:
    from fastplan.engine.problem import Problem, SearchSpace
    from fastplan.model.record import PlanRecord

GOOD = "good"
PARTLY = "partly"  # intact, but not everything can be recomputed
BAD = "bad"


class NoSuchEntry(ValueError):
    """No key, or more than one key, has this prefix."""


class NotVerifiable(Exception):
    """A check needs objects that the request does not contain."""


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


class Verdict(NamedTuple):
    """The result of an audit: GOOD, PARTLY or BAD, and the reason unless it is good."""

    status: str
    reason: str | None = None


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


def audit(entry: Entry) -> Verdict:
    """Verifies an entry.

    Checks the request's key, estimates the plan again, and verifies it natively against the
    capacities that it was solved for. Then it checks the certificate, if there is one.
    """
    from fastplan.engine.problem import Problem  # loads numpy and the native core
    from fastplan.model.record import BadRecord, PlanRecord

    try:
        record = PlanRecord.unpack(entry.payload)
        if record.rating != entry.rating:
            raise BadRecord(f"its plan is rated {record.rating}, its header says {entry.rating}")
        canonical = request_bytes(entry)
        if not canonical:
            raise NotVerifiable("it has no request")
        if fingerprint(canonical) != entry.key:
            raise BadEntry("the key of its request differs")
        request, document = _read_request(canonical)
        cluster = cluster_of(entry, document)
        complaint = _verify(request, cluster, record)
        if not complaint and entry.certificate:
            problem = Problem(_estimated(request), cluster)
            _check_bound(entry.certificate, record.rating, problem, request, document)
    except NotVerifiable as why:
        return Verdict(PARTLY, str(why))
    except (BadEntry, BadRecord) as error:
        return Verdict(BAD, str(error))
    return Verdict(BAD, complaint) if complaint else Verdict(GOOD)


def cluster_of(entry: Entry, document: dict[str, Any]) -> Cluster:
    """Returns the cluster that an entry was solved for.

    Args:
        entry: The entry.
        document: Its request, parsed as JSON.

    Raises:
        BadEntry: The capacities don't match the request.
        NotVerifiable: The request does not say which ranks share a host.
    """
    ranks = sum(run[0] for run in entry.capacities)
    if ranks != document["ranks"]:
        raise BadEntry(f"it was solved for {ranks} ranks, its request has {document['ranks']}")
    by_rank = [run[1:] for run in entry.capacities for _ in range(run[0])]
    sizes = [document["context"].get(name) for name in ("local_world_size", "group_size")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise NotVerifiable("its request does not say which ranks share a host")
    hbm, ddr, ssd = zip(*by_rank, strict=True)
    return Cluster(
        rank_hbm=hbm, rank_ddr=ddr, rank_ssd=ssd, local_world_size=sizes[0], group_size=sizes[1]
    )


def _read_item(stored: Stored, data: bytes) -> EntryInfo:
    try:
        entry = decode(data)
        if entry.key != stored.key:
            raise BadEntry(f"it belongs to the key {entry.key}")
    except BadEntry as problem:
        return EntryInfo(stored, None, problem.reason)
    return EntryInfo(stored, entry)


def _read_request(canonical: bytes) -> tuple[Request, dict[str, Any]]:
    try:
        request, document = parse_canonical(canonical)
    except ValueError as error:
        raise NotVerifiable(f"its request can't be read: {error}") from None
    custom = document["context"].get("custom")
    if not isinstance(custom, list) or not all(map(_affects_only_proposals, custom)):
        raise NotVerifiable("custom parts affect its costs")
    return request, document


def _affects_only_proposals(part: Any) -> bool:
    """Returns whether a custom part is a proposer, which does not change costs."""
    return isinstance(part, list) and bool(part) and (part[0] == "scaleup" or type(part[0]) is int)


def _verify(request: Request, cluster: Cluster, record: PlanRecord) -> str:
    """Returns the errors of the plan; empty if there are none."""
    import numpy as np

    from fastplan.engine.narrow import narrowed
    from fastplan.engine.problem import Problem
    from fastplan.engine.solve import verify_plan

    if not np.isnan(record.load_factor).all():
        raise NotVerifiable("the search resized caches, and their costs are not in the request")
    space = _estimated(narrowed(request, record))
    numbers = np.arange(len(record.table), dtype=np.int32)
    return verify_plan(Problem(space, cluster), numbers, record.ranks, record.rating)


def _estimated(request: Request) -> SearchSpace:
    from fastplan.engine.solve import OutOfRange, estimate

    try:
        return estimate(request)
    except OutOfRange as error:
        raise NotVerifiable(f"its costs can't be recomputed: {error}") from None


def _check_bound(
    certificate: bytes, rating: float, problem: Problem, request: Request, document: dict[str, Any]
) -> None:
    """Checks the bound of a plan. The plan stays valid if the check fails."""
    from fastplan.engine.packed_certificate import proven_bound

    names = [(table.path, table.name) for table in request.tables]
    if proven_bound(certificate, rating, problem, _constraints(document), names) is None:
        raise NotVerifiable("its certificate does not prove a bound, so no bound is reported")


def _constraints(document: dict[str, Any]) -> Objectives:
    """Returns the constraints of the plans that a bound is about, from the optimizer's settings."""
    try:
        settings = document["context"].get("optimize", {}).get("objectives", {})
        pins, together = dict(settings.get("pins", {})), list(settings.get("together", ()))
        if not all(type(name) is str for name in (*pins, *chain.from_iterable(together))):
            raise TypeError("names of tables must be strings")
        return Objectives(pins=pins, together=together)
    except (AttributeError, TypeError, ValueError):
        raise NotVerifiable("its request does not say which plans its bound is about") from None
