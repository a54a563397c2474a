"""The plan cache: finds entries for a request, and tells why there is none."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from fastplan import __version__
from fastplan.cache.entry import BadEntry, Entry, decode, encode, pack_request
from fastplan.cache.stores import GuardedStore, Store, StoreError, default_directory, open_store
from fastplan.core.record import BadRecord, PlanRecord
from fastplan.spec.request import Cluster

Capacities = tuple[tuple[int, int, int, int], ...]  # runs of (ranks, hbm, ddr, ssd)


@dataclass(slots=True, kw_only=True)
class CacheReport:
    """What the cache did for one plan: `status` is hit, miss, off or failed."""

    status: str
    reason: str | None = None
    fingerprint: str | None = None
    request: bytes | None = field(default=None, repr=False)  # what the fingerprint is made of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored plan that may serve: it is intact and was solved for capacities like these."""

    name: str
    record: PlanRecord
    certificate: bytes = b""  # packed, and as good as its writer: proven_bound() checks it


class PlanCache:
    """Plans in a store. One object may serve many planners.

    Args:
        where: a directory, a URL that fsspec knows, "memory:", or a store.
        capacity_tolerance: how far, as a fraction, each device's memory may be from what a plan
            was solved for. The plan must fit the devices at hand in any case.
        timeout: seconds that a store may take for one call; a store that fails or hangs costs
            this once, and is left alone afterwards.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Store,
        *,
        capacity_tolerance: float = 0.01,
        timeout: float = 5.0,
    ) -> None:
        _check_settings(capacity_tolerance, timeout)
        self.store = GuardedStore(open_store(where), timeout)
        self.capacity_tolerance = capacity_tolerance

    def find(self, key: str, cluster: Cluster) -> tuple[list[Candidate], str]:
        """Plans that may serve, and why the others may not. Raises StoreError."""
        candidates, reasons = [], []
        for name, data in self.store.use(key):
            try:
                entry = decode(data)
                if entry.key != key:
                    raise BadEntry("it belongs to another request")
                self._check_capacities(entry.capacities, capacities_of(cluster))
                record = PlanRecord.unpack(entry.payload)
                candidates.append(Candidate(name, record, entry.certificate))
            except (BadEntry, BadRecord) as problem:
                reasons.append(f"entry {name}: {problem}")
        return candidates, "; ".join(reasons) or "no entry for this request"

    def put(
        self,
        key: str,
        record: PlanRecord,
        cluster: Cluster,
        request: bytes,
        facts: dict[str, Any],
        certificate: bytes = b"",
    ) -> None:
        """Stores a plan. Raises StoreError."""
        capacities = capacities_of(cluster)
        entry = Entry(
            key=key,
            capacities=capacities,
            rating=record.rating,
            payload=record.pack(),
            request=pack_request(request),
            provenance={
                "fastplan": __version__,
                "python": platform.python_version(),
                "host": platform.node(),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **facts,
            },
            certificate=certificate,
        )
        self.store.write(key, _name(capacities), encode(entry))

    def _check_capacities(self, solved: Capacities, present: Capacities) -> None:
        if sum(run[0] for run in solved) != sum(run[0] for run in present):
            raise BadEntry("it was solved for another number of ranks")
        for rank, (then, now) in enumerate(zip(_by_rank(solved), _by_rank(present), strict=True)):
            for tier, before, after in zip(("hbm", "ddr", "ssd"), then, now, strict=True):
                if abs(after - before) > self.capacity_tolerance * max(abs(before), abs(after)):
                    raise BadEntry(
                        f"rank {rank} has {after} bytes of {tier}, and it was solved for {before}"
                    )


def capacities_of(cluster: Cluster) -> Capacities:
    """Capacities as runs of equal ranks."""
    ranks = zip(cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd, strict=True)
    return tuple((len(list(run)), *each) for each, run in groupby(ranks))


def _by_rank(capacities: Capacities) -> list[tuple[int, int, int]]:
    return [(hbm, ddr, ssd) for count, hbm, ddr, ssd in capacities for _ in range(count)]


def _name(capacities: Sequence[tuple[int, ...]]) -> str:
    """Plans for different devices lie side by side under one key."""
    return hashlib.blake2b(repr(tuple(capacities)).encode(), digest_size=10).hexdigest()


def _check_settings(capacity_tolerance: float, timeout: float) -> None:
    if not 0 <= capacity_tolerance < 1:
        raise ValueError(f"`capacity_tolerance` must be in [0, 1), not {capacity_tolerance}")
    if not timeout > 0:
        raise ValueError(f"`timeout` must be positive, not {timeout}")


def open_cache(where: Any, *, capacity_tolerance: float, timeout: float) -> PlanCache | None:
    """The cache that a planner's `cache` argument means; None for no cache.

    True is the platform's usual directory for caches. None asks the environment (FASTPLAN_CACHE);
    False is no cache, whatever the environment says.
    """
    _check_settings(capacity_tolerance, timeout)
    if isinstance(where, PlanCache):
        return where
    if where is None:
        where = os.environ.get("FASTPLAN_CACHE") or False
    if where is False:
        return None
    if where is True:
        where = default_directory()
    return PlanCache(where, capacity_tolerance=capacity_tolerance, timeout=timeout)


__all__ = ["CacheReport", "Candidate", "PlanCache", "StoreError", "open_cache"]
