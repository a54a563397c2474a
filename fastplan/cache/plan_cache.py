"""The plan cache: finds entries for a request, or reports why there is none."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastplan import __version__
from fastplan.cache.entry import (
    BadEntry,
    Entry,
    capacities_of,
    check_signature,
    decode,
    encode,
    entry_name,
    pack_request,
    parse_key,
    sign,
    sketch_of,
    table_names,
)
from fastplan.cache.stores import (
    GuardedStore,
    Store,
    StoreError,
    default_directory,
    open_store,
)
from fastplan.cache.stores.base import Deadline
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster
from fastplan.model.units import format_size

Capacities = tuple[tuple[int, int, int, int], ...]  # runs of (ranks, hbm, ddr, ssd)
T = TypeVar("T")

_MOST_REASONS = 8
_LONGEST_REASON = 300
_KEY_VARIABLE = "FASTPLAN_CACHE_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReport:
    """The cache's report for one plan; `status` is hit, miss, off or failed."""

    status: str
    reason: str | None = None
    fingerprint: str | None = None
    request: bytes | None = field(default=None, repr=False)  # what the fingerprint is a hash of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored plan that may be used: it is intact and was solved for similar capacities."""

    name: str
    record: PlanRecord
    capacities: Capacities  # that it was solved for
    certificate: bytes = b""  # packed and unchecked: see proven_bound()
    trusted: bool = False  # signed with the cache's key, or no other user can write there


