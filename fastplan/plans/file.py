"""Plan files: sharding plans as JSON that people can read, compare and edit.

A file contains the plan of a model table by table and the fingerprint of its request. It can also
contain the request. Files contain only data: reading one runs no code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fastplan.cache.fingerprint import fingerprint as request_key
from fastplan.engine.layout import layout_of
from fastplan.files.atomic import replace_file
from fastplan.model.plan import Basis, Layout, Plan
from fastplan.plans.basis import basis_json, check_agreement, read_basis
from fastplan.plans.checks import BadValue, PlanFileError, refuse
from fastplan.plans.convert import table_entry, table_layout
from fastplan.plans.document import (
    Document,
    Ranks,
    check_ranks,
    document_text,
    parse_json,
    read_document,
)
from fastplan.plans.entries import TableEntry
from fastplan.plans.placement import PlacementRule

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
    return plan_of(parse_file(data, name), name)


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
        document = read_document(parse_json(data), ranks=None if ranks is None else ranks.world)
        check_ranks(document.entries, ranks)
        return document
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def plan_of(document: Document, name: str) -> Plan:
    """Returns the plan of a parsed file.

    Args:
        document: The content.
        name: The name of the file in errors.

    Raises:
        PlanFileError: The content contradicts itself.
    """
    try:
        found = read_basis(document)
        layout = _layout(document) if found is None else _layout_by(document, *found)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    return Plan(
        name=document.notes.get("model") or Path(name).name,
        layout=layout,
        fingerprint=document.fingerprint,
        notes=document.notes,
        basis=None if found is None else found[0],
    )


def _layout(document: Document) -> Layout:
    rule = document.rule
    return Layout(
        tables=tuple(table_layout(entry) for entry in document.entries),
        device=rule and rule.device,
        ranks_per_host=rule and rule.ranks_per_host,
    )


def _layout_by(document: Document, basis: Basis, entries: list[TableEntry]) -> Layout:
    """Returns the layout of a plan with a basis, which also has the shapes of copies."""
    device = document.rule and document.rule.device
    layout = layout_of(basis.request, basis.cluster, basis.record, device=device)
    return replace(
        layout,
        tables=tuple(
            table._replace(
                settings=entry.settings if entry.listed is None else table_layout(entry).settings
            )
            for table, entry in zip(layout.tables, entries, strict=True)
        ),
    )


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
