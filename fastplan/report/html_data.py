"""The data that the HTML report contains as JSON: headline, tiles, ranks, tables and changes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from fastplan.report.analysis import Analysis, Costs, Memory, TableRow
from fastplan.report.comparison import MARKS, Comparison, PlanStep, TablePlacement
from fastplan.report.estimates import RATED
from fastplan.report.plan_text import fullest_words, step_lines
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_bytes, format_milliseconds, format_percent, rank_words

_PINNED = 6
# A plan is called even up to this imbalance, and its memory tight below this free share.
_EVEN = 0.05
_TIGHT = 0.05
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embedded(document: Any) -> str:
    """Returns JSON for a script element: no value can end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def plan_data(analysis: Analysis) -> dict[str, Any]:
    """Returns a plan for the page's script. Names are escaped; figures have six digits."""
    costs = analysis.costs
    found: dict[str, Any] = {
        "ranks": analysis.ranks,
        "ranks_per_host": analysis.ranks_per_host,
        "sentence": _headline(analysis),
        "tiles": [tile._asdict() for tile in _tiles(analysis)],
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
            "tied": len(costs.worst_ranks),
            "mean": costs.mean,
            "balanced": costs.balanced,
        }
    return found


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _memory(tier: Memory) -> dict[str, Any]:
    capacity = tier.capacity.tolist() if tier.capacity is not None else None
    note = "weights" if capacity is None else f"line: capacity, up to {format_bytes(max(capacity))}"
    return {
        "name": tier.tier.upper(),
        "note": note,
        "used": tier.used.tolist(),
        "capacity": capacity,
    }


def _table(row: TableRow, ranks: int) -> dict[str, Any]:
    return {
        "path": escape_name(row.path),
        "name": escape_name(row.name),
        "shape": row.shape,
        "type": escape_name(row.sharding_type),
        "kernel": escape_name(row.kernel),
        "element": row.element_size,
        "bytes": row.bytes,
        "shards": row.shards,
        "ranks": row.where(ranks),
        "share": row.cost_share,
        "on_worst": row.on_worst,
        "mean": None if row.cost is None else row.cost / ranks,
    }


def change_data(comparison: Comparison) -> list[dict[str, Any]]:
    """Returns all changed tables for the page's script."""
    return [
        {
            "plan": escape_name(step.label),
            "mark": MARKS[change.kind],
            "table": escape_name(change.table),
            "before": _placement(change.before),
            "after": _placement(change.after),
            "bytes": change.bytes,
        }
        for step in comparison.steps
        for change in step.changes
    ]


def _placement(side: TablePlacement | None) -> str:
    if side is None:
        return "–"
    kind = f"{side.sharding_type} {side.kernel}".replace("_", " ")
    return f"{escape_name(kind)}, {side.ranks}"


def received_bytes(step: PlanStep, first: str, ranks: int) -> list[dict[str, Any]]:
    """Returns a lane with the bytes that each rank receives from the first plan, if any."""
    received = np.zeros(ranks, np.int64)
    known = np.asarray(step.movement.rank_received)[:ranks]
    received[: len(known)] = known
    if not received.any():
        return []
    note = f"when moving from {escape_name(first)}"
    return [{"name": "To receive", "note": note, "used": received.tolist(), "capacity": None}]


class _Tile(NamedTuple):
    """One headline figure. `tone` is good, warn or bad, and colours the verdict."""

    title: str
    value: str
    note: str
    verdict: str = ""
    tone: str = ""
    split: tuple[tuple[str, float], ...] = ()  # parts of a whole, drawn as a bar


def _headline(analysis: Analysis) -> str:
    """Returns one or two sentences: whether the plan is balanced, what limits it, if it fits."""
    parts = []
    costs = analysis.costs
    if costs is not None:
        comms = _comms_share(costs)
        what = "communication" if comms >= 0.5 else "compute"
        share = format_percent(max(comms, 1 - comms))
        if costs.balanced:
            parts.append(f"Every rank costs the same, and {share} of it is {what}.")
        else:
            above = format_percent(costs.imbalance)
            tie = len(costs.worst_ranks) > 1
            ranks = rank_words(costs.worst_ranks, analysis.ranks)
            parts.append(
                f"{ranks[:1].upper()}{ranks[1:]} {'tie as' if tie else 'is'} the slowest, {above} "
                f"above the mean; {share} of {'their' if tie else 'its'} time is {what}."
            )
    full = _fullest_tier(analysis)
    if full is not None and full.headroom is not None and full.headroom_share is not None:
        tier = full.tier.upper()
        if full.headroom < 0:
            lacking = format_bytes(-full.headroom)
            ranks = rank_words(full.fullest_ranks, analysis.ranks)
            lack = "lack" if len(full.fullest_ranks) > 1 and ranks != "every rank" else "lacks"
            parts.append(f"It does not fit: {ranks} {lack} {lacking} of {tier}.")
        else:
            free = format_percent(full.headroom_share)
            parts.append(f"Memory fits, with {free} of {tier} free on the fullest rank.")
    if not parts:
        parts.append("Only the layout of this plan is known: the placement, not the costs.")
    return " ".join(parts)