class Cache:
    """A plan cache. Several planners can share it.

    Args:
        where: A directory, a URL that fsspec supports, "memory:", or a store.
        capacity_tolerance: How far each device's memory may differ from the memory that a plan was
            solved for, as a fraction. The plan must always fit the devices in use.
        timeout: Seconds that a lookup may take, for any number of entries, and the same for
            writing. If the store fails or hangs, this time is spent once and the store is not used
            again.
        key: A secret of 16 bytes or more. Entries are signed with it, and entries with another
            signature are misses. Anyone who has the key can write plans.
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
        self._key = None if key is None else parse_key(key)

    def find(
        self,
        key: str,
        cluster: Cluster,
        accept: Callable[[Candidate], T],
        deadline: Deadline | None = None,
    ) -> tuple[T | None, str]:
        """Looks up a plan.

        Entries are untrusted input: any error with one, in `accept` too, makes it a miss.

        Args:
            key: The fingerprint of the request.
            cluster: The devices in use.
            accept: Called with each candidate; it raises to reject it.
            deadline: When the lookup must end; by default after `timeout` seconds.

        Returns:
            The result of `accept` for the first entry that it accepts, or None and the reasons.

        Raises:
            StoreError: The store failed.
        """
        reasons = []
        deadline = deadline or Deadline(self.timeout)
        found, is_private = self.store.use(key, deadline)
        trusted = is_private or self._key is not None
        for name, data in found:
            if deadline.passed:
                reasons.append(f"other entries were not read within {self.timeout:g} s")
                break
            try:
                return accept(self._candidate(key, name, data, cluster, trusted)), ""
            except Exception as problem:
                reasons.append(f"entry {name}: {short_reason(problem)}")
        return None, "; ".join(reasons[:_MOST_REASONS]) or "no entry for this request"

    def decode(self, data: bytes) -> Entry:
        """Reads an entry that this cache may use.

        Raises:
            BadEntry: The entry is damaged, or not signed with this cache's key.
        """
        entry = decode(data)
        if self._key is not None:
            check_signature(entry, self._key)
        return entry

    def _candidate(
        self, key: str, name: str, data: bytes, cluster: Cluster, trusted: bool
    ) -> Candidate:
        entry = self.decode(data)
        if entry.key != key:
            raise BadEntry("it belongs to another request")
        self._check_capacities(entry.capacities, capacities_of(cluster))
        record = PlanRecord.unpack(entry.payload)
        return Candidate(name, record, entry.capacities, entry.certificate, trusted)

    def put(
        self,
        key: str,
        record: PlanRecord,
        cluster: Cluster,
        request: bytes,
        facts: dict[str, Any],
        certificate: bytes = b"",
    ) -> None:
        """Stores a plan.

        Args:
            key: The fingerprint of the request.
            record: The plan.
            cluster: The devices that it was solved for.
            request: The canonical request.
            facts: More provenance, such as TorchRec's version.
            certificate: Packed; proves a bound on all plans.

        Raises:
            StoreError: The store failed.
        """
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
        if solved == present:
            return
        if sum(run[0] for run in solved) != sum(run[0] for run in present):
            raise BadEntry("it was solved for a different number of ranks")
        for rank, (then, now) in enumerate(zip(_by_rank(solved), _by_rank(present), strict=True)):
            for tier, before, after in zip(("hbm", "ddr", "ssd"), then, now, strict=True):
                if abs(after - before) > self.capacity_tolerance * max(abs(before), abs(after)):
                    own, others = _distinct_sizes(after, before)
                    raise BadEntry(
                        f"rank {rank} has {own} of {tier.upper()}, but it was solved for {others}"
                    )


def _distinct_sizes(one: int, two: int) -> tuple[str, str]:
    """Formats two sizes, in bytes if they would look the same."""
    texts = format_size(one), format_size(two)
    # `1 GiB` is exactly that, `1.0 GiB` is not.
    alike = texts[0].replace(".0 ", " ") == texts[1].replace(".0 ", " ")
    return (f"{one:,} B", f"{two:,} B") if alike else texts


def _by_rank(capacities: Capacities) -> list[tuple[int, int, int]]:
    return [(hbm, ddr, ssd) for count, hbm, ddr, ssd in capacities for _ in range(count)]


def _name(capacities: Capacities, request: bytes) -> str:
    """Returns the name of an entry: a key has one entry per class of capacities."""
    devices = hashlib.blake2b(repr(capacities).encode(), digest_size=10).hexdigest()
    ranks = sum(run[0] for run in capacities)
    try:
        return entry_name(devices, ranks, sketch_of(table_names(json.loads(request))))
    except (ValueError, LookupError, TypeError):
        return devices  # without a request there is nothing to compare


def short_reason(problem: Exception) -> str:
    """Returns the message of an error about an entry, which may be as long as the entry."""
    text = str(problem) or type(problem).__name__
    if isinstance(problem, KeyError):  # its message is only the name
        text = f"it has no {text}"
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."


def _check_settings(capacity_tolerance: float, timeout: float) -> None:
    if not 0 <= capacity_tolerance < 1:
        raise ValueError(f"`capacity_tolerance` must be in [0, 1), not {capacity_tolerance}")
    if not timeout > 0:
        raise ValueError(f"`timeout` must be positive, not {timeout}")


def open_cache(where: Any, *, timeout: float = 5.0) -> Cache | None:
    """The cache that a planner's `cache` argument means; None for no cache.

    FASTPLAN_CACHE_KEY is the key that entries are signed with; a Cache has its own.

    Args:
        where: A Cache or anything that it opens. True is the platform's cache directory, None
            is the environment's FASTPLAN_CACHE, False is no cache.
        timeout: See Cache.

    Returns:
        The cache, or None for no cache.
    """
    if isinstance(where, Cache):
        return where
    if where is None:
        where = os.environ.get("FASTPLAN_CACHE") or False
    if where is False:
        return None
    return cache_at(default_directory() if where is True else where, timeout=timeout)


def cache_at(where: str | os.PathLike[str] | Store, *, timeout: float = 5.0) -> Cache:
    """The cache in a place, with the key of FASTPLAN_CACHE_KEY.

    Raises:
        ValueError: FASTPLAN_CACHE_KEY is no key.
    """
    key = os.environ.get(_KEY_VARIABLE) or None
    if key is not None:
        try:
            parse_key(key)
        except ValueError as error:
            raise ValueError(f"{_KEY_VARIABLE}: {error}") from None
    return Cache(where, timeout=timeout, key=key)


__all__ = ["Cache", "CacheReport", "Candidate", "StoreError", "cache_at", "open_cache"]
