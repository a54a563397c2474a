"""Whether an entry still holds what it promises, as far as that can be computed again."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fastplan.cache.entry import BadEntry, Entry, request_bytes
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.engine.layout import narrowed
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import OutOfRange, estimate, verify_plan
from fastplan.model.objectives import Objectives
from fastplan.model.record import BadRecord, PlanRecord
from fastplan.model.request import Cluster, Request

GOOD = "good"
PARTLY = "partly"  # intact, but not everything can be computed again
BAD = "bad"


class Verdict(NamedTuple):
    """GOOD, PARTLY or BAD; and why, unless it is good."""

    status: str
    reason: str | None = None


class Unknown(Exception):
    """Something that follows from objects which a request does not hold."""


def audit(entry: Entry) -> Verdict:
    """Checks the request's key, then estimates the plan again and verifies it natively against the
    capacities it was solved for."""
    try:
        record = PlanRecord.unpack(entry.payload)
        if record.rating != entry.rating:
            raise BadRecord(f"its plan is rated {record.rating}, its header says {entry.rating}")
        canonical = request_bytes(entry)
        if not canonical:
            raise Unknown("it keeps no request")
        if fingerprint(canonical) != entry.key:
            raise BadEntry("its request has another key")
        request, document = _read(canonical)
        cluster = cluster_of(entry, document)
        complaint = _verify(request, cluster, record)
        if not complaint and entry.certificate:
            problem = Problem(_estimated(request), cluster)
            _prove(entry.certificate, record.rating, problem, request, document)
    except Unknown as why:
        return Verdict(PARTLY, str(why))
    except (BadEntry, BadRecord) as error:
        return Verdict(BAD, str(error))
    return Verdict(BAD, complaint) if complaint else Verdict(GOOD)


def _read(canonical: bytes) -> tuple[Request, dict[str, Any]]:
    try:
        request, document = parse_canonical(canonical)
    except ValueError as error:
        raise Unknown(f"its request can't be read back: {error}") from None
    custom = document["context"].get("custom")
    if not isinstance(custom, list) or not all(map(_only_proposes, custom)):
        raise Unknown("custom parts have a say in its costs")
    return request, document


def _only_proposes(part: Any) -> bool:
    """Proposers decide what is tried, which is nothing to verify."""
    return isinstance(part, list) and bool(part) and (part[0] == "scaleup" or type(part[0]) is int)


def cluster_of(entry: Entry, document: dict[str, Any]) -> Cluster:
    """The ranks that an entry was solved for, by its request. Raises BadEntry or Unknown."""
    ranks = sum(run[0] for run in entry.capacities)
    if ranks != document["ranks"]:
        raise BadEntry(f"it was solved for {ranks} ranks, its request has {document['ranks']}")
    by_rank = [run[1:] for run in entry.capacities for _ in range(run[0])]
    sizes = [document["context"].get(name) for name in ("local_world_size", "group_size")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise Unknown("its request does not tell which ranks share a host")
    hbm, ddr, ssd = zip(*by_rank, strict=True)
    return Cluster(
        rank_hbm=hbm, rank_ddr=ddr, rank_ssd=ssd, local_world_size=sizes[0], group_size=sizes[1]
    )


def _verify(request: Request, cluster: Cluster, record: PlanRecord) -> str:
    """What is wrong with the plan; empty when nothing is."""
    if not np.isnan(record.load_factor).all():
        raise Unknown("the search resized caches, and their costs are not part of the request")
    space = _estimated(narrowed(request, record))
    numbers = np.arange(len(record.table), dtype=np.int32)
    return verify_plan(Problem(space, cluster), numbers, record.ranks, record.rating)


def _estimated(request: Request) -> SearchSpace:
    try:
        return estimate(request)
    except OutOfRange as error:
        raise Unknown(f"its costs can't be computed again: {error}") from None


def _prove(
    certificate: bytes, rating: float, problem: Problem, request: Request, document: dict[str, Any]
) -> None:
    """Checks the bound that comes with a plan, which is none the worse if that fails."""
    names = [(table.path, table.name) for table in request.tables]
    if proven_bound(certificate, rating, problem, _rules(document), names) is None:
        raise Unknown("its certificate proves no bound, and none will be told")


def _rules(document: dict[str, Any]) -> Objectives:
    """Which plans a bound is about, by the settings of the optimizer."""
    try:
        told = document["context"].get("optimize", {}).get("objectives", {})
        pins, together = dict(told.get("pins", {})), list(told.get("together", ()))
        if not all(type(name) is str for name in (*pins, *chain.from_iterable(together))):
            raise TypeError("tables are named by texts")
        return Objectives(pins=pins, together=together)
    except (AttributeError, TypeError, ValueError):
        raise Unknown("its request does not tell which plans its bound is about") from None
