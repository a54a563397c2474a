"""The page about a model's ids: a list of tables, and the curves of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fastplan import __version__
from fastplan.model.ids import Curve, IdStatistics
from fastplan.profile.text import ALIGN, TITLES, distinct_ids, table_cells
from fastplan.report.html_data import embedded
from fastplan.report.page import render_page
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_count
from fastplan.spec.model import ModelSpec

_STYLES = ("base.css", "lists.css", "ids.css")
_SCRIPTS = ("base.js", "lists.js", "ids.js")
_MOST_RANKS = 4096


def html_page(spec: ModelSpec, statistics: Mapping[str, IdStatistics]) -> str:
    """Renders a page about the ids of a model.

    Args:
        spec: The model.
        statistics: By table, of at least one.

    Returns:
        The page as HTML. It fetches nothing.
    """
    batch = spec.batch_size * (spec.topology.world_size or 1)
    ids = sum(each.ids for each in statistics.values())
    facts = (
        f"{format_count(len(statistics), 'table')}, {ids:,} ids. A batch of all ranks has "
        f"{batch:,} samples. Misses are those of an LRU cache with 1 % or 10 % of the rows that "
        "occur."
    )
    data = {"tables": [_table(name, each, spec, batch) for name, each in statistics.items()]}
    return render_page(
        "ids.html",
        styles=_STYLES,
        scripts=_SCRIPTS,
        title=f"{spec.name}: ids",
        name=spec.name,
        facts=facts,
        version=__version__,
        text=_text(statistics, batch),
        data=Markup(embedded(data)),
    )


def _table(name: str, ids: IdStatistics, spec: ModelSpec, batch: int) -> dict[str, Any]:
    rows = distinct_ids(ids)
    return {
        "name": escape_name(name),
        "ids": ids.ids,
        "distinct": rows,
        "pooling": ids.pooling,
        "unique": ids.unique.at(max(1.0, batch * ids.pooling)),
        "miss1": ids.misses.at(max(1.0, rows / 100)),
        "miss10": ids.misses.at(max(1.0, rows / 10)),
        "zipf": ids.zipf,
        "zipf_error": ids.zipf_error or 0.0,
        "followed": ids.followed,
        "by_ranks": _by_ranks(ids, spec.batch_size),
        "misses": _points(ids.misses),
        "hottest": _points(ids.hottest),
        "pooling_quantiles": _points(ids.pooling_quantiles),
    }


def _by_ranks(ids: IdStatistics, batch: int) -> list[tuple[int, float]]:
    """Returns the share of distinct ids in a batch of all ranks, as far as the data reach."""
    points, ranks = [], 1
    while ranks <= _MOST_RANKS and (ranks == 1 or ranks * batch * ids.pooling <= ids.ids):
        points.append((ranks, ids.unique.at(max(1.0, ranks * batch * ids.pooling))))
        ranks *= 2
    return points


def _points(curve: Curve | None) -> list[tuple[float, float]]:
    return [] if curve is None else list(zip(curve.x, curve.y, strict=True))


def _text(statistics: Mapping[str, IdStatistics], batch: int) -> str:
    """Returns the figures for browsers that run no scripts."""
    rows = [TITLES, *(table_cells(name, ids, batch) for name, ids in statistics.items())]
    rows = [tuple(escape_name(cell) for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(TITLES))]
    lines = []
    for row in rows:
        cells = zip(row, ALIGN, widths, strict=True)
        lines.append("  ".join(f"{cell:{side}{width}}" for cell, side, width in cells))
    return "\n".join(lines)
