"""Explains cache misses: the fields that differ between two requests, or from the nearest entry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastplan.cache.entry import BadEntry, request_bytes, table_names
from fastplan.cache.fingerprint import fingerprint
from fastplan.cache.plan_cache import Cache, CacheReport, open_cache, short_reason
from fastplan.cache.stores.base import Deadline
from fastplan.files.storage import parse_json
from fastplan.model.plan import BadRecord, PlanRecord
from fastplan.model.request import Table
from fastplan.model.units import escape_name, format_size

# Entries that are compared field by field.
_MOST_COMPARED = 64
_MOST_SHOWN = 20
_MOST_PROBLEMS = 8
# The fields of a table besides its names. The number of a menu stands for options.
_FIELDS = (*(name for name in Table._fields if name not in ("path", "name", "menu")), "menu")


class Difference(NamedTuple):
    """A field that changed; `field` is a path such as `tables[t3].rows`."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{escape_name(self.field)}: {_short(self.old)} -> {_short(self.new)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissExplanation:
    """Why a request was not in the cache.

    Attributes:
        key: The fingerprint of the request.
        same_key: The entries of this key, each with the reason why it is not used.
        nearest: The key of the nearest other entry; None if there is none.
        changed: The fields that differ from it.
    """

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
            lines += [f"    {change}" for change in self.changed[:_MOST_SHOWN]]
            if len(self.changed) > _MOST_SHOWN:
                lines.append(f"    and {len(self.changed) - _MOST_SHOWN} more")
        return "\n".join(map(escape_name, lines))


def explain_miss(request: str | bytes | CacheReport, cache: Any) -> MissExplanation:
    """Names the fields that changed, with old and new values.

    Args:
        request: `planner.last_run.cache`, its `request`, or the key of an entry in the cache.
        cache: A Cache, or a value for a planner's `cache` argument.

    Raises:
        StoreError: The store failed.
        ValueError: No entry has this key or its request, or no cache is configured.
    """
    from fastplan.cache.nearest import near_entries  # loads the engine

    plans = open_cache(cache, timeout=30.0)
    if plans is None:
        raise ValueError("no cache is configured")
    deadline = Deadline(plans.timeout)
    key, canonical = _read_request(request, plans, deadline)
    same_key = _same_key(plans, key, deadline)
    found: tuple[tuple[int, int], str, list[Difference]] | None = None
    for near in near_entries(plans, canonical, deadline=deadline, most=_MOST_COMPARED):
        try:
            changed = differences(near.canonical, canonical)
        except Exception:  # not a request
            continue
        # Another number of ranks changes many fields; other tables make it another model.
        others = sum("missing" in (each.old, each.new) for each in changed)
        if found is None or (others, len(changed)) < found[0]:
            found = ((others, len(changed)), near.entry.key, changed)
    return MissExplanation(
        key=key,
        same_key=tuple(same_key),
        nearest=found[1] if found else None,
        changed=tuple(found[2]) if found else (),
    )


def differences(old: bytes, new: bytes) -> list[Difference]:
    """Returns all fields that differ between two canonical requests; tables are matched by name."""
    before, after = _parse(old), _parse(new)
    return [*_compare_tables(_Tables(before), _Tables(after)), *_compare("", before, after)]


def format_differences(old: bytes, new: bytes, most: int = 3) -> str:
    """Returns the first differences between two canonical requests as one line."""
    found = differences(old, new)
    if not found:
        return "nothing differs"
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(map(str, found[:most])) + more


def _read_request(
    request: str | bytes | CacheReport, plans: Cache, deadline: Deadline
) -> tuple[str, bytes]:
    """Returns the key and the canonical request."""
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
        _check_request(request)
        return fingerprint(request), request
    problems = []
    for name, data in plans.store.read(request, deadline):
        try:
            stored = request_bytes(plans.decode(data))
            if not stored or fingerprint(stored) != request:
                raise BadEntry("it has another key's request" if stored else "it has no request")
            _check_request(stored)
            return request, stored
        except (BadEntry, ValueError) as problem:
            problems.append(f"entry {name}: {short_reason(problem)}")
    if problems:
        what = f"no entry of the key {request} has a request that can be compared"
        raise ValueError(
            f"{what}; pass the request itself ({'; '.join(problems[:_MOST_PROBLEMS])})"
        )
    raise ValueError(f"no entry has the key {request}; pass the request itself")


