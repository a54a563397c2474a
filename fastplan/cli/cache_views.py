"""Formats cached plans as text and as JSON. Nothing is escaped here: printing does that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from fastplan.cache.entry import BadEntry, Entry, request_bytes
from fastplan.cache.inventory import EntryInfo
from fastplan.cli.output import table
from fastplan.report.units import format_bytes, format_count, format_milliseconds, format_percent

KEY_DIGITS = 12  # enough to distinguish keys
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))
_TIERS = ("HBM", "DDR", "SSD")


_COLUMNS = (  # title, alignment
    ("key", "<"),
    ("model", "<"),
    ("tables", ">"),
    ("SKU", "<"),
    ("ranks", ">"),
    ("precision", "<"),
    ("costs", "<"),
    ("torchrec", "<"),
    ("engine", "<"),
    ("rating", ">"),
    ("size", ">"),
    ("created", "<"),
    ("used", ">"),
)


def list_lines(items: list[EntryInfo], now: float) -> list[str]:
    """Returns a table of entries, with what tells them apart."""
    titles = [title for title, _ in _COLUMNS]
    return table(titles, [_row(item, now) for item in items], "".join(a for _, a in _COLUMNS))


def _row(item: EntryInfo, now: float) -> list[str]:
    facts = _facts(item.entry)
    facts |= {
        "key": item.stored.key[:KEY_DIGITS],
        "size": format_bytes(item.stored.size),
        "used": _ago(item.stored.used, now),
    }
    if item.entry is None:
        facts |= dict.fromkeys((title for title, _ in _COLUMNS if title not in facts), "")
        facts["model"] = "can't be read"
    else:
        facts["rating"] = format_milliseconds(item.entry.rating)
        facts["SKU"] = facts["sku"] if "sku" in facts else _memory(item.entry)
    return [facts[title] for title, _ in _COLUMNS]


def _memory(entry: Entry) -> str:
    """Returns the device memory for tables, which stands for an unknown SKU."""
    sizes = {run[1] or run[2] for run in entry.capacities}
    return f"{format_bytes(max(sizes))} each" if len(sizes) == 1 else "various"


def item_json(item: EntryInfo) -> dict[str, Any]:
    """Returns an entry for `ls --json`."""
    stored, entry = item.stored, item.entry
    return {
        "key": stored.key,
        "name": stored.name,
        "size": stored.size,
        "used": _date(stored.used),
        "rating": None if entry is None else entry.rating,
        "capacities": None if entry is None else entry.capacities,
        "provenance": None if entry is None else entry.provenance,
        "problem": item.problem,
    }


def show_lines(item: EntryInfo, now: float) -> Iterator[str]:
    """Yields the lines of `show` for one entry."""
    stored, entry = item.stored, item.entry
    yield f"key         {stored.key}"
    yield f"name        {stored.name}"
    if entry is None:
        yield f"problem     {item.problem or ''}"
        return
    facts = _facts(entry)
    created = f"{facts['created']} by fastplan {facts['fastplan']}, Python {facts['python']}"
    yield f"created     {created} on {facts['host']}"
    yield f"planned by  {facts['engine']} engine, TorchRec {facts['torchrec']}"
    yield f"rating      {format_milliseconds(entry.rating)}"
    parts = f"plan {format_bytes(len(entry.payload))}, request {format_bytes(len(entry.request))}"
    yield f"size        {format_bytes(stored.size)}: {parts}"
    used = _ago(stored.used, now)
    yield f"used        {'unknown' if used == '?' else f'{used} ago'}"
    for i, (count, *sizes) in enumerate(entry.capacities):
        tiers = ", ".join(
            f"{format_bytes(n)} {tier}" for n, tier in zip(sizes, _TIERS, strict=True)
        )
        yield f"{'' if i else 'solved for':<12}{format_count(count, 'rank')} with {tiers}"
    yield f"plan        {_plan(entry)}"
    yield from _request_lines(entry)
    known = ("created", "fastplan", "python", "host", "engine", "torchrec", "tables", "ranks")
    for name in sorted(set(entry.provenance) - set(known)):
        yield f"{name:<12}{facts[name]}"


def _plan(entry: Entry) -> str:
    """Returns the number of tables by sharding type and kernel."""
    from fastplan.model.plan import BadRecord, PlanRecord
    from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES

    try:
        record = PlanRecord.unpack(entry.payload)
    except BadRecord as problem:
        return f"can't be read: {problem}"
    pairs = zip(record.sharding_type.tolist(), record.kernel.tolist(), strict=True)
    kinds = Counter((SHARDING_TYPES[kind], KERNELS[kernel]) for kind, kernel in pairs)
    return ", ".join(
        f"{format_count(count, 'table')} {kind} {kernel}"
        for (kind, kernel), count in kinds.most_common()
    )


def _request_lines(entry: Entry) -> Iterator[str]:
    from fastplan.cache.fingerprint import parse_canonical

    try:
        canonical = request_bytes(entry)
        if not canonical:
            yield "request     not stored"
            return
        request, document = parse_canonical(canonical)
    except (BadEntry, ValueError) as problem:
        yield f"request     can't be read: {problem!s}"
        return
    tables = request.tables
    rows, size = sum(table.rows for table in tables), sum(table.bytes for table in tables)
    yield f"request     {format_count(len(tables), 'table')}, {rows:,} rows, {format_bytes(size)}"
    context = document["context"]
    reserved = context.get("reservation")
    host = context.get("local_world_size")
    ranks = format_count(document["ranks"], "rank")
    yield f"cluster     {ranks}, {host!s} per host"
    if isinstance(reserved, dict):
        yield f"reserved    {_reserved(reserved)}"
    proposers = ", ".join(proposer["kind"] for proposer in document["search"]["proposers"])
    yield f"search      {proposers}"
    if context.get("custom"):
        yield f"custom      {json.dumps(context['custom'])}"


def _reserved(reserved: dict[str, Any]) -> str:
    """Returns a reservation in words; its sizes are by tier."""
    parts = []
    for name, value in sorted(reserved.items()):
        if isinstance(value, dict):
            sizes = {t: n for t, n in value.items() if isinstance(n, int) and n}
            if not sizes:
                continue
            value = ", ".join(f"{format_bytes(n)} {tier.upper()}" for tier, n in sizes.items())
        elif name == "policy":
            value = str(value).rpartition(".")[2]
        elif isinstance(value, float):
            value = format_percent(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            value = format_bytes(value)
        parts.append(f"{name.replace('_', ' ')} {value}")
    return "; ".join(parts)


def request_text(entry: Entry) -> str:
    """Returns the canonical request as ASCII, for any entry.

    Raises:
        BadEntry: The request can't be unpacked.
    """
    return request_bytes(entry).decode("ascii", "backslashreplace")


# Entries of older versions don't have these.
_OF_LATER_VERSIONS = ("model", "sku", "precision", "costs")


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?" if name not in _OF_LATER_VERSIONS else ""


def _facts(entry: Entry | None) -> _Facts:
    """Returns the provenance as text for display; "?" for missing fields."""
    if entry is None:
        return _Facts()
    return _Facts({name: str(value) for name, value in entry.provenance.items()})


def _date(used: float | None) -> str | None:
    """Returns a time as text; None if it is unknown or has no date, as files can have any time."""
    if used is None:
        return None
    try:
        return datetime.fromtimestamp(used, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _ago(used: float | None, now: float) -> str:
    if used is None or _date(used) is None:
        return "?"
    seconds = max(0.0, now - used)
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
