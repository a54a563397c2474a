"""The whole content of a plan file: its header, its tables and its basis.

    format, version, fingerprint, notes, device, ranks_per_host, modules, basis

This is the only reader and writer of that structure. Files are untrusted input: every error is a
BadValue with its place. Annotations are not strings, because msgspec would have to evaluate those.

Row-wise and data-parallel tables are on every rank of the job. Table-row-wise tables, and each
column of a grid, are on every rank of one host or of one group of hosts. Column-wise shards may be
anywhere and may share a rank. A file does not say how many ranks the job has. Without a topology or
a basis, only two rules are checked: no rank has such a table twice, and a module's tables agree.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fastplan.model.cuts import blocks_in
from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.plans.checks import (
    BadValue,
    PlacementRule,
    as_object,
    as_struct,
    as_text,
    below,
    read_rule,
    refuse,
)
from fastplan.plans.entries import EntryReader, RankRuns, TableEntry, TableFields, decoded

FORMAT = "fastplan sharding plan"
VERSION = 1

_EVERYWHERE = "row_wise"
_BY_HOST = frozenset({"table_row_wise", "grid_shard"})
_ON_DIFFERENT_RANKS = UNIFORM_TYPES | _BY_HOST


class PlanFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON of a plan file."""

    format: str
    version: int
    fingerprint: str | None
    notes: dict[str, str]
    device: Any
    ranks_per_host: Any
    modules: dict[str, dict[str, Any]]
    basis: dict[str, Any] | None = None


class Document(NamedTuple):
    """The content of a plan file."""

    fingerprint: str | None
    notes: dict[str, str]
    rule: PlacementRule | None  # None when no table needs one
    paths: tuple[str, ...]  # modules in order, also those without tables
    entries: tuple[TableEntry, ...]  # by module
    basis: dict[str, Any] | None  # not checked here


def read_document(content: Any, *, ranks: int | None = None) -> Document:
    """Checks the JSON of a plan file and returns its content.

    Args:
        content: The parsed JSON.
        ranks: The number of ranks of a topology: all ranks must be below.

    Raises:
        BadValue: It is not a valid plan file.
    """
    fields = as_object(content, "the file")
    if fields.get("format") != FORMAT:
        refuse("format", repr(FORMAT), fields.get("format"))
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        refuse("version", f"{VERSION}, the only one that can be read", version)
    header = as_struct(fields, PlanFields)
    return _document(header, decoded(header.modules) or {}, ranks)


def _document(header: Any, known: dict[str, dict[str, TableFields]], ranks: int | None) -> Document:
    """Returns the content with these fields; `known` has all tables if they are decoded."""
    rule = read_rule(header.device, header.ranks_per_host)
    reader = EntryReader(has_device=rule is not None, ranks=ranks)
    return Document(
        fingerprint=header.fingerprint,
        notes=header.notes,
        rule=rule,
        paths=tuple(header.modules),
        entries=tuple(
            reader.read(path, name, table, known[path][name] if known else None)
            for path, tables in header.modules.items()
            for name, table in tables.items()
        ),
        basis=header.basis if header.basis is not UNSET else None,
    )


