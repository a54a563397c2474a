"""What `fastplan ett diff` prints: two jobs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.ett.arithmetic import Report
from fastplan.ett.names import NAMES, name_of
from fastplan.ett.report_text import facts
from fastplan.report.names import visible
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import of_change, of_seconds, of_share

_ORDER = {name: place for place, name in enumerate(NAMES)}


def diff_text(before: Report, after: Report, style: Style | None = None) -> str:
    """Both accounts, and what has changed; `style` is that of the stream it is for."""
    style = style or Style()
    room = style.width // 2 - 3
    names = [style.name(report.source or "job", room) for report in (before, after)]
    points = 100 * (after.ett - before.ett)
    lines = [
        style.paint(" -> ".join(names), "bold"),
        f"{facts(before)} -> {facts(after)}",
        "",
        style.paint(
            f"ETT {of_share(before.ett)} -> {of_share(after.ett)} ({points:+.2f} points)",
            "bold",
            "green" if points > 0 else "red" if points < 0 else "bold",
        ),
        "",
        *_figures(before, after, style),
        "",
        *_phases(before, after, style),
    ]
    for report in (before, after):
        for note in report.notes:
            lines.append(style.paint(f"note: {visible(report.source)}: {visible(note)}", "yellow"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def diff_json(before: Report, after: Report) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "before": before.source,
        "after": after.source,
        "ett": [before.ett, after.ett],
        "points": 100 * (after.ett - before.ett),
        "time_to_start": [before.time_to_start, after.time_to_start],
        "time_to_recover": [_mean(before), _mean(after)],
        "failures": [before.failures, after.failures],
        "lost_steps": [before.lost_steps, after.lost_steps],
        "seconds": [before.seconds, after.seconds],
        "phases": {
            name: [before.phases.get(name, 0.0), after.phases.get(name, 0.0)]
            for name in _names(before, after)
        },
    }


def _figures(before: Report, after: Report, style: Style) -> Iterator[str]:
    times = [
        ("Time to Start", before.time_to_start, after.time_to_start),
        ("Time to Recover, mean", _mean(before), _mean(after)),
        ("lost work", before.lost, after.lost),
        ("whole job", before.seconds, after.seconds),
    ]
    rows = [[title, *_change(old, new)] for title, old, new in times]
    rows.append(["failures", str(before.failures), str(after.failures), ""])
    yield from table_lines([Column(""), *_columns()], rows, style)


def _phases(before: Report, after: Report, style: Style) -> Iterator[str]:
    """All phases by how much their time has changed."""
    changes = [
        (name, before.phases.get(name, 0.0), after.phases.get(name, 0.0))
        for name in _names(before, after)
    ]
    changes.sort(key=lambda entry: -abs(entry[2] - entry[1]))
    rows = [[name_of(name).title, *_change(old, new)] for name, old, new in changes]
    yield from table_lines([Column("phase"), *_columns()], rows, style)


def _columns() -> list[Column]:
    return [Column(title, right=True) for title in ("before", "after", "change")]


def _change(old: float | None, new: float | None) -> list[str]:
    shown = [of_seconds(value) if value else "-" for value in (old, new)]
    if old is None or new is None:
        return [*shown, ""]
    if old and new:
        return [*shown, of_change(old, new)]
    return [*shown, "gone" if old else "new" if new else ""]


def _mean(report: Report) -> float | None:
    times = report.times_to_recover
    return sum(times) / len(times) if times else None


def _names(before: Report, after: Report) -> list[str]:
    both = before.phases.keys() | after.phases.keys()
    return sorted(both, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
