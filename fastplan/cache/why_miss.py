"""Why a request was not in the cache: what differs from the nearest entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.cache.differences import Difference, differences
from fastplan.cache.entry import BadEntry, request_bytes
from fastplan.cache.fingerprint import fingerprint
from fastplan.cache.nearest import near_entries
from fastplan.cache.plan_cache import CacheReport, PlanCache, open_cache
from fastplan.cache.stores.guarded import Deadline

# Entries that are compared field by field.
_MOST_COMPARED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MissExplanation:
    """Entries under the same key and why they don't serve; and the nearest other request."""

    key: str
    same_key: tuple[str, ...]
    nearest: str | None
    changed: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = [f"request {self.key}"]
        lines += [f"  same request, {reason}" for reason in self.same_key]
        if self.nearest is None:
            lines.append("  no other entry to compare with")
        else:
            lines.append(f"  nearest entry {self.nearest}: {len(self.changed)} fields differ")
            lines += [f"    {change}" for change in self.changed[:20]]
            if len(self.changed) > 20:
                lines.append(f"    and {len(self.changed) - 20} more")
        return "\n".join(lines)


def explain_miss(request: str | bytes | CacheReport, cache: Any) -> MissExplanation:
    """Names the field that changed, with old and new value.

    Args:
        request: `planner.last_run.cache`, its `request`, or the key of an entry in the cache.
        cache: a PlanCache, or what a planner's `cache` argument takes.

    Raises StoreError when the store does, and ValueError for a key that no entry has.
    """
    plans = open_cache(cache, capacity_tolerance=0.01, timeout=30.0)
    if plans is None:
        raise ValueError("there is no cache to look into")
    deadline = Deadline(plans.timeout)
    key, canonical = _read(request, plans, deadline)
    same_key = _same_key(plans, key, deadline)
    found: tuple[int, str, list[Difference]] | None = None
    for near in near_entries(plans, canonical, deadline=deadline, most=_MOST_COMPARED):
        try:
            changed = differences(near.canonical, canonical)
        except Exception:  # it keeps something else than a request
            continue
        if found is None or len(changed) < found[0]:
            found = (len(changed), near.entry.key, changed)
    return MissExplanation(
        key=key,
        same_key=tuple(same_key),
        nearest=found[1] if found else None,
        changed=tuple(found[2]) if found else (),
    )


def _read(
    request: str | bytes | CacheReport, plans: PlanCache, deadline: Deadline
) -> tuple[str, bytes]:
    if isinstance(request, CacheReport):
        if request.request is None:
            raise ValueError(f"the cache was {request.status}: {request.reason}")
        request = request.request
    if not isinstance(request, str | bytes):
        raise TypeError(
            "`request` must be `planner.last_run.cache`, its `request`, or the key of an entry, "
            f"not {request!r}"
        )
    if isinstance(request, bytes):
        return fingerprint(request), request
    for _, data in plans.store.read(request, deadline):
        try:
            stored = request_bytes(plans.decode(data))
        except BadEntry:
            continue
        if fingerprint(stored) == request:
            return request, stored
    raise ValueError(f"no entry has the key {request}; give the request itself")


def _same_key(plans: PlanCache, key: str, deadline: Deadline) -> list[str]:
    reasons = []
    for name, data in plans.store.read(key, deadline):
        try:
            entry = plans.decode(data)
        except BadEntry as problem:
            reasons.append(f"entry {name} can't be read: {problem}")
            continue
        solved = ", ".join(
            f"{count} x ({hbm} hbm, {ddr} ddr, {ssd} ssd)"
            for count, hbm, ddr, ssd in entry.capacities[:3]
        )
        reasons.append(f"entry {name} was solved for {solved} bytes")
    return reasons
