"""Reads and writes plans in other formats.

TorchEasyRec stores a plan in every checkpoint, as the file `plan`:

    {"ebc": {"t1": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]}}}

TorchRec's own `ShardingPlan._serialize()` has the same inside `{"plan": ...}`, and the shards. It
prints plans as `str(plan)`, which its dry run saves as a text file:

    module: sparse

    param | sharding type | compute kernel | ranks
    ----- | ------------- | -------------- | ------
    t1    | row_wise      | fused          | [0, 1]

    param | shard offsets | shard sizes |   placement
    ----- | ------------- | ----------- | -------------
    t1    | [0, 0]        | [500, 64]   | rank:0/cuda:0
    t1    | [500, 0]      | [500, 64]   | rank:1/cuda:1

Columns are as wide as their widest cell, so names may contain anything except line ends. If all
tables of a module are data-parallel, they have no shards, and the second table is empty.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from fastplan.files.storage import replace_file
from fastplan.model.plan import RANK, Plan
from fastplan.plans.checks import BadValue, PlanFileError, as_list, as_object, below, refuse
from fastplan.plans.document import FORMAT, Document, check_ranks, parse_json, read_document
from fastplan.plans.entries import EntryReader, TableEntry
from fastplan.plans.file import compacted, plan_of, read_bytes, write_plan

READABLE = {
    "fastplan": "a plan file of fastplan's, JSON",
    "torcheasyrec": "the `plan` of a TorchEasyRec checkpoint, JSON",
    "torchrec-json": "ShardingPlan._serialize() of TorchRec, as JSON",
    "torchrec-text": "str(plan) of TorchRec, as its dry run saves it",
    "pickle": "a ShardingPlan from torch.save or pickle",
}
WRITABLE = ("fastplan", "torcheasyrec", "pickle")

_PICKLES = (b"\x80", b"PK\x03\x04")  # pickle since protocol 2; torch.save's archive
_IS_SPEC = "is a spec file, not a plan; `fastplan plan` creates a plan from it"
# How spec files begin. A module of a plan may also be called model, but it contains tables.
_SPEC = re.compile(rb'\{?\s*"?model"?\s*:\s*[^\s{]')

_COMMON = ("sharding_type", "compute_kernel", "ranks")
_SHARD_FIELDS = {"offset": "shard_offsets", "size": "shard_sizes", "placement": "placement"}

_MODULE = "module:"

_TABLE_TITLES = ["param", "sharding type", "compute kernel", "ranks"]
_SHARD_TITLES = ["param", "shard offsets", "shard sizes", "placement"]
_RULER = re.compile(r"-+(?: \| -+)*")
_NUMBERS = re.compile(r"\[((?:\d{1,19}(?:, \d{1,19})*)?)\]", re.ASCII)


def read_any(path: str | os.PathLike[str], *, trust_pickle: bool = False) -> Plan:
    """Reads a plan in any readable format, which its content shows.

    Args:
        path: The file.
        trust_pickle: Whether to read pickles. They can run any code, and they need TorchRec.

    Raises:
        PlanFileError: The file can't be read as a plan.
        OSError: The file can't be read.
    """
    name = os.fspath(path)
    with open(path, "rb") as stream:
        head = stream.read(4)
    if head.startswith(_PICKLES):
        return _unpickled(name, trust=trust_pickle)
    return parse_any(read_bytes(path), name)


def parse_any(data: bytes, name: str) -> Plan:
    """Parses a plan in any readable format except pickle.

    Args:
        data: The content of the file.
        name: The name of the file in errors.

    Raises:
        PlanFileError: The content is not a plan.
    """
    try:
        document = _document(data)
        check_ranks(document.entries)
        return plan_of(document, name)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def other_format(data: bytes) -> str | None:
    """Returns a message about the format of a file that is not a fastplan plan file, if known."""
    if data.startswith(_PICKLES):
        found = "pickle"
    elif data.lstrip().startswith(_MODULE.encode()):
        found = "torchrec-text"
    elif _SPEC.match(data.lstrip()[:200]):
        return _IS_SPEC
    else:
        try:
            found = _json_format(parse_json(data))
        except (BadValue, RecursionError, AttributeError):
            return None
    if found == "fastplan":
        return None
    return f"is {READABLE[found]}: `fastplan convert` converts it to a plan file"


def write_any(plan: Plan, path: str | os.PathLike[str], format: str = "fastplan") -> None:
    """Writes a plan atomically, in one of the formats in WRITABLE.

    Args:
        plan: The plan.
        path: The file.
        format: The format.

    Raises:
        PlanFileError: The format can't be written, or can't represent the plan.
        OSError: The file can't be written.
    """
    if format not in WRITABLE:
        known = " or ".join(WRITABLE)
        raise PlanFileError(os.fspath(path), "", f"can't be written as {format!r}, only as {known}")
    if format == "fastplan":
        write_plan(plan, path)
    elif format == "torcheasyrec":
        replace_file(path, [_tables_text(plan).encode()])
    else:
        _pickle(plan, os.fspath(path))


def _document(data: bytes) -> Document:
    if data.lstrip().startswith(_MODULE.encode()):
        return _read_printed(data, "torchrec-text")
    if _SPEC.match(data.lstrip()[:200]):
        raise BadValue("", _IS_SPEC)
    if data.lstrip()[:1] != b"{":
        what = "has" if data.strip() else "is empty; it has"
        raise BadValue("", f"{what} none of the known formats: {_known()}")
    content = parse_json(data)
    found = _json_format(content)
    if found == "fastplan":
        return read_document(content)
    return _read_tables(content["plan"] if found == "torchrec-json" else content, found)


def _json_format(content: Any) -> str:
    """Detects the format of a JSON object."""
    if content.get("format") == FORMAT:
        return "fastplan"
    inner, found = content, "torcheasyrec"
    if list(content) == ["plan"]:
        inner, found = content["plan"], "torchrec-json"
    for tables in inner.values() if isinstance(inner, dict) else ():
        for table in tables.values() if isinstance(tables, dict) else ():
            if isinstance(table, dict) and "sharding_type" in table:
                return found
    raise BadValue("", f"is JSON, but has none of the known formats: {_known()}")


def _unpickled(name: str, *, trust: bool) -> Plan:
    if not trust:
        raise PlanFileError(
            name,
            "",
            "is a pickle, which can run any code when it is read: if you trust its writer, give "
            "`--trust-pickle` on a command line or the argument `trust_pickle` in Python, or save "
            "the plan with fastplan.save_plan",
        )
    try:
        from fastplan.torchrec.plan_pickles import read_pickle
    except ImportError as error:
        raise PlanFileError(
            name, "", f"is a pickle, which only TorchRec reads: {_lacks(error)}"
        ) from error
    return read_pickle(name)


def _pickle(plan: Plan, name: str) -> None:
    try:
        from fastplan.torchrec.plan_pickles import write_pickle
    except ImportError as error:
        raise PlanFileError(name, "", f"only TorchRec writes pickles: {_lacks(error)}") from error
    write_pickle(plan, name)


def _lacks(error: ImportError) -> str:
    return f"{error}; `fastplan doctor` shows what to install"


def _known() -> str:
    return "; ".join(f"{name} ({what})" for name, what in READABLE.items())


def _read_tables(content: Any, source: str) -> Document:
    """Reads a plan from TorchEasyRec's JSON, or TorchRec's. Raises BadValue."""
    modules = as_object(content, "the file")
    reader = EntryReader(has_device=False)
    entries = []
    for path, tables in modules.items():
        for name, value in as_object(tables, below("", path)).items():
            place = below(below("", path), name)
            table = as_object(value, place)
            fields = {field: table[field] for field in _COMMON if field in table}
            fields["shards"] = _shards(table.get("shards"), below(place, "shards"))
            entries.append(reader.read(path, name, fields))
    return _foreign_document(list(modules), entries, source)


def _foreign_document(paths: list[str], entries: list[TableEntry], source: str) -> Document:
    """Returns the content of a plan file with tables from another format."""
    entries, rule = compacted(entries)
    return Document(
        fingerprint=None,
        notes={"source_format": source},
        rule=rule,
        paths=tuple(paths),
        entries=tuple(entries),
        basis=None,
    )


def _tables_text(plan: Plan) -> str:
    """Returns the plan in TorchEasyRec's format, which has no shapes, shards and settings."""
    modules: dict[str, dict[str, Any]] = {}
    for table in plan.layout.tables:
        modules.setdefault(table.path, {})[table.name] = {
            "sharding_type": table.sharding_type,
            "compute_kernel": table.kernel,
            "ranks": table.shards[:, RANK].tolist(),
        }
    return json.dumps(modules)


