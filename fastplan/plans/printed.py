"""Plans as TorchRec prints them: `str(plan)`, which its dry run saves as a text file.

    module: sparse

    param | sharding type | compute kernel | ranks
    ----- | ------------- | -------------- | ------
    t1    | row_wise      | fused          | [0, 1]

    param | shard offsets | shard sizes |   placement
    ----- | ------------- | ----------- | -------------
    t1    | [0, 0]        | [500, 64]   | rank:0/cuda:0
    t1    | [500, 0]      | [500, 64]   | rank:1/cuda:1

Columns are as wide as their widest cell, so names may contain anything but line ends. A module
whose tables have no shards, being data-parallel, has an empty second table.
"""

from __future__ import annotations

import re
from typing import Any

from fastplan.plans.checks import BadValue, refuse
from fastplan.plans.document import Document
from fastplan.plans.entries import EntryReader
from fastplan.plans.tables_json import foreign_document

MODULE = "module:"

_TABLES = ["param", "sharding type", "compute kernel", "ranks"]
_SHARDS = ["param", "shard offsets", "shard sizes", "placement"]
_RULER = re.compile(r"-+(?: \| -+)*")
_NUMBERS = re.compile(r"\[((?:\d{1,19}(?:, \d{1,19})*)?)\]", re.ASCII)


class _Printed:
    """The tables of a text so far: objects of a plan file by module and name."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, Any] | None = None  # of the current module
        self._titles: list[str] | None = None  # of the current columns
        self._columns: list[slice] | None = None  # None before the ruler

    def add(self, line: str, place: str) -> None:
        """Takes the next line that is not empty. Raises BadValue."""
        if self._titles and self._columns is None:
            if not _RULER.fullmatch(line.rstrip()):
                refuse(place, "a line of dashes below the titles", line)
            self._columns = _columns(line.rstrip())
        elif self._columns and (cells := _cells(line, self._columns)):
            self._row(cells, place)
        elif line.startswith(MODULE):
            self._module(line[len(MODULE) :].removeprefix(" "), place)
        else:
            titles = [title.strip() for title in line.split(" | ")]
            if self._tables is None or titles not in (_TABLES, _SHARDS):
                refuse(place, "a line of a plan as TorchRec prints it", line)
            self._titles, self._columns = titles, None

    def _module(self, path: str, place: str) -> None:
        if path in self.modules:
            raise BadValue(place, f"module {path!r:.60} is there twice")
        self._tables = self.modules[path] = {}
        self._titles = self._columns = None

    def _row(self, cells: list[str], place: str) -> None:
        assert self._tables is not None
        name, second, third, fourth = cells
        if self._titles == _TABLES:
            if name in self._tables:
                raise BadValue(place, f"table {name!r:.60} is there twice in its module")
            self._tables[name] = {
                "sharding_type": second,
                "compute_kernel": third,
                "ranks": None if fourth == "None" else _numbers(fourth, place),
                "shards": None,
            }
            return
        if name not in self._tables:
            raise BadValue(place, f"table {name!r:.60} has shards, but no line of its own")
        table = self._tables[name]
        table["shards"] = table["shards"] or []
        table["shards"].append(
            {
                "offset": _numbers(second, place),
                "size": _numbers(third, place),
                "placement": None if fourth == "None" else fourth,
            }
        )


def read_printed(data: bytes, source: str) -> Document:
    """The plan of a printed one. Raises BadValue."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadValue("", f"is not text: {error}") from error
    printed = _Printed()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            printed.add(line.rstrip("\r"), f"line {number}")
    reader = EntryReader(has_device=False)
    entries = [
        reader.read(path, name, table)
        for path, tables in printed.modules.items()
        for name, table in tables.items()
    ]
    return foreign_document(list(printed.modules), entries, source)


def _columns(ruler: str) -> list[slice]:
    columns, begin = [], 0
    for dashes in ruler.split(" | "):
        columns.append(slice(begin, begin + len(dashes)))
        begin += len(dashes) + len(" | ")
    # Editors may have cut the spaces at the end of lines, and only there may a cell be longer.
    columns[-1] = slice(columns[-1].start, None)
    return columns


def _cells(line: str, columns: list[slice]) -> list[str] | None:
    """The line's cells; None if it has no separators where the columns have them."""
    if any(line[column.stop : column.stop + 3] != " | " for column in columns[:-1]):
        return None
    return [line[column].rstrip() for column in columns] if len(columns) == 4 else None


def _numbers(text: str, place: str) -> list[int]:
    found = _NUMBERS.fullmatch(text)
    if found is None:
        refuse(place, "a list of numbers such as [0, 1]", text)
    return [int(number) for number in found[1].split(", ")] if found[1] else []
