"""The cache key: a hash of everything that decides a plan, and of nothing else.

The request is written as canonical JSON: sorted keys, shortest floats, columns instead of rows.
Device capacities are not in it (an entry records those it was solved for), nor is the order in
which a table's options are listed, which on TorchRec 1.8 depends on string hashes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NoReturn, get_args, get_type_hints

import numpy as np

from fastplan.cache.id_curves import curves_json, parse_curves
from fastplan.engine import _native
from fastplan.files import storage
from fastplan.model.hardware_costs import CONSTANTS
from fastplan.model.request import (
    Coefficients,
    CostModel,
    HardwareCosts,
    MenuItem,
    Partitioner,
    Proposer,
    Request,
    Search,
    Table,
)
from fastplan.model.vocabulary import FIELD_CHOICES, KERNELS, SHARDING_TYPES, SIZE_FIELDS

# Increase this when the same request may lead to a different plan.
PLAN_VERSION = 1
_DIGEST_BYTES = 20
_types_of = cache(get_type_hints)
_TABLE_TYPES = _types_of(Table)
_FLOATS = frozenset(name for name, kind in _TABLE_TYPES.items() if kind is float)

_LARGEST = (1 << 63) - 1
_MOST_TABLES = 1 << 22
_MOST_RANKS = 1 << 24
_NOT_FINITE = {repr(value): value for value in (math.nan, math.inf, -math.inf)}
_PARTS = (
    "context",
    "cost",
    "menus",
    "plan_version",
    "ranks",
    "search",
    "table_count",
    "tables",
)
_OPTIONAL_PARTS = ("hardware",)
_OPTION = itemgetter(0, 1)


def canonical_request(
    request: Request, search: Search, *, ranks: int, context: dict[str, Any]
) -> bytes:
    """Returns the canonical form of a request, which the key is a hash of.

    Args:
        request: The tables and their options.
        search: The proposers and the partitioner.
        ranks: The number of ranks.
        context: What is not in the request: TorchRec's version, the reservation's policy and
            result, fingerprints of custom parts. Numbers that JSON lacks are written as text.
    """
    numbers, menus = _canonical_menus(request)
    others = {
        "plan_version": PLAN_VERSION,
        "ranks": ranks,
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
    if request.hardware is not None:
        others["hardware"] = _hardware_fields(request.hardware)
    # The first key of all.
    return b'{"context":' + _encoded(context) + b"," + _encoded(others)[1:]


def _encoded(document: object, *, spell: bool = True) -> bytes:
    """Returns canonical JSON; `spell` writes numbers that JSON lacks as text."""
    if (encoded := _native.canonical_json(document, spell=spell)) is not None:
        return encoded
    return storage.canonical_json(_plain(document) if spell else document)  # not all is plain


def canonical_json(document: object) -> bytes:
    """Returns the only valid encoding of a document, as `storage.canonical_json` does, but sooner.

    Raises:
        ValueError: A number is not finite.
    """
    return _encoded(document, spell=False)


def _hardware_fields(costs: HardwareCosts) -> dict[str, Any]:
    """Returns the hardware costs as JSON; `ids` only if a table has statistics."""
    found = {name: getattr(costs, name) for name in costs.__slots__ if name != "ids"}
    return {**found, "ids": curves_json(costs.ids)} if costs.ids else found


def fingerprint(canonical: bytes) -> str:
    """Returns the key of a canonical request, in hexadecimal."""
    return hashlib.blake2b(canonical, digest_size=_DIGEST_BYTES).hexdigest()


def parse_canonical(canonical: bytes) -> tuple[Request, dict[str, Any]]:
    """Reads a canonical request.

    Returns:
        The request, with menus in canonical order, and the whole document: `ranks`, `context`,
        `search`.

    Raises:
        ValueError: The bytes are not a canonical request. The message names the field.
    """
    try:
        document = storage.parse_json(canonical.decode())
    except ValueError as error:
        raise ValueError(f"a canonical request must be JSON: {str(error)[:80]}") from None
    return parse_document(_object(document, "the request"))


def parse_document(document: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
    """Reads the parsed JSON of a canonical request. Returns and raises like `parse_canonical`."""
    _check_fields(document, _PARTS, "", _OPTIONAL_PARTS)
    version = document["plan_version"]
    if type(version) is not int or version != PLAN_VERSION:
        _fail("plan_version", f"{PLAN_VERSION}, the only one that can be read", version)
    _integer(document["ranks"], "ranks", 0, _MOST_RANKS)
    _object(document["context"], "context")
    parse_search(document)
    menus, coefficients = _parse_menus(document["menus"])
    tables = _parse_tables(document["tables"], document["table_count"], len(menus))
    request = Request(
        tables=tables,
        menus=menus,
        coefficients=coefficients,
        cost=_parse_record(CostModel, document["cost"], "cost"),
        hardware=_parse_hardware(document.get("hardware"), len(tables)),
    )
    return request, document


def _parse_hardware(value: Any, tables: int) -> HardwareCosts | None:
    """Returns the hardware costs; None if the costs are TorchRec's."""
    if value is None:
        return None
    found = dict(_object(value, "hardware"))
    ids = parse_curves(found.pop("ids"), tables, "hardware.ids") if "ids" in found else ()
    costs: HardwareCosts = _parse_record(HardwareCosts, found, "hardware", without="ids")
    for name, count in (("constants", len(CONSTANTS)), ("states", tables)):
        numbers = getattr(costs, name)
        if len(numbers) != count:
            _fail(f"hardware.{name}", f"{count} numbers", len(numbers))
        for i, number in enumerate(numbers):
            if not 0 <= number < math.inf:
                _fail(f"hardware.{name}[{i}]", "a number of at least 0", number)
    _integer(costs.domain_ranks, "hardware.domain_ranks", 1, _MOST_RANKS)
    return replace(costs, ids=ids) if ids else costs


