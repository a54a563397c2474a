"""The cache key: a hash of everything that decides a plan, and of nothing else.

The request is written as canonical JSON: sorted keys, shortest floats, columns instead of rows.
Device capacities are left out (an entry records those it was solved for), and so is the order in
which a table's options happen to be listed, which on TorchRec 1.8 depends on string hashes.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, get_type_hints

from fastplan.spec.request import Request, Search, Table

# Raise this when the same request may lead to another plan than before.
PLAN_VERSION = 1
_DIGEST_BYTES = 20
_FLOATS = frozenset(name for name, kind in get_type_hints(Table).items() if kind is float)


def canonical_request(
    request: Request, search: Search, *, ranks: int, context: dict[str, Any]
) -> bytes:
    """What the key is made of, as readable bytes.

    `context` has what is not in the request: TorchRec's version, the reservation's policy and
    result, fingerprints of custom parts. Values must be JSON.
    """
    numbers, menus = _canonical_menus(request)
    document = {
        "plan_version": PLAN_VERSION,
        "ranks": ranks,
        "context": context,
        "cost": _fields(request.cost),
        "menus": menus,
        "search": {
            "proposers": [_fields(proposer) for proposer in search.proposers],
            "partitioner": _fields(search.partitioner),
            "timeout_seconds": search.timeout_seconds,
        },
        "tables": _columns(request.tables, numbers),
        "table_count": len(request.tables),
    }
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    ).encode("ascii")


def fingerprint(canonical: bytes) -> str:
    """The key of a canonical request, in hexadecimal."""
    return hashlib.blake2b(canonical, digest_size=_DIGEST_BYTES).hexdigest()


def _canonical_menus(request: Request) -> tuple[list[int], list[Any]]:
    """For every menu its canonical number, and the menus in canonical order."""
    texts = []
    for menu in request.menus:
        items = [
            [item.sharding_type, item.kernel, _plain(item.bandwidth)]
            + [_plain(part) for part in request.coefficients[item.coefficients]]
            for item in menu
        ]
        texts.append(json.dumps(sorted(items, key=lambda item: item[:2])))
    used = {texts[table.menu] for table in request.tables}
    number = {text: i for i, text in enumerate(sorted(used))}
    return [number.get(text, -1) for text in texts], [json.loads(text) for text in sorted(used)]


def _columns(tables: tuple[Table, ...], menu_numbers: list[int]) -> dict[str, Any]:
    """Fields as columns; a field that all tables share is written once."""
    columns: dict[str, Any] = {}
    for name, values in zip(Table._fields, zip(*tables, strict=True), strict=True):
        column: list[Any] = list(values)
        if name == "menu":
            column = [menu_numbers[menu] for menu in column]
        elif name in _FLOATS:
            # A whole number is the same cost whether Python has it as 4 or as 4.0.
            column = list(map(float, column))
            if not all(map(math.isfinite, column)):
                column = [_plain(value) for value in column]
        columns[name] = {"all": column[0]} if column.count(column[0]) == len(column) else column
    return columns


def _fields(record: Any) -> dict[str, Any]:
    """A flat dataclass as JSON; asdict() copies everything twice."""
    return {name: _plain(getattr(record, name)) for name in record.__slots__}


def _plain(value: Any) -> Any:
    """JSON for what JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
