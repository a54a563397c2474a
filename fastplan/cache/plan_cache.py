"""The plan cache: finds entries for a request, and tells why there is none."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeVar

from fastplan import __version__
from fastplan.cache.entry import BadEntry, Entry, decode, encode, pack_request
from fastplan.cache.signing import as_key, check_signature, sign
from fastplan.cache.sketch import entry_name, names_in, sketch_of
from fastplan.cache.stores import (
    GuardedStore,
    Store,
    StoreError,
    default_directory,
    open_store,
)
from fastplan.cache.stores.guarded import Deadline
from fastplan.model.record import PlanRecord
from fastplan.model.request import Cluster

Capacities = tuple[tuple[int, int, int, int], ...]  # runs of (ranks, hbm, ddr, ssd)
T = TypeVar("T")

_MOST_REASONS = 8
_LONGEST_REASON = 300
_KEY_VARIABLE = "FASTPLAN_CACHE_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    capacities: Capacities  # that it was solved for
    certificate: bytes = b""  # packed, and as good as its writer: proven_bound() checks it
    trusted: bool = False  # signed with the cache's key, or where nobody else can write


class PlanCache:
    """Plans in a store. One object may serve many planners.

    Args:
        where: a directory, a URL that fsspec knows, "memory:", or a store.
        capacity_tolerance: how far, as a fraction, each device's memory may be from what a plan
            was solved for. The plan must fit the devices at hand in any case.
        timeout: seconds that a lookup may take, however many entries it reads, and so long for
            writing. A store that fails or hangs costs this once, and is left alone afterwards.
        key: a secret of 16 bytes or more. Entries are signed with it, and those that others wrote
            are misses. Everybody who has the key may write plans.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Store,
        *,
        capacity_tolerance: float = 0.01,
        timeout: float = 5.0,
        key: str | bytes | None = None,
    ) -> None:
        _check_settings(capacity_tolerance, timeout)
        self.store = GuardedStore(open_store(where), timeout)
        self.capacity_tolerance = capacity_tolerance
        self.timeout = timeout
        self._key = None if key is None else as_key(key)

    def find(
        self,
        key: str,
        cluster: Cluster,
        accept: Callable[[Candidate], T],
        deadline: Deadline | None = None,
    ) -> tuple[T | None, str]:
        """What `accept` makes of the first entry it takes; else None, and why no entry served.

        An entry may come from anybody: whatever goes wrong with one, in `accept` too, makes it a
        miss. Raises StoreError when the store fails.
        """
        reasons = []
        deadline = deadline or Deadline(self.timeout)
        found, is_private = self.store.use(key, deadline)
        trusted = is_private or self._key is not None
        for name, data in found:
            if deadline.passed:
                reasons.append(f"the others were not read within {self.timeout:g} s")
                break
            try:
                candidate = self._candidate(key, name, data, cluster)
                return accept(replace(candidate, trusted=trusted)), ""
            except Exception as problem:
                reasons.append(f"entry {name}: {_told(problem)}")
        return None, "; ".join(reasons[:_MOST_REASONS]) or "no entry for this request"

    def decode(self, data: bytes) -> Entry:
        """An entry that this cache may use. Raises BadEntry."""
        entry = decode(data)
        if self._key is not None:
            check_signature(entry, self._key)
        return entry

    def _candidate(self, key: str, name: str, data: bytes, cluster: Cluster) -> Candidate:
        entry = self.decode(data)
        if entry.key != key:
            raise BadEntry("it belongs to another request")
        self._check_capacities(entry.capacities, capacities_of(cluster))
        record = PlanRecord.unpack(entry.payload)
        return Candidate(name, record, entry.capacities, entry.certificate)

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
        if self._key is not None:
            entry = sign(entry, self._key)
        self.store.write(key, _name(capacities, request), encode(entry))

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


def smaller(cluster: Cluster, solved: Capacities) -> Cluster:
    """The cluster with no more memory than a plan was solved for: what fits there fits both."""
    ranks = zip(
        zip(cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd, strict=True),
        _by_rank(solved),
        strict=True,
    )
    least = [tuple(map(min, now, then)) for now, then in ranks]
    hbm, ddr, ssd = zip(*least, strict=True)
    return replace(cluster, rank_hbm=hbm, rank_ddr=ddr, rank_ssd=ssd)


def _by_rank(capacities: Capacities) -> list[tuple[int, int, int]]:
    return [(hbm, ddr, ssd) for count, hbm, ddr, ssd in capacities for _ in range(count)]


def _name(capacities: Capacities, request: bytes) -> str:
    """Plans for different devices lie side by side under one key."""
    devices = hashlib.blake2b(repr(capacities).encode(), digest_size=10).hexdigest()
    ranks = sum(run[0] for run in capacities)
    try:
        return entry_name(devices, ranks, sketch_of(names_in(json.loads(request))))
    except (ValueError, LookupError, TypeError):
        return devices  # what is no request is like no other


def _told(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."


def _check_settings(capacity_tolerance: float, timeout: float) -> None:
    if not 0 <= capacity_tolerance < 1:
        raise ValueError(f"`capacity_tolerance` must be in [0, 1), not {capacity_tolerance}")
    if not timeout > 0:
        raise ValueError(f"`timeout` must be positive, not {timeout}")


def open_cache(
    where: Any, *, capacity_tolerance: float = 0.01, timeout: float = 5.0
) -> PlanCache | None:
    """The cache that a planner's `cache` argument means; None for no cache.

    True is the platform's usual directory for caches. None asks the environment (FASTPLAN_CACHE);
    False is no cache, whatever the environment says. FASTPLAN_CACHE_KEY is the key that entries
    are signed with; a PlanCache has its own.
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
    key = os.environ.get(_KEY_VARIABLE) or None
    return PlanCache(where, capacity_tolerance=capacity_tolerance, timeout=timeout, key=key)


__all__ = ["CacheReport", "Candidate", "PlanCache", "StoreError", "open_cache", "smaller"]