def _check_request(canonical: bytes) -> None:
    """Raises ValueError unless the bytes are a request that can be compared with others."""
    from fastplan.cache.nearest import read_request

    read_request(canonical)
    try:
        tables = _Tables(_parse(canonical))
        for name in tables.number:
            tables.row(name, [*_FIELDS])
    except Exception as error:  # untrusted bytes
        raise ValueError(f"it can't be compared: {short_reason(error)}") from error


def _same_key(plans: Cache, key: str, deadline: Deadline) -> list[str]:
    reasons = []
    for name, data in plans.store.read(key, deadline):
        try:
            entry = plans.decode(data)
            PlanRecord.unpack(entry.payload)
        except (BadEntry, BadRecord) as problem:
            reasons.append(f"entry {name} can't be read: {problem}")
            continue
        if entry.key != key:
            reasons.append(f"entry {name} belongs to another request, {entry.key}")
            continue
        solved = ", ".join(
            f"{count} x ({format_size(hbm)} HBM, {format_size(ddr)} DDR, {format_size(ssd)} SSD)"
            for count, hbm, ddr, ssd in entry.capacities[:3]
        )
        reasons.append(f"entry {name} was solved for {solved}")
    return reasons


def _parse(canonical: bytes) -> dict[str, Any]:
    document: dict[str, Any] = parse_json(canonical.decode()) if canonical else {}
    return document


class _Tables:
    """The tables of a document by path and name. Columns are not expanded, because a few bytes can
    stand for many tables."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._columns = document.pop("tables", {}) or {}
        self._menus = document.pop("menus", [])
        count = document.pop("table_count", 0)
        self.number: dict[str, int] = {}
        if self._columns:
            table_names({"tables": self._columns, "table_count": count})  # raises if invalid
            ordered = (self._value(name, i) for i in range(count) for name in ("path", "name"))
            pairs = zip(ordered, ordered, strict=True)
            self.number = {
                f"{path}.{name}" if path else name: i for i, (path, name) in enumerate(pairs)
            }

    def unequal_fields(self, other: _Tables) -> list[str]:
        """Returns the fields that may differ in a table that both have.

        Comparing whole columns takes a fraction of the time of comparing each table.
        """
        if self.number != other.number:
            return [*_FIELDS]
        return [field for field in _FIELDS if self._column(field) != other._column(field)]

    def row(self, name: str, fields: list[str]) -> dict[str, Any]:
        """Returns fields of a table, with its options in place of the number of their menu."""
        number = self.number[name]
        row = {field: self._value(field, number) for field in fields if field in self._columns}
        if "menu" in fields:
            row["options"] = self._menus[row.pop("menu")]
        return row

    def _column(self, field: str) -> Any:
        """Returns what a field has in all tables."""
        column = self._columns.get(field)
        return (column, self._menus) if field == "menu" else column

    def _value(self, field: str, number: int) -> Any:
        column = self._columns[field]
        return column["all"] if isinstance(column, dict) else column[number]


def _compare_tables(old: _Tables, new: _Tables) -> Iterator[Difference]:
    for name in old.number:
        if name not in new.number:
            yield Difference(f"tables[{name}]", "present", "missing")
    for name in new.number:
        if name not in old.number:
            yield Difference(f"tables[{name}]", "missing", "present")
    common = [name for name in old.number if name in new.number]
    if common != [name for name in new.number if name in old.number]:
        yield Difference("tables", "in one order", "in another order")
    fields = old.unequal_fields(new)
    for name in common if fields else ():
        before, after = old.row(name, fields), new.row(name, fields)
        for field in before:
            if before[field] != after.get(field):
                yield Difference(f"tables[{name}].{field}", before[field], after.get(field))


def _compare(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            inner = f"{path}.{name}" if path else name
            yield from _compare(inner, old.get(name), new.get(name))
    elif old != new:
        yield Difference(path, old, new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