class _TypedFields(PlanFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON of a plan file with its tables."""

    modules: dict[str, dict[str, TableFields]]
    basis: dict[str, Any] | UnsetType = UNSET  # type: ignore[assignment]


def parse_document(data: bytes, *, ranks: int | None = None) -> Document:
    """Parses the text of a plan file: `read_document` of `parse_json`, in less time if it is valid.

    Raises:
        BadValue: It is not a valid plan file.
        RecursionError: It is nested too deeply.
    """
    fields = _decoded(data)
    if fields is None:
        return read_document(parse_json(data), ranks=ranks)
    return _document(fields, fields.modules, ranks)


def _decoded(data: bytes) -> _TypedFields | None:
    """Returns the fields of a valid file; None for one that may be invalid.

    msgspec reads what json reads as the same values, or refuses it. Of duplicate names it keeps the
    last one, so that the same content written again has fewer names. Without escapes, every colon
    in a text is behind a name, or in a string that has it after reading, too.
    """
    if b"\\" in data:
        return None
    try:
        fields = msgspec.json.decode(data, type=_TypedFields)
        text = msgspec.json.encode(fields)
    except (ValueError, OverflowError, RecursionError):  # what msgspec raises is a ValueError
        return None
    if fields.format != FORMAT or fields.version != VERSION:
        return None
    return fields if text.count(b":") == data.count(b":") else None


def parse_json(data: bytes) -> Any:
    """Parses JSON without duplicate names and without NaN and infinities.

    Raises:
        BadValue: It is not such JSON.
        RecursionError: It is nested too deeply.
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
                raise BadValue(below("", name), "occurs twice in one object")
            seen.add(name)
    return entry


def _no_constant(name: str) -> Any:
    raise BadValue("", f'is not JSON: {name} must be written as a string such as "nan" or "-inf"')


def checked_notes(notes: Any) -> dict[str, str]:
    """Returns the notes.

    Raises:
        BadValue: A note is not a string.
    """
    for key, value in as_object(notes, "notes").items():
        as_text(value, below("notes", as_text(key, "notes")))
    return dict(notes)


def document_text(document: Document) -> str:
    """Returns the text of a file: a line per table, or per field and shard of a long table."""
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
    """Writes a line per field, per menu of the request and per column of its tables."""
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


class Ranks(NamedTuple):
    """The number of ranks of a job, and of a host or a group of hosts."""

    world: int
    group: int


def check_ranks(entries: Iterable[TableEntry], known: Ranks | None = None) -> None:
    """Checks that TorchRec can run the tables on their ranks.

    Args:
        entries: The tables.
        known: The ranks of the cluster, if known.

    Raises:
        BadValue: TorchRec can't run a table. The message names it.
    """
    for tables in _by_module(entries):
        every: RankRuns | None = None  # of a row-wise table, so of the whole module
        for entry in tables:
            if entry.ranks is None:
                continue
            _check_own(entry, entry.ranks)
            if known is not None:
                _check_known(entry, entry.ranks, known)
            if entry.cut is not None:
                if every is None and _is_everywhere(entry):
                    every = _in_order(entry.ranks)
                if every is not None:
                    _check_module(entry, entry.ranks, every)


def check_known_ranks(entries: Iterable[TableEntry], known: Ranks) -> None:
    """Checks tables that have passed `check_ranks` without a cluster, now on a cluster.

    Raises:
        BadValue: TorchRec can't run a table. The message names it.
    """
    for tables in _by_module(entries):
        for entry in tables:
            if entry.ranks is not None:
                _check_known(entry, entry.ranks, known)


def _by_module(entries: Iterable[TableEntry]) -> Iterator[list[TableEntry]]:
    """Yields the tables of each module, its row-wise ones first."""
    for _, tables in groupby(entries, key=attrgetter("path")):
        own = [*tables]
        first = [entry for entry in own if entry.sharding_type == _EVERYWHERE]
        others = [entry for entry in own if entry.sharding_type != _EVERYWHERE] if first else own
        yield first + others


def _is_everywhere(entry: TableEntry) -> bool:
    return entry.sharding_type == _EVERYWHERE


def _ranks_place(entry: TableEntry) -> str:
    return below(entry.place, "ranks")


def _check_own(entry: TableEntry, ranks: RankRuns) -> None:
    """Checks the rules for a single table."""
    if entry.sharding_type == "table_wise":
        if len(ranks) == 1 and ranks[0][0] == ranks[0][1]:
            return
        refuse(_ranks_place(entry), "one rank, because the table is not split", _items(ranks))
    if entry.sharding_type not in _ON_DIFFERENT_RANKS:
        return
    for column in _columns(entry, ranks):
        before = -1
        for first, last in _in_order(column):
            if first <= before:
                what = entry.sharding_type
                refuse(
                    _ranks_place(entry),
                    f"different ranks, as {what} requires",
                    _items(column),
                )
            before = last


def _check_known(entry: TableEntry, ranks: RankRuns, known: Ranks) -> None:
    """Checks the rules for a known cluster."""
    for _, last in ranks:
        if last >= known.world:
            refuse(_ranks_place(entry), f"below the {known.world} ranks of the cluster", last)
    if entry.listed is not None:  # devices of another kind; there may be fewer
        return
    if entry.sharding_type in UNIFORM_TYPES and _joined(ranks) != ((0, known.world - 1),):
        everywhere = f"every rank in order, 0-{known.world - 1}, as {entry.sharding_type} needs"
        refuse(_ranks_place(entry), everywhere, _items(ranks))
    if entry.sharding_type not in _BY_HOST:
        return
    for column in _columns(entry, ranks):
        hosts = {rank // known.group for run in column for rank in run}
        if len(hosts) > 1 or _count(column) != known.group:
            one_host = f"all ranks of one host of {known.group}, as {entry.sharding_type} needs"
            refuse(_ranks_place(entry), one_host, _items(column))


def _check_module(entry: TableEntry, ranks: RankRuns, every: RankRuns) -> None:
    """Checks that a module's tables agree: its row-wise tables are on all of its ranks."""
    if _is_everywhere(entry) and _in_order(ranks) != every:
        others = f"{_items(every)}, as of the module's other row-wise tables"
        refuse(_ranks_place(entry), others, _items(ranks))
    for i, run in enumerate(ranks):
        if not any(low <= run[0] and run[1] <= high for low, high in every):
            where = f"among {_items(every)}, where the module's row-wise tables are"
            refuse(f"{_ranks_place(entry)}[{i}]", where, *_items((run,)))


def _columns(entry: TableEntry, ranks: RankRuns) -> list[RankRuns]:
    """Returns the ranks of each column of blocks. Shards are in column-major order."""
    if entry.sharding_type != "grid_shard" or entry.cut is None:
        return [ranks]
    height = blocks_in(entry.cut.rows)
    every = entry.all_ranks()
    return [
        tuple((rank, rank) for rank in every[i : i + height]) for i in range(0, len(every), height)
    ]


def _count(ranks: RankRuns) -> int:
    return sum(last - first + 1 for first, last in ranks)


def _in_order(ranks: RankRuns) -> RankRuns:
    """Returns sorted runs, merged if possible."""
    return _joined(tuple(sorted(ranks)))


def _joined(ranks: RankRuns) -> RankRuns:
    joined: list[tuple[int, int]] = []
    for first, last in ranks:
        if joined and joined[-1][1] + 1 == first:
            first = joined.pop()[0]
        joined.append((first, last))
    return tuple(joined)


def _items(ranks: RankRuns) -> list[int | str]:
    return [first if first == last else f"{first}-{last}" for first, last in _joined(ranks)]