def parse_search(document: dict[str, Any]) -> Search:
    """Returns the search of a document of `parse_canonical`, without custom parts."""
    found = _object(document["search"], "search")
    # An objective is a custom part.
    known = [field.name for field in fields(Search) if field.name != "objective"]
    _check_fields(found, known, "search")
    return Search(
        proposers=tuple(
            _parse_record(Proposer, each, f"search.proposers[{i}]")
            for i, each in enumerate(_list(found["proposers"], "search.proposers"))
        ),
        partitioner=_parse_record(Partitioner, found["partitioner"], "search.partitioner"),
        timeout_seconds=_number(found["timeout_seconds"], "search.timeout_seconds"),
    )


def _canonical_menus(request: Request) -> tuple[list[int], list[Any]]:
    """Returns the canonical number of every menu, and the menus in canonical order."""
    rows = request.coefficients
    menus = [
        sorted(([*item[:3], *rows[item.coefficients]] for item in menu), key=_OPTION)
        for menu in request.menus
    ]
    texts = [*map(_encoded, menus)]
    by_text = dict(zip(texts, menus, strict=True))
    used = sorted({texts[table.menu] for table in request.tables})
    number = {text: i for i, text in enumerate(used)}
    return [number.get(text, -1) for text in texts], [by_text[text] for text in used]


def _columns(tables: tuple[Table, ...], menu_numbers: list[int]) -> dict[str, Any]:
    """Returns fields as columns; a value that all tables share is written once."""
    columns: dict[str, Any] = {}
    for name, column in zip(Table._fields, _native.columns_of(tables), strict=True):
        if name == "menu":
            column = [menu_numbers[menu] for menu in column]
        elif name in _FLOATS:
            # 4 and 4.0 are the same cost.
            column = list(map(float, column))
            if not all(map(math.isfinite, column)):
                column = [_plain(value) for value in column]
        shared = column.count(column[0]) == len(column)
        columns[name] = {"all": column[0]} if shared else column
    return columns


def _fields(record: Any) -> dict[str, Any]:
    """Returns a flat dataclass as a dict; asdict() would copy everything twice."""
    return {name: getattr(record, name) for name in record.__slots__}


