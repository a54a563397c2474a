"""What the HTML report holds as JSON for its script to draw."""

from __future__ import annotations

import json
from typing import Any

from fastplan.report.analysis import Analysis, Memory, TableRow
from fastplan.report.names import visible
from fastplan.report.units import of_bytes
from fastplan.report.verdict import sentence, tiles

_PINNED = 6
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embedded(document: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def plan_data(analysis: Analysis) -> dict[str, Any]:
    """A plan as the script reads it. Names are made visible; figures have six digits."""
    costs = analysis.costs
    found: dict[str, Any] = {
        "ranks": analysis.ranks,
        "ranks_per_host": analysis.ranks_per_host,
        "sentence": sentence(analysis),
        "tiles": [tile._asdict() for tile in tiles(analysis)],
        "lanes": [_memory(tier) for tier in analysis.memory],
        "tables": [_table(row, analysis.ranks) for row in analysis.tables],
        "pinning": list(analysis.pinning[:_PINNED]),
        "parts": None,
        "total": None,
        "worst": None,
    }
    if costs is not None:
        found |= {
            "parts": {part: _rounded(values) for part, values in costs.parts.items()},
            "total": _rounded(costs.total),
            "worst": costs.worst_rank,
            "mean": costs.mean,
            "balanced": costs.balanced,
        }
    return found


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _memory(tier: Memory) -> dict[str, Any]:
    capacity = tier.capacity.tolist() if tier.capacity is not None else None
    note = "weights" if capacity is None else f"line: capacity, up to {of_bytes(max(capacity))}"
    return {
        "name": tier.tier.upper(),
        "note": note,
        "used": tier.used.tolist(),
        "capacity": capacity,
    }


def _table(row: TableRow, ranks: int) -> dict[str, Any]:
    return {
        "path": visible(row.path),
        "name": visible(row.name),
        "shape": row.shape,
        "type": visible(row.sharding_type),
        "kernel": visible(row.kernel),
        "element": row.element_size,
        "bytes": row.bytes,
        "shards": row.shards,
        "ranks": row.where(ranks),
        "share": row.cost_share,
        "on_worst": row.on_worst,
        "mean": None if row.cost is None else row.cost / ranks,
    }
