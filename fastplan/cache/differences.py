"""What differs between two canonical requests, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.cache.sketch import names_in
from fastplan.model.request import Table


class Difference(NamedTuple):
    """A field that changed; `field` is a path such as `tables[t3].rows`."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.old)} -> {_short(self.new)}"


def differences(old: bytes, new: bytes) -> list[Difference]:
    """All fields that differ between two canonical requests, tables compared by name."""
    before, after = _read(old), _read(new)
    return [*_compare_tables(_Tables(before), _Tables(after)), *_compare("", before, after)]


def first_differences(old: bytes, new: bytes, most: int = 3) -> str:
    """The first few differences as one line."""
    found = differences(old, new)
    if not found:
        return "nothing differs"
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(map(str, found[:most])) + more


def _read(canonical: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(canonical) if canonical else {}
    return document


class _Tables:
    """The tables of a document by path and name. Columns are looked into, not written out: a few
    bytes may stand for many tables."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._columns = document.pop("tables", {})
        self._menus = document.pop("menus", [])
        count = document.pop("table_count", 0)
        self.number: dict[str, int] = {}
        if self._columns:
            names_in({"tables": self._columns, "table_count": count})  # raises if it is none
            ordered = (self._value(name, i) for i in range(count) for name in ("path", "name"))
            pairs = zip(ordered, ordered, strict=True)
            self.number = {
                f"{path}.{name}" if path else name: i for i, (path, name) in enumerate(pairs)
            }

    def row(self, name: str) -> dict[str, Any]:
        """A table's fields, and its options in place of the number of their menu."""
        number = self.number[name]
        left = [field for field in Table._fields if field not in ("path", "name", "menu")]
        row = {field: self._value(field, number) for field in left if field in self._columns}
        row["options"] = self._menus[self._value("menu", number)]
        return row

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
    for name in common:
        before, after = old.row(name), new.row(name)
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