def _plain(value: Any) -> Any:
    """Returns JSON for values that JSON can't represent."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


def _parse_menus(
    value: Any,
) -> tuple[tuple[tuple[MenuItem, ...], ...], tuple[Coefficients, ...]]:
    coefficients: dict[Coefficients, int] = {}
    menus = []
    for i, menu in enumerate(_list(value, "menus")):
        items = []
        for j, item in enumerate(_list(menu, f"menus[{i}]")):
            place = f"menus[{i}][{j}]"
            if len(_list(item, place)) != 5:
                _fail(place, "sharding type, kernel, bandwidth and two coefficients", item)
            kind, kernel, bandwidth, fwd, bwd = item
            row = Coefficients(
                _parse_coefficients(fwd, f"{place}[3]"),
                None if bwd is None else _parse_coefficients(bwd, f"{place}[4]"),
            )
            items.append(
                MenuItem(
                    _one_of(SHARDING_TYPES, kind, f"{place}[0]"),
                    _one_of(KERNELS, kernel, f"{place}[1]"),
                    _number(bandwidth, f"{place}[2]"),
                    coefficients.setdefault(row, len(coefficients)),
                )
            )
        menus.append(tuple(items))
    return tuple(menus), tuple(coefficients)


def _parse_coefficients(value: Any, place: str) -> tuple[float, float, float, float]:
    if len(_list(value, place)) != 4:
        _fail(place, "four numbers", value)
    a, b, c, d = (_number(item, f"{place}[{i}]") for i, item in enumerate(value))
    return a, b, c, d


def _parse_tables(value: Any, count: Any, menus: int) -> tuple[Table, ...]:
    _integer(count, "table_count", 1, _MOST_TABLES)
    columns = _object(value, "tables")
    _check_fields(columns, Table._fields, "tables")
    if count > 1 and all(type(columns[name]) is dict for name in ("path", "name")):
        # Checked before columns are filled up: a short text must not create long tables.
        raise ValueError("tables.name: is the same for all tables")
    tables = tuple(
        map(
            Table._make,
            zip(
                *(_parse_column(columns[name], name, count) for name in Table._fields), strict=True
            ),
        )
    )
    for i, menu in enumerate(map(attrgetter("menu"), tables)):
        if not 0 <= menu < menus:
            _fail(f"tables.menu[{i}]", f"the number of one of {menus} menus", menu)
    if len({*map(attrgetter("path", "name"), tables)}) != count:
        raise ValueError("tables.name: duplicate table in one module")
    return tables


def _parse_column(value: Any, name: str, count: int) -> list[Any]:
    place = f"tables.{name}"
    if type(value) is dict:
        _check_fields(value, ("all",), place)
        value = [value["all"]]
    elif len(_list(value, place)) != count:
        _fail(place, f"one value per table, {count}", len(value))
    kind = _TABLE_TYPES[name]
    values: list[Any] = value
    if not _is_valid(values, kind, name):
        values = [_parse_value(each, kind, name, f"{place}[{i}]") for i, each in enumerate(values)]
    return values * count if len(values) < count else values


def _is_valid(values: list[Any], kind: Any, name: str) -> bool:
    """Returns whether a column is valid. Checking value by value takes ten times as long."""
    if {*map(type, values)} != {kind} or name in FIELD_CHOICES:
        return False
    if kind is int:
        return bool(max(map(abs, values)) <= _LARGEST)
    return kind is not float or all(map(math.isfinite, values))


def _parse_record(owner: Any, value: Any, place: str, without: str = "") -> Any:
    """Returns a flat dataclass from its fields, but for one that has a default."""
    found = _object(value, place)
    types = _types_of(owner)
    names = [field.name for field in fields(owner) if field.name != without]
    _check_fields(found, names, place)
    return owner(
        **{name: _parse_value(found[name], types[name], name, f"{place}.{name}") for name in names}
    )


def _parse_value(value: Any, declared: Any, name: str, place: str) -> Any:
    if name in FIELD_CHOICES:
        return _one_of(FIELD_CHOICES[name], value, place)
    if declared is float:
        return _number(value, place)
    if declared is int:
        least, most = (1, _MOST_RANKS) if name.endswith(SIZE_FIELDS) else (-_LARGEST, _LARGEST)
        return _integer(value, place, least, most)
    if declared in (bool, str):
        if type(value) is not declared:
            _fail(place, "true or false" if declared is bool else "a string", value)
        return value
    parts = get_args(declared)
    if type(None) in parts:
        return None if value is None else _parse_value(value, parts[0], name, place)
    items = _list(value, place)
    if parts[-1] is not Ellipsis and len(items) != len(parts):
        _fail(place, f"{len(parts)} numbers", value)
    return tuple(_parse_value(item, parts[0], "", f"{place}[{i}]") for i, item in enumerate(items))


def _number(value: Any, place: str) -> Any:
    """Returns a float, or the integer that was written in place of one."""
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) is int and -_LARGEST <= value <= _LARGEST:
        return value
    if type(value) is not float or not math.isfinite(value):
        _fail(place, "a number", value)
    return value


def _integer(value: Any, place: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        _fail(place, f"a whole number from {least} to {most}", value)
    return value


def _one_of(known: tuple[str, ...], value: Any, place: str) -> str:
    if type(value) is not str or value not in known:
        _fail(place, f"one of {', '.join(known)}", value)
    return value


def _object(value: Any, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        _fail(place, "an object", value)
    return value


def _list(value: Any, place: str) -> list[Any]:
    if type(value) is not list:
        _fail(place, "a list", value)
    return value


def _check_fields(
    found: dict[str, Any], names: Iterable[str], place: str, optional: Iterable[str] = ()
) -> None:
    """Raises ValueError unless the object has exactly these fields, and optional ones."""
    prefix = f"{place}." if place else ""
    for name in names:
        if name not in found:
            raise ValueError(f"{prefix}{name}: is missing")
    for name in sorted(found):
        if name not in names and name not in optional:
            raise ValueError(f"{place or 'the request'}: has an unknown field {name[:60]!r}")


def _fail(place: str, expected: str, value: Any) -> NoReturn:
    text = repr(value)
    raise ValueError(f"{place}: must be {expected}, not {text[:57] + '...' if text[60:] else text}")
