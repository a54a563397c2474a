"""Formats the result of a sweep as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from textwrap import wrap
from typing import Any

from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)
from fastplan.sweep.queries import Cheapest, Saving, Smallest, memory_of, savings
from fastplan.sweep.rows import Row, SweepResult
from fastplan.sweep.sweep import Cell

PLAIN = Style()
_CACHE = {"hit": "hit", "miss": "stored", "failed": "failed", "off": "-"}
_MOST_FAILURES = 10
_CELL_FIELDS = ("id", "model", "sku", "world_size", "hosts", "batch", "batch_size", "precision")


def summary(result: SweepResult, style: Style = PLAIN) -> Iterator[str]:
    """Yields counts, a table for each model and batch, savings by precision, and failures."""
    yield _counts(result)
    titles = [
        Column("SKU"),
        Column("precision"),
        Column("ranks", True),
        Column("hosts", True),
        Column("fits"),
        Column("rating", True),
        Column("step", True),
        Column("headroom", True),
        Column("", True),
        Column("cache"),
        Column("note"),
    ]
    has_steps = any(row.step is not None for row in result.rows)
    cached = any(row.cache != "off" for row in result.rows)
    empty = {"step": not has_steps, "cache": not cached}
    kept = [i for i, title in enumerate(titles) if not empty.get(title.title)]
    for (model, batch), rows in _by_batch(result.rows).items():
        yield ""
        title = f", {_batch(result, batch)}"
        yield style.paint(style.name(model, style.width - len(title)) + title, "bold")
        shown = [[cells[i] for i in kept] for cells in map(_cells, rows)]
        yield from table_lines([titles[i] for i in kept], shown, style)
    yield from _savings(savings(result), style)
    yield from _failures(result.failed, style)


def smallest_lines(answers: list[Smallest], style: Style = PLAIN) -> Iterator[str]:
    """Yields the answers of `smallest_cluster` as a table."""
    yield style.paint("Smallest cluster that fits", "bold")
    titles = [
        Column("model"),
        Column("SKU"),
        Column("batch", True),
        Column("precision"),
        Column("ranks", True),
        Column("rating", True),
        Column("headroom", True),
        Column("note"),
    ]
    rows = []
    for answer in answers:
        row = answer.row
        found = ["-"] * 3
        if row is not None:
            found = [str(row.world_size), _rating(row), format_percent(row.headroom or 0)]
        asked = [answer.model, answer.sku, str(answer.batch), answer.precision]
        rows.append([*asked, *found, _smallest_note(answer)])
    yield from table_lines(titles, rows, style)


def cheapest_lines(answers: list[Cheapest], rating: float, style: Style = PLAIN) -> Iterator[str]:
    """Yields the answers of `cheapest` as a table."""
    rows_found = [answer.row or answer.best for answer in answers]
    measure = "step" if any(row is not None and row.step for row in rows_found) else "rating"
    yield style.paint(
        f"Cheapest cluster with a {measure} of at most {format_milliseconds(rating)}", "bold"
    )
    titles = [
        Column("model"),
        Column("batch", True),
        Column("precision"),
        Column("SKU"),
        Column("ranks", True),
        Column(measure, True),
        Column("per hour", True),
        Column("note"),
    ]
    rows = []
    for answer in answers:
        found = ["-"] * 4
        note = ""
        if answer.row is not None:
            row = answer.row
            found = [row.sku, str(row.world_size), _time(row), f"{answer.cost:,.2f}"]
            note = f"{answer.price:,.4g} per rank"
        elif answer.best is not None:
            best = answer.best
            note = f"best is {_time(best)} on {best.world_size} x {best.sku}"
        else:
            note = "nothing fits"
        rows.append([answer.model, str(answer.batch), answer.precision, *found, note])
    yield from table_lines(titles, rows, style)


def cell_lines(found: list[Cell], style: Style = PLAIN) -> Iterator[str]:
    """Yields the cells of a sweep as a table, before planning."""
    titles = [
        Column("model"),
        Column("SKU"),
        Column("precision"),
        Column("batch", True),
        Column("of a rank", True),
        Column("ranks", True),
        Column("hosts", True),
        Column("id"),
    ]
    rows = [
        [
            cell.model,
            cell.sku,
            cell.precision,
            str(cell.batch),
            str(cell.batch_size),
            str(cell.world_size),
            str(cell.hosts),
            cell.id,
        ]
        for cell in found
    ]
    yield from table_lines(titles, rows, style)
    yield f"\n{format_count(len(found), 'cell')}"


def cells_json(found: list[Cell]) -> list[dict[str, Any]]:
    """Returns the cells as JSON values."""
    return [{name: getattr(cell, name) for name in _CELL_FIELDS} for cell in found]


def cells_csv(found: list[Cell]) -> str:
    """Returns the cells as CSV with a header line."""
    return _csv(_CELL_FIELDS, found)


def to_json(result: SweepResult) -> dict[str, Any]:
    """Returns the result as JSON values."""
    return {
        "cells": len(result.rows),
        "fit": len(result.fitting),
        "failed": len(result.failed),
        "known": result.known,
        "seconds": round(result.seconds, 3),
        "global_batch": result.global_batch,
        "rows": [asdict(row) for row in result.rows],
        "savings": [saving_json(saving) for saving in savings(result)],
    }


def saving_json(saving: Saving) -> dict[str, Any]:
    """Returns a saving as JSON values."""
    row = saving.row
    return {
        "model": saving.model,
        "sku": saving.sku,
        "batch": saving.batch,
        "precision": saving.precision,
        "against": saving.against,
        "smallest_world_size": saving.smallest,
        "compared_at_world_size": None if row is None else row.world_size,
        "memory_bytes": None if row is None else memory_of(row),
        "memory_ratio": saving.memory,
        "rating": None if row is None else row.rating,
        "rating_ratio": saving.rating,
    }


def to_csv(result: SweepResult) -> str:
    """Returns the rows as CSV with a header line."""
    return _csv([f.name for f in fields(Row)], result.rows)


def _csv(names: Sequence[str], rows: Sequence[Row | Cell]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([escape_name(v) if isinstance(v, str) else v for v in values])
    return text.getvalue()


def _counts(result: SweepResult) -> str:
    rows = result.rows
    fit, failed = len(result.fitting), len(result.failed)
    counts = [f"{format_count(len(rows), 'cell')}: {fit} fit", f"{len(rows) - fit - failed} do not"]
    if failed:
        counts.append(f"{failed} failed")
    for status, words in (("hit", "were cached"), ("miss", "are stored now")):
        count = sum(row.fits is True and row.cache == status for row in rows)
        if count:
            counts.append(f"{count} {words}")
    if result.known:
        counts.append(f"{result.known} were known")
    return f"{', '.join(counts)}; {format_seconds(result.seconds)}"


def _by_batch(rows: tuple[Row, ...]) -> dict[tuple[str, int], list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.batch), []).append(row)
    return groups


def _batch(result: SweepResult, batch: int) -> str:
    return f"batch {batch:,} {'of all ranks' if result.global_batch else 'of a rank'}"


def _cells(row: Row) -> list[str]:
    known = row.headroom_bytes is not None
    return [
        row.sku,
        row.precision,
        str(row.world_size),
        str(row.hosts),
        {True: "yes", False: "no", None: "failed"}[row.fits],
        _rating(row),
        "-" if row.step is None else format_milliseconds(row.step),
        format_bytes(row.headroom_bytes or 0) if known else "-",
        format_percent(row.headroom or 0.0) if known else "-",
        _CACHE.get(row.cache, "-") if row.fits else "-",
        cell_note(row),
    ]


def _time(row: Row) -> str:
    return "-" if row.time is None else format_milliseconds(row.time)


def _rating(row: Row) -> str:
    return "-" if row.rating is None else format_milliseconds(row.rating)


def cell_note(row: Row) -> str:
    """Returns why a cell has no plan, or which of its memory is not device memory."""
    if row.fits is None:
        return row.error or ""
    if not row.fits:
        return "" if row.headroom_bytes is not None else row.shortage or ""
    elsewhere = {"ddr": row.ddr_bytes, "ssd": row.ssd_bytes}
    return ", ".join(
        f"{format_bytes(size)} in {tier.upper()}"
        for tier, size in elsewhere.items()
        if size and tier != row.tier
    )


def _smallest_note(answer: Smallest) -> str:
    notes = []
    if answer.row is not None:
        notes.append(cell_note(answer.row))
    else:
        largest = answer.largest
        notes.append(f"{largest.world_size} ranks {_format_shortage(largest)}")
    if answer.unknown:
        notes.append(f"{', '.join(map(str, answer.unknown))} failed")
    return "; ".join(filter(None, notes))


def _format_shortage(row: Row) -> str:
    if row.fits is None:
        return "failed"
    if row.headroom_bytes is None:
        return f"are not enough: {row.shortage}"
    return f"lack {format_bytes(-row.headroom_bytes)} {(row.tier or '').upper()} each"


def _savings(found: list[Saving], style: Style) -> Iterator[str]:
    if not found:
        return
    yield ""
    yield style.paint(f"Precision, compared with {found[0].against}", "bold")
    titles = [
        Column("model"),
        Column("SKU"),
        Column("batch", True),
        Column("precision"),
        Column("fits from", True),
        Column("at", True),
        Column("memory", True),
        Column("", True),
        Column("rating", True),
        Column("", True),
    ]
    yield from table_lines(titles, [_saving_cells(saving) for saving in found], style)


def _saving_cells(saving: Saving) -> list[str]:
    smallest = "never" if saving.smallest is None else f"{saving.smallest} ranks"
    asked = [saving.model, saving.sku, str(saving.batch), saving.precision, smallest]
    row = saving.row
    if row is None:
        return [*asked, "-", "-", "-", "-", "-"]
    return [
        *asked,
        f"{row.world_size} ranks",
        format_bytes(memory_of(row)),
        "" if saving.memory is None else format_change(1.0, saving.memory),
        _rating(row),
        "" if saving.rating is None else format_change(1.0, saving.rating),
    ]


def _failures(failed: tuple[Row, ...], style: Style) -> Iterator[str]:
    if not failed:
        return
    yield ""
    yield style.paint(f"{format_count(len(failed), 'cell')} failed", "bold", "red")
    for row in failed[:_MOST_FAILURES]:
        place = f"{row.model} on {row.world_size} x {row.sku}, batch {row.batch}, {row.precision}"
        yield f"  {style.name(place, style.width - 3)}:"
        yield from wrap(
            escape_name(row.error or "for an unknown reason"),
            style.width,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    if len(failed) > _MOST_FAILURES:
        yield f"  and {len(failed) - _MOST_FAILURES} more: --json shows all"