def _shards(value: Any, place: str) -> list[Any] | None:
    """Returns listed shards with the field names of a plan file."""
    if value is None:
        return None
    shards = []
    for i, item in enumerate(as_list(value, place)):
        shard = as_object(item, f"{place}[{i}]")
        found = {ours: shard[theirs] for ours, theirs in _SHARD_FIELDS.items() if theirs in shard}
        if found.get("placement") == "None":
            found["placement"] = None
        shards.append(found)
    return shards


class _Printed:
    """The tables of a printed plan so far: objects of a plan file by module and name."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, Any] | None = None  # of the current module
        self._titles: list[str] | None = None  # of the current columns
        self._columns: list[slice] | None = None  # None before the ruler

    def add(self, line: str, place: str) -> None:
        """Reads the next line that is not empty. Raises BadValue."""
        if self._titles and self._columns is None:
            if not _RULER.fullmatch(line.rstrip()):
                refuse(place, "a line of dashes below the titles", line)
            self._columns = _columns(line.rstrip())
        elif self._columns and (cells := _cells(line, self._columns)):
            self._row(cells, place)
        elif line.startswith(_MODULE):
            self._module(line[len(_MODULE) :].removeprefix(" "), place)
        else:
            titles = [title.strip() for title in line.split(" | ")]
            if self._tables is None or titles not in (_TABLE_TITLES, _SHARD_TITLES):
                refuse(place, "a line of a plan as TorchRec prints it", line)
            self._titles, self._columns = titles, None

    def _module(self, path: str, place: str) -> None:
        if path in self.modules:
            raise BadValue(place, f"module {path!r:.60} occurs twice")
        self._tables = self.modules[path] = {}
        self._titles = self._columns = None

    def _row(self, cells: list[str], place: str) -> None:
        assert self._tables is not None
        name, second, third, fourth = cells
        if self._titles == _TABLE_TITLES:
            if name in self._tables:
                raise BadValue(place, f"table {name!r:.60} occurs twice in its module")
            self._tables[name] = {
                "sharding_type": second,
                "compute_kernel": third,
                "ranks": None if fourth == "None" else _numbers(fourth, place),
                "shards": None,
            }
            return
        if name not in self._tables:
            raise BadValue(place, f"table {name!r:.60} has shards, but is not listed")
        table = self._tables[name]
        table["shards"] = table["shards"] or []
        table["shards"].append(
            {
                "offset": _numbers(second, place),
                "size": _numbers(third, place),
                "placement": None if fourth == "None" else fourth,
            }
        )


def _read_printed(data: bytes, source: str) -> Document:
    """Reads a printed plan. Raises BadValue."""
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
    return _foreign_document(list(printed.modules), entries, source)


def _columns(ruler: str) -> list[slice]:
    columns, begin = [], 0
    for dashes in ruler.split(" | "):
        columns.append(slice(begin, begin + len(dashes)))
        begin += len(dashes) + len(" | ")
    # Editors may have removed spaces at the end of lines. Only the last cell may be longer.
    columns[-1] = slice(columns[-1].start, None)
    return columns


def _cells(line: str, columns: list[slice]) -> list[str] | None:
    """Returns the line's cells; None if its separators are not where the columns have them."""
    if any(line[column.stop : column.stop + 3] != " | " for column in columns[:-1]):
        return None
    return [line[column].rstrip() for column in columns] if len(columns) == 4 else None


def _numbers(text: str, place: str) -> list[int]:
    found = _NUMBERS.fullmatch(text)
    if found is None:
        refuse(place, "a list of numbers such as [0, 1]", text)
    return [int(number) for number in found[1].split(", ")] if found[1] else []
