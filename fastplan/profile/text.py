"""Profiles as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastplan.model.ids import IdStatistics
from fastplan.model.units import shown
from fastplan.profile.summary import Summary, ids_outside
from fastplan.report.units import format_percent
from fastplan.spec.model import ModelSpec

TITLES = ("table", "ids", "pooling", "unique", "1% of rows", "10% of rows", "hottest 1%", "zipf")
ALIGN = "<>>>>>>>"


def distinct_ids(ids: IdStatistics) -> float:
    """Returns how many distinct ids were seen."""
    return ids.distinct(float(ids.ids))


def table_cells(name: str, ids: IdStatistics, batch: int) -> tuple[str, ...]:
    """Returns the cells of a table's row.

    Args:
        name: The table.
        ids: Its statistics.
        batch: Samples of a batch of all ranks.
    """
    rows = distinct_ids(ids)
    hottest = ids.hottest
    return (
        name,
        f"{ids.ids:,}",
        f"{ids.pooling:.3g}",
        format_percent(ids.unique.at(max(1.0, batch * ids.pooling))),
        format_percent(ids.misses.at(max(1.0, rows / 100))),
        format_percent(ids.misses.at(max(1.0, rows / 10))),
        "-" if hottest is None else format_percent(hottest.at(max(1.0, rows / 100))),
        "-" if ids.zipf is None else f"{ids.zipf:.2f} ± {ids.zipf_error or 0.0:.2f}",
    )


def notes(statistics: Mapping[str, IdStatistics], batch: int) -> list[str]:
    """Returns what the columns mean, and which tables were sampled."""
    lines = [
        f"unique: distinct ids in a batch of {batch:,} samples; 1% and 10% of rows: misses of an "
        "LRU cache with this part of the rows that occur"
    ]
    sampled = sum(1 for each in statistics.values() if (each.followed or 1.0) < 1.0)
    if sampled:
        lines.append(f"{sampled} of {len(statistics)} tables are estimates from a sample of ids")
    return lines


def outside_notes(summaries: Mapping[str, Summary], spec: ModelSpec) -> list[str]:
    """Returns a line for each table with ids that it has no row for.

    Args:
        summaries: The sums of each table.
        spec: The model. Tables of the same name share their ids.
    """
    rows: dict[str, int] = {}
    for table in spec.tables:
        rows[table.name] = max(table.rows, rows.get(table.name, 0))
    lines = []
    for name, summary in summaries.items():
        if name in rows and (outside := ids_outside(summary, rows[name])):
            about = "about " if outside < summary.ids and summary.frequencies.rate < 1.0 else ""
            lines.append(
                f"{about}{outside:,} of {summary.ids:,} ids of table {shown(name)} are outside its "
                f"{rows[name]:,} rows: if training hashes ids, profile the hashed ones"
            )
    return lines


def to_json(statistics: Mapping[str, IdStatistics], batch: int) -> dict[str, Any]:
    """Returns the figures of each table as JSON values."""
    tables = []
    for name, ids in statistics.items():
        rows = distinct_ids(ids)
        tables.append(
            {
                "name": name,
                "ids": ids.ids,
                "samples": ids.samples,
                "distinct": round(rows),
                "pooling": ids.pooling,
                "unique_share": ids.unique.at(max(1.0, batch * ids.pooling)),
                "miss_share_1_percent": ids.misses.at(max(1.0, rows / 100)),
                "miss_share_10_percent": ids.misses.at(max(1.0, rows / 10)),
                "zipf": ids.zipf,
                "zipf_error": ids.zipf_error,
                "followed": ids.followed,
            }
        )
    return {"batch": batch, "tables": tables}
