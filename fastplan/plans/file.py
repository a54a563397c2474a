"""Plan files: sharding plans as JSON that people can read, compare and edit.

A file contains the plan of a model table by table and the fingerprint of its request. It can also
contain the request. Files contain only data: reading one runs no code.

A layout says where shards are. Other content of a file, such as placements that follow no rule, is
stored in the layout's settings, so that nothing is lost when the file is written again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastplan.cache.fingerprint import fingerprint as request_key
from fastplan.engine.layout import layout_of
from fastplan.files.storage import replace_file
from fastplan.model.cuts import block_shards, copy_shards, cut_of
from fastplan.model.plan import (
    COLUMN,
    COLUMNS,
    RANK,
    ROW,
    ROWS,
    Basis,
    Layout,
    Plan,
    Shards,
    TableColumns,
    TableLayout,
)
from fastplan.plans.basis import ReadBasis, basis_json, check_agreement, read_basis
from fastplan.plans.checks import (
    BadValue,
    Device,
    PlacementRule,
    PlanFileError,
    below,
    check_fields,
    infer_rule,
    read_placement,
    refuse,
)
from fastplan.plans.document import (
    Document,
    Ranks,
    check_ranks,
    document_text,
    parse_document,
)
from fastplan.plans.entries import (
    MOST_CELLS,
    MOST_RANKS,
    SETTINGS,
    EntryReader,
    ListedShard,
    TableEntry,
    listed_shards,
    rank_runs,
)

__all__ = ["PlanFileError", "parse_plan", "plan_text", "read_plan", "write_plan"]

# Larger than the file of any plan, and small enough to parse in memory.
MOST_BYTES = 128 * 1024**2


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Reads a plan file.

    Args:
        path: The file.

    Raises:
        PlanFileError: The file is malformed.
        OSError: The file can't be read.
    """
    data, name = read_bytes(path), os.fspath(path)
    try:
        return parse_plan(data, name)
    except PlanFileError as error:
        from fastplan.plans.foreign import other_format

        problem = other_format(data)
        if problem is None:
            raise
        raise PlanFileError(name, "", problem) from error


