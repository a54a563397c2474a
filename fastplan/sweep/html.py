"""The page of a sweep: which cells fit, how fast they are, and the plan of each cell."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from fastplan import __version__
from fastplan.files.storage import replace_file
from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import read_plan
from fastplan.report.analysis import analyse
from fastplan.report.html_data import embedded, plan_data
from fastplan.report.page import render_page
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_count, format_milliseconds
from fastplan.sweep.plan_files import page_file, plan_file
from fastplan.sweep.queries import memory_of
from fastplan.sweep.rows import Row, SweepResult
from fastplan.sweep.text import cell_note, summary

_MOST_DETAILS = 500  # cells whose plan is shown in the page; about 3 kB each
_MOST_TABLES = 10  # of a plan, those that cost most
_MOST_BARS = 64  # of a plan's loads; many ranks share a bar, which shows the worst of them


def write_page(
    result: SweepResult,
    path: str,
    *,
    prices: Mapping[str, float] | None = None,
    plans: str | None = None,
    progress: Callable[[], None] | None = None,
) -> None:
    """Writes the page of a sweep as one file.

    Args:
        result: The sweep.
        path: The file.
        prices: Prices per rank and hour by SKU, which take precedence over those of the SKUs.
        plans: The folder with the plan files, which `run_sweep` wrote. The page links to it.
        progress: Called after each cell.

    Raises:
        OSError: The file can't be written.
    """
    replace_file(path, [sweep_page(result, prices, plans, path, progress).encode()])


def sweep_page(
    result: SweepResult,
    prices: Mapping[str, float] | None = None,
    plans: str | None = None,
    path: str = "",
    progress: Callable[[], None] | None = None,
) -> str:
    """Renders the page of a sweep. Arguments are those of `write_page`."""
    data = page_data(result, prices, plans, path, progress)
    rows = result.rows
    models = list(dict.fromkeys(row.model for row in rows))
    name = models[0] if len(models) == 1 else format_count(len(models), "model")
    return render_page(
        "sweep.html",
        styles=("base.css", "lists.css", "sweep.css", "sizes.css"),
        scripts=("base.js", "filters.js", "lists.js", "sweep_charts.js", "sweep.js"),
        title=f"{name}: sweep over clusters",
        name=name,
        facts=_facts(result),
        sentence=_sentence(result),
        measure="step" if data["measure"] == "step" else "rating",
        text="\n".join(summary(result)),
        version=__version__,
        data=Markup(embedded(data)),
    )


def page_data(
    result: SweepResult,
    prices: Mapping[str, float] | None = None,
    plans: str | None = None,
    path: str = "",
    progress: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Returns the data of the page: the fields of each row, and what is known of its plan."""
    known = {**result.prices, **(prices or {})}
    cells = []
    detailed = 0
    for row in result.rows:
        cell = _cell(row, known)
        if row.fits and plans is not None and os.path.exists(plan_file(plans, row.id)):
            cell |= _links(row, plans, path)
            if detailed < _MOST_DETAILS:
                detailed += 1
                cell["plan"] = _plan(plan_file(plans, row.id))
        cells.append(cell)
        if progress is not None:
            progress()
    return {
        "columns": [field.name for field in fields(Row)],
        "cells": cells,
        "measure": "step" if any(row.step is not None for row in result.rows) else "rating",
        "global_batch": result.global_batch,
        "most_details": _MOST_DETAILS,
        "files": plans is not None,
    }


def _cell(row: Row, prices: Mapping[str, float]) -> dict[str, Any]:
    """Returns a row's fields, and figures that follow from them."""
    values = {field.name: getattr(row, field.name) for field in fields(Row)}
    price = prices.get(row.sku)
    return {
        **{name: escape_name(v) if isinstance(v, str) else v for name, v in values.items()},
        "time": row.time,
        "memory": memory_of(row) if row.fits else None,
        "per_hour": None if price is None else price * row.world_size,
        "note": escape_name(cell_note(row)),
    }


def _links(row: Row, plans: str, path: str) -> dict[str, str]:
    """Returns URLs relative to the page: of the plan file and of the page about the plan."""
    beside = os.path.dirname(os.path.abspath(path))
    found = {"file": plan_file(plans, row.id)}
    if os.path.exists(page := page_file(plans, row.id)):
        found["page"] = page
    return {
        name: quote(os.path.relpath(where, beside).replace(os.sep, "/"))
        for name, where in found.items()
    }


def _plan(path: str) -> dict[str, Any] | None:
    """Returns what the page shows of a plan; None if its file can't be read."""
    try:
        found = plan_data(analyse(read_plan(path)))
    except (PlanFileError, OSError):
        return None
    tables = found["tables"]
    kinds: dict[str, list[int]] = {}
    for table in tables:
        count = kinds.setdefault(f"{table['type']} {table['kernel']}", [0, 0])
        count[0] += 1
        count[1] += table["bytes"] or 0
    tables = sorted(tables, key=lambda table: (-(table["share"] or 0.0), -(table["bytes"] or 0)))
    return {
        "sentence": found["sentence"],
        "kinds": sorted(
            ([kind, *count] for kind, count in kinds.items()), key=lambda each: -each[1]
        ),
        "tables": [
            {name: table[name] for name in ("path", "name", "type", "kernel", "ranks", "bytes")}
            | {"share": table["share"] and float(f"{table['share']:.4g}")}
            for table in tables[:_MOST_TABLES]
        ],
        "more_tables": max(0, len(tables) - _MOST_TABLES),
        "loads": _bars(found["total"] or []),
    }


def _bars(loads: list[float]) -> list[float]:
    """Returns the largest load of each group of consecutive ranks."""
    size = -(-len(loads) // _MOST_BARS)
    return [max(loads[i : i + size]) for i in range(0, len(loads), size or 1)]


def _facts(result: SweepResult) -> str:
    rows = result.rows
    fit, failed = len(result.fitting), len(result.failed)
    parts = [f"{format_count(len(rows), 'cell')}: {fit} fit, {len(rows) - fit - failed} do not"]
    if failed:
        parts[0] += f", {failed} failed"
    sizes = sorted({row.world_size for row in rows})
    if sizes:
        ends = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        parts += [", ".join(dict.fromkeys(row.sku for row in rows)), f"{ends} ranks"]
    return " · ".join(parts)


def _sentence(result: SweepResult) -> str:
    """Names the smallest and the fastest cluster that fits, if there is one model and batch."""
    fitting = [row for row in result.fitting if row.time is not None]
    if not fitting:
        return "No cell has a plan: nothing fits." if result.rows else "The sweep has no cells."
    if len({(row.model, row.batch) for row in fitting}) > 1:
        return "Choose a model, a batch and a cell to see its plan."
    fast = min(row.time for row in fitting if row.time is not None)
    small = min(row.world_size for row in fitting)
    fastest = [row for row in fitting if row.time == fast]
    smallest = [row for row in fitting if row.world_size == small]
    best = min(smallest, key=lambda row: row.time or 0.0)
    if best in fastest:
        return f"{_place(best)} is the smallest cluster that fits and the fastest: {_ms(fast)}."
    tied = f" ({len(fastest)} clusters tie)" if len(fastest) > 1 else ""
    return (
        f"The smallest cluster that fits is {_place(best)}, with {_ms(best.time or 0.0)}. "
        f"The fastest is {_place(fastest[0])}, with {_ms(fast)}{tied}."
    )


def _ms(value: float) -> str:
    return format_milliseconds(value)


def _place(row: Row) -> str:
    return f"{row.world_size:,} x {row.sku} in {row.precision}"
