"""A re-plan for people to read: what differs, what moves, and what that is worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.planning.moves import Move
from fastplan.planning.replan import ReplanReport
from fastplan.report.names import table_name, visible
from fastplan.report.units import of_bytes, of_count, of_seconds, of_share

_MOST_LINES = 20


def replan_lines(report: ReplanReport) -> Iterator[str]:
    """The report in a few lines, largest moves first."""
    yield f"since the previous plan: {visible(str(report.difference))}"
    moves = report.moves
    how = "follows the previous plan" if report.followed else "from scratch"
    yield f"plan: {how}" + (f" ({visible(report.reason)})" if report.reason else "")
    yield (
        f"moves: {of_count(len(moves), 'move')}, {of_bytes(moves.bytes)} = "
        f"{of_share(report.moved_part)} of all; {of_bytes(report.least)} must move"
        + ("" if moves.seconds is None else f"; about {of_seconds(moves.seconds)}")
    )
    if report.scratch_rating is not None and report.scratch_moved is not None:
        part = report.scratch_moved / report.held if report.held else 0.0
        yield (
            f"from scratch: rating {report.scratch_rating:.6g} against {report.rating:.6g}, "
            f"moving {of_share(part)}"
        )
    if moves.pays_back_after is not None:
        yield f"pays back after {moves.pays_back_after:,.0f} steps"
    for move in moves.moves[:_MOST_LINES]:
        yield f"  > {_words(move)}"
    if len(moves) > _MOST_LINES:
        yield f"  and {len(moves) - _MOST_LINES} more"
    for name in moves.removed:
        yield f"  - {visible(name)}"


def _words(move: Move) -> str:
    source = "storage" if move.source is None else f"rank {move.source}"
    name = visible(table_name(move.path, move.table))
    return f"{name}[{move.shard}]: {source} -> rank {move.target}, {of_bytes(move.bytes)}"


def replan_json(report: ReplanReport) -> dict[str, Any]:
    """The report as JSON."""
    moves = report.moves
    return {
        "followed": report.followed,
        "previous": report.previous,
        "reason": report.reason,
        "difference": str(report.difference),
        "rating": report.rating,
        "moved": report.moved,
        "must_move": report.least,
        "bytes": report.held,
        "scratch_rating": report.scratch_rating,
        "scratch_moved": report.scratch_moved,
        "seconds": moves.seconds,
        "pays_back_after": moves.pays_back_after,
        "frontier": [point._asdict() for point in report.frontier],
        "moves": [move._asdict() for move in moves],
        "removed": list(moves.removed),
    }