def parse_plan(data: bytes, name: str) -> Plan:
    """Parses the content of a plan file.

    Args:
        data: The content.
        name: The name of the file in errors.

    Raises:
        PlanFileError: The content is malformed.
    """
    return plan_of(parse_file(data, name), name, checked=True)


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Writes a plan file atomically.

    Args:
        plan: The plan.
        path: The file.

    Raises:
        PlanFileError: A file can't represent the plan. The message names the table and the field.
        OSError: The file can't be written.
    """
    replace_file(path, [_text(plan, os.fspath(path)).encode()])


def plan_text(plan: Plan) -> str:
    """Returns the text of a plan file.

    Raises:
        PlanFileError: A file can't represent the plan.
    """
    return _text(plan, plan.name)


def parse_file(data: bytes, name: str, *, ranks: Ranks | None = None) -> Document:
    """Parses a plan file, and checks that TorchRec can run its tables on their ranks.

    Args:
        data: The content.
        name: The name of the file in errors.
        ranks: The ranks of a topology, if any.

    Raises:
        PlanFileError: The content is malformed, or TorchRec can't run a table.
    """
    try:
        document = parse_document(data, ranks=None if ranks is None else ranks.world)
        check_ranks(document.entries, ranks)
        return document
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def plan_of(document: Document, name: str, *, checked: bool = False) -> Plan:
    """Returns the plan of a parsed file.

    Args:
        document: The content.
        name: The name of the file in errors.
        checked: Whether `parse_file` has parsed and checked it.

    Raises:
        PlanFileError: The content contradicts itself.
    """
    try:
        found = read_basis(document, checked=checked)
        layout = _layout(document) if found is None else _layout_by(document, found)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    return Plan(
        name=document.notes.get("model") or Path(name).name,
        layout=layout,
        fingerprint=document.fingerprint,
        notes=document.notes,
        basis=None if found is None else found.basis,
    )


def _layout(document: Document) -> Layout:
    rule = document.rule
    return Layout(
        tables=tuple(table_layout(entry) for entry in document.entries),
        device=rule and rule.device,
        ranks_per_host=rule and rule.ranks_per_host,
    )


def _layout_by(document: Document, found: ReadBasis) -> Layout:
    """Returns the layout of a plan with a basis, which also has the shapes of copies."""
    device = document.rule and document.rule.device
    basis = found.basis
    layout = layout_of(
        basis.request, basis.cluster, basis.record, device=device, chosen=found.chosen
    )
    settings = [*map(_settings, found.entries)]
    if not any(settings):
        return layout
    tables = replace(TableColumns.of(layout.tables), settings=settings)
    return replace(layout, tables=tables)


def _settings(entry: TableEntry) -> dict[str, Any]:
    return entry.settings if entry.listed is None else table_layout(entry).settings


def _text(plan: Plan, name: str) -> str:
    layout = plan.layout
    rule = None
    if layout.device is not None:
        rule = PlacementRule(layout.device, layout.ranks_per_host)
    try:
        document = new_document(
            [table_entry(table, rule) for table in layout.tables],
            rule,
            fingerprint=plan.fingerprint,
            notes=plan.notes,
            basis=plan.basis,
        )
        return document_text(document)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error


def new_document(
    entries: list[TableEntry],
    rule: PlacementRule | None,
    *,
    fingerprint: str | None,
    notes: dict[str, str],
    basis: Basis | None,
    paths: Iterable[str] = (),
) -> Document:
    """Returns the content of a new file, from tables in the plan's order.

    `paths` lists the modules, because some of them may have no table.

    Raises:
        BadValue: A file can't represent the plan.
    """
    numbers: dict[str, list[int]] = {path: [] for path in paths}
    for number, entry in enumerate(entries):
        numbers.setdefault(entry.path, []).append(number)
    by_module = [number for module in numbers.values() for number in module]
    if len({(entry.path, entry.name) for entry in entries}) != len(entries):
        raise BadValue("modules", "would have a table twice in one module")
    content = None
    if basis is not None:
        check_agreement(basis, entries)
        key = request_key(basis.canonical)
        if fingerprint not in (None, key):
            refuse("fingerprint", f"that of the basis, {key}", fingerprint)
        fingerprint = key
        order = sorted(range(len(by_module)), key=by_module.__getitem__)
        content = basis_json(basis, order)
    return Document(
        fingerprint=fingerprint,
        notes=notes,
        rule=rule,
        paths=tuple(numbers),
        entries=tuple(entries[number] for number in by_module),
        basis=content,
    )


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Reads a file.

    Raises:
        PlanFileError: The file is larger than the limit.
        OSError: The file can't be read.
    """
    with open(path, "rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        problem = f"is larger than {MOST_BYTES >> 20} MiB, the limit"
        raise PlanFileError(os.fspath(path), "", problem)
    return data


_ENTRY = ("shards", "ranks")  # fields that are settings only if a layout can't represent them


def table_layout(entry: TableEntry) -> TableLayout:
    """Returns the layout of a table.

    Raises:
        BadValue: The file does not say where its shards are, or the table is too large.
    """
    settings = dict(entry.settings)
    shape = None
    if entry.cut is not None:
        shape = entry.cut.shape
        shards = block_shards(entry.cut, entry.all_ranks())
    elif entry.listed is not None:
        shards = listed_shards(entry)
        shape = _extent(shards)
        settings |= {name: value for name, value in entry.json().items() if name in _ENTRY}
    else:
        shards = copy_shards(None, entry.all_ranks())
        if entry.ranks is None:
            settings["ranks"] = None
    if shape is not None and shape[0] * shape[1] > MOST_CELLS:
        refuse(entry.place, f"a table of up to {MOST_CELLS} cells", shape)
    if len(shards) and (rank := int(shards[:, RANK].max())) >= MOST_RANKS:
        refuse(below(entry.place, "ranks"), f"ranks below {MOST_RANKS}", rank)
    return TableLayout(
        entry.path, entry.name, entry.sharding_type, entry.kernel, shape, shards, settings
    )


def table_entry(table: TableLayout, rule: PlacementRule | None) -> TableEntry:
    """Returns the entry of a table in a plan file.

    Args:
        table: The layout of the table.
        rule: The placement rule of the file, if any.

    Raises:
        BadValue: A plan file can't represent the layout.
    """
    place = below(below("modules", table.path), table.name)
    settings = {name: value for name, value in table.settings.items() if name not in _ENTRY}
    check_fields(settings, SETTINGS, place)
    for name, value in settings.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(below(place, name), f"is not JSON: {error}") from error
    entry = TableEntry(
        table.path,
        table.name,
        table.sharding_type,
        table.kernel,
        rank_runs(table.shards[:, RANK]),
        None,
        None,
        settings,
    )
    if any(name in table.settings for name in _ENTRY):
        return _keep_listed_shards(entry, table.settings)
    if table.sharding_type == "data_parallel" or table.shape is None:
        return entry
    cut = cut_of(table.shards)
    if rule is None:
        raise BadValue("device", f"must be known, because {entry.place} has shards")
    if cut is not None and cut.shape == table.shape:
        return entry._replace(cut=cut)
    return entry._replace(listed=_placed(table.shards, rule))


def compacted(entries: list[TableEntry]) -> tuple[list[TableEntry], PlacementRule | None]:
    """Writes listed shards as blocks if they follow the placement rule; also returns the rule."""
    rule = infer_rule(Counter(_devices(entries)))
    return [_compact(entry, rule) for entry in entries], rule


def _compact(entry: TableEntry, rule: PlacementRule | None) -> TableEntry:
    listed, ranks = entry.listed, entry.all_ranks()
    if rule is None or listed is None or len(ranks) != len(listed):
        return entry
    if any(len(shard.size) != 2 for shard in listed):
        return entry
    if any(rule.text(rank) != shard.placement for rank, shard in zip(ranks, listed, strict=True)):
        return entry
    cut = cut_of(listed_shards(entry))
    return entry if cut is None else entry._replace(cut=cut, listed=None)


def _devices(entries: list[TableEntry]) -> Iterable[Device]:
    for entry in entries:
        for i, shard in enumerate(entry.listed or ()):
            place = below(f"{below(entry.place, 'shards')}[{i}]", "placement")
            if shard.placement is not None and (found := read_placement(shard.placement, place)):
                yield found


def _keep_listed_shards(entry: TableEntry, settings: dict[str, Any]) -> TableEntry:
    """Returns the table with the shards and ranks that its file had."""
    fields = {
        "sharding_type": entry.sharding_type,
        "compute_kernel": entry.kernel,
        "ranks": settings.get("ranks", entry.json()["ranks"]),
        "shards": settings.get("shards"),
    }
    read = EntryReader(has_device=True).read(entry.path, entry.name, fields)
    return read._replace(settings=entry.settings)


def _extent(shards: Shards) -> tuple[int, int]:
    ends = shards[:, [ROW, COLUMN]] + shards[:, [ROWS, COLUMNS]]
    rows, columns = ends.max(axis=0).tolist()
    return rows, columns


def _placed(shards: Shards, rule: PlacementRule) -> tuple[ListedShard, ...]:
    return tuple(
        ListedShard([row, column], [rows, columns], rule.text(rank))
        for row, column, rows, columns, rank in shards.tolist()
    )
