"""What differs between two canonical requests, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.spec.request import Table


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
    return [*_tables(before, after), *_compare("", before, after)]


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


def _rows(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Tables by path and name, their columns as fields."""
    columns = document.pop("tables", {})
    count = document.pop("table_count", 0)
    full = {
        name: [column["all"]] * count if isinstance(column, dict) else column
        for name, column in columns.items()
    }
    menus = document.pop("menus", [])
    rows = {}
    for i in range(count):
        row = {name: full[name][i] for name in Table._fields if name in full}
        row["options"] = menus[row.pop("menu")]
        path = row.pop("path")
        name = row.pop("name")
        rows[f"{path}.{name}" if path else name] = row
    return rows


def _tables(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    old, new = _rows(before), _rows(after)
    for name in old:
        if name not in new:
            yield Difference(f"tables[{name}]", "present", "missing")
    for name in new:
        if name not in old:
            yield Difference(f"tables[{name}]", "missing", "present")
    common = [name for name in old if name in new]
    if common != [name for name in new if name in old]:
        yield Difference("tables", "in one order", "in another order")
    for name in common:
        for field in old[name]:
            if old[name][field] != new[name].get(field):
                yield Difference(f"tables[{name}].{field}", old[name][field], new[name].get(field))


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
