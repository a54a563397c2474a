"""Verifies entries as far as their costs can be recomputed."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from fastplan.cache.entry import BadEntry, Entry, request_bytes
from fastplan.cache.fingerprint import fingerprint, parse_canonical
from fastplan.cache.plan_cache import short_reason
from fastplan.engine.layout import has_sizes, narrowed
from fastplan.engine.packed_certificate import proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import OutOfRange, estimate, verify_plan
from fastplan.model.limits import MOST_RANKS
from fastplan.model.objectives import Objectives
from fastplan.model.plan import BadRecord, PlanRecord
from fastplan.model.request import Cluster, Request

GOOD = "good"
PARTLY = "partly"  # intact, but not everything can be recomputed
BAD = "bad"


class NotVerifiable(Exception):
    """A check needs objects that the request does not contain."""


class Verdict(NamedTuple):
    """The result of an audit: GOOD, PARTLY or BAD, and the reason unless it is good."""

    status: str
    reason: str | None = None


def audit(entry: Entry) -> Verdict:
    """Verifies an entry.

    Checks the request's key, estimates the plan again, and verifies it natively against the
    capacities that it was solved for. Then it checks the certificate, if there is one. An entry may
    contain anything, so no error is raised for it.
    """
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
            problem = Problem(estimate(request), cluster)
            _check_bound(entry.certificate, record.rating, problem, request, document)
    except (NotVerifiable, MemoryError) as why:
        return Verdict(PARTLY, short_reason(why))
    except OutOfRange as error:
        return Verdict(PARTLY, f"its costs can't be recomputed: {error}")
    except Exception as error:  # untrusted bytes
        return Verdict(BAD, short_reason(error))
    return Verdict(BAD, complaint) if complaint else Verdict(GOOD)


def cluster_of(entry: Entry, document: dict[str, Any]) -> Cluster:
    """Returns the cluster that an entry was solved for.

    Args:
        entry: The entry.
        document: Its request, parsed as JSON.

    Raises:
        BadEntry: The capacities don't match the request.
        NotVerifiable: The request does not say which ranks share a host, or has too many ranks.
    """
    ranks = sum(run[0] for run in entry.capacities)
    if ranks != document["ranks"]:
        raise BadEntry(f"it was solved for {ranks} ranks, its request has {document['ranks']}")
    if ranks > MOST_RANKS:  # a few bytes can stand for any number of them
        raise NotVerifiable(f"it was solved for {ranks} ranks; at most {MOST_RANKS} are checked")
    sizes = [document["context"].get(name) for name in ("local_world_size", "group_size")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise NotVerifiable("its request does not say which ranks share a host")
    hbm, ddr, ssd = (
        tuple(chain.from_iterable(repeat(run[tier], run[0]) for run in entry.capacities))
        for tier in (1, 2, 3)
    )
    return Cluster(
        rank_hbm=hbm, rank_ddr=ddr, rank_ssd=ssd, local_world_size=sizes[0], group_size=sizes[1]
    )


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
    if not has_sizes(request, record):
        raise NotVerifiable("the search resized caches, and their costs are not in the request")
    space = estimate(narrowed(request, record))
    numbers = np.arange(len(record.table), dtype=np.int32)
    return verify_plan(Problem(space, cluster), numbers, record.ranks, record.rating)


def _check_bound(
    certificate: bytes, rating: float, problem: Problem, request: Request, document: dict[str, Any]
) -> None:
    """Checks the bound of a plan. The plan stays valid if the check fails."""
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