def _tiles(analysis: Analysis) -> list[_Tile]:
    """Returns the headline figures that are known."""
    found = []
    costs = analysis.costs
    if analysis.step is not None:
        note = "; ".join(" ".join(line.split()) for line in step_lines(analysis.step))
        found.append(_Tile("Predicted step", format_milliseconds(analysis.step.ms), note))
    if costs is not None:
        found += [_rating_tile(analysis, costs), _balance_tile(costs), _limit_tile(costs)]
    elif analysis.rating is not None:
        found.append(_Tile("Rating", format_milliseconds(analysis.rating), "estimated per step"))
    full = _fullest_tier(analysis)
    if full is not None:
        found.append(_memory_tile(full))
    if costs is None:
        weights = f"in {len(analysis.tables):,} tables"
        found.append(_Tile("Weights", format_bytes(analysis.bytes), weights))
    return found


def _comms_share(costs: Costs) -> float:
    total = float(costs.total[costs.worst_rank])
    return float(costs.comms[costs.worst_rank]) / total if total > 0 else 0.0


def _fullest_tier(analysis: Analysis) -> Memory | None:
    tiers = analysis.memory
    return min(tiers, key=lambda tier: tier.headroom_share or 0.0, default=None)


def _rating_tile(analysis: Analysis, costs: Costs) -> _Tile:
    note = "estimated per step"
    if analysis.gap is not None and analysis.lower_bound is not None:
        bound = format_milliseconds(analysis.lower_bound)
        note += f"; no plan is below {bound}, so at most {format_percent(analysis.gap)} is left"
    if analysis.torchrec_rating is not None:
        note += f"; {format_milliseconds(analysis.torchrec_rating)} by TorchRec's costs"
    return _Tile("Rating", format_milliseconds(costs.rating), note)


def _balance_tile(costs: Costs) -> _Tile:
    if costs.balanced:
        return _Tile("Balance", "0 %", "all ranks cost the same", "Even:", "good")
    even = costs.imbalance <= _EVEN
    note = f"rank {costs.worst_rank} against the mean of {format_milliseconds(costs.mean)}"
    verdict, tone = ("Even:", "good") if even else ("Uneven:", "warn")
    return _Tile("Imbalance", f"+{format_percent(costs.imbalance)}", note, verdict, tone)


def _limit_tile(costs: Costs) -> _Tile:
    worst = costs.worst_rank
    total = float(costs.total[worst]) or 1.0
    comms = _comms_share(costs)
    name, share = ("comms", comms) if comms >= 0.5 else ("compute", 1 - comms)
    where = f"on {rank_words(costs.worst_ranks, len(costs.total))}"
    if not costs.balanced:
        where += f", which {'sets' if len(costs.worst_ranks) == 1 else 'set'} the rating"
    split = tuple((part, float(costs.parts[part][worst]) / total) for part in RATED)
    return _Tile("Limited by", f"{name} {format_percent(share)}", where, split=split)


def _memory_tile(tier: Memory) -> _Tile:
    rank = tier.fullest_rank
    name = tier.tier.upper()
    used = format_bytes(int(tier.used[rank]))
    if tier.capacity is None or tier.headroom is None or tier.headroom_share is None:
        return _Tile(f"{name} by weights", used, f"on {fullest_words(tier)}")
    note = f"{used} of {format_bytes(int(tier.capacity[rank]))} used on {fullest_words(tier)}"
    title = f"{name} headroom"
    if tier.headroom < 0:
        return _Tile(title, f"-{format_bytes(-tier.headroom)}", note, "Does not fit:", "bad")
    verdict, tone = ("Fits:", "good") if tier.headroom_share >= _TIGHT else ("Tight:", "warn")
    return _Tile(title, format_percent(tier.headroom_share), note, verdict, tone)
