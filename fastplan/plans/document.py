"""A plan file as a whole: its header, its tables and what it was made from.

    format, version, fingerprint, notes, device, ranks_per_host, modules, basis

This is the only reader and writer of that structure. It is data from strangers: whatever is wrong
is a BadValue with its place.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fastplan.plans.checks import BadValue, as_object, as_text, below, check_fields, refuse
from fastplan.plans.entries import EntryReader, TableEntry
from fastplan.plans.placement import PlacementRule, read_rule

FORMAT = "fastplan sharding plan"
VERSION = 1

_REQUIRED = (
    "format",
    "version",
    "fingerprint",
    "notes",
    "device",
    "ranks_per_host",
    "modules",
)
_FIELDS = (*_REQUIRED, "basis")


class Document(NamedTuple):
    """What a plan file says."""

    fingerprint: str | None
    notes: dict[str, str]
    rule: PlacementRule | None  # None when no table needs one
    paths: tuple[str, ...]  # modules in order; one without tables is a module, too
    entries: tuple[TableEntry, ...]  # by module
    basis: dict[str, Any] | None  # not looked into here


def read_document(content: Any, *, ranks: int | None = None) -> Document:
    """What a file's JSON says; BadValue if it is no plan file.

    With `ranks`, those of a topology, every rank must be below.
    """
    fields = as_object(content, "the file")
    if fields.get("format") != FORMAT:
        refuse("format", repr(FORMAT), fields.get("format"))
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        refuse("version", f"{VERSION}, the only one that can be read", version)
    check_fields(fields, _FIELDS, "", _REQUIRED)
    fingerprint = fields["fingerprint"]
    rule = read_rule(fields["device"], fields["ranks_per_host"])
    reader = EntryReader(has_device=rule is not None, ranks=ranks)
    modules = as_object(fields["modules"], "modules")
    entries = tuple(
        reader.read(path, name, table)
        for path, tables in modules.items()
        for name, table in as_object(tables, below("modules", path)).items()
    )
    basis = fields.get("basis")
    return Document(
        fingerprint=None if fingerprint is None else as_text(fingerprint, "fingerprint"),
        notes=checked_notes(fields["notes"]),
        rule=rule,
        paths=tuple(modules),
        entries=entries,
        basis=None if basis is None else as_object(basis, "basis"),
    )


def parse_json(data: bytes) -> Any:
    """JSON without names that are there twice and without numbers that JSON does not have.

    Raises BadValue, or RecursionError where it is nested too deeply.
    """
    if not data.strip():
        raise BadValue("", "is empty")
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except BadValue:
        raise
    except ValueError as error:
        raise BadValue("", f"is not JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadValue(below("", name), "is there twice in one object")
            seen.add(name)
    return entry


def _no_constant(name: str) -> Any:
    raise BadValue("", f'is not JSON: {name} must be written as a text such as "nan" or "-inf"')


def checked_notes(notes: Any) -> dict[str, str]:
    """Notes, all of them texts."""
    for key, value in as_object(notes, "notes").items():
        as_text(value, below("notes", as_text(key, "notes")))
    return dict(notes)


def document_text(document: Document) -> str:
    """The file: a line per table, or per field and shard where a table has more to say."""
    rule, fingerprint = document.rule, document.fingerprint
    header = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": None if fingerprint is None else as_text(fingerprint, "fingerprint"),
        "notes": checked_notes(document.notes),
        "device": rule and rule.device,
        "ranks_per_host": rule and rule.ranks_per_host,
    }
    modules: dict[str, list[str]] = {path: [] for path in document.paths}
    for entry in document.entries:
        modules[entry.path].append(_entry(entry.name, _table(entry.json())))
    texts = {name: json.dumps(value) for name, value in header.items()}
    texts["modules"] = _object(
        {path: _braces("{}", lines, 2) for path, lines in modules.items()}, 1
    )
    if document.basis is not None:
        texts["basis"] = _basis(document.basis)
    return _object(texts, 0) + "\n"


def _table(table: dict[str, Any]) -> str:
    shards = table.get("shards")
    if not shards and not any(isinstance(value, dict) for value in table.values()):
        return json.dumps(table)
    fields = {name: json.dumps(value) for name, value in table.items()}
    if shards:
        fields["shards"] = _braces("[]", [json.dumps(shard) for shard in shards], 4)
    return _object(fields, 3)


def _basis(basis: dict[str, Any]) -> str:
    """A line per field, per menu of the request, and per column of its tables."""
    request = basis["request"]
    texts = {name: json.dumps(value) for name, value in request.items()}
    texts["menus"] = _braces("[]", [json.dumps(menu) for menu in request["menus"]], 3)
    texts["tables"] = _object({k: json.dumps(v) for k, v in request["tables"].items()}, 3)
    fields = {name: json.dumps(value) for name, value in basis.items()}
    fields["request"] = _object(texts, 2)
    return _object(fields, 1)


def _object(texts: dict[str, str], depth: int) -> str:
    return _braces("{}", [_entry(name, text) for name, text in texts.items()], depth)


def _entry(name: str, text: str) -> str:
    return f"{json.dumps(name)}: {text}"


def _braces(pair: str, lines: list[str], depth: int) -> str:
    if not lines:
        return pair
    margin = "  " * depth
    inner = ",\n".join(f"{margin}  {line}" for line in lines)
    return f"{pair[0]}\n{inner}\n{margin}{pair[1]}"
