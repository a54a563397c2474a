"""The page of `fastplan ett diff`: two jobs next to each other, without scripts."""

from __future__ import annotations

from markupsafe import Markup

from fastplan import __version__
from fastplan.ett.arithmetic import Report
from fastplan.ett.phases import phase_name, phase_order
from fastplan.ett.text import facts
from fastplan.report.page import render_page
from fastplan.report.units import format_change, format_percent, format_seconds

_WIDTH = 300.0


def diff_page(before: Report, after: Report) -> str:
    """Renders a page about two jobs.

    Args:
        before: The report on a job.
        after: The report on another job.

    Returns:
        The page as HTML. It fetches nothing.
    """
    names = [report.source or "job" for report in (before, after)]
    return render_page(
        "ett_diff.html",
        styles=("base.css", "lists.css", "diff.css"),
        title=f"{names[0]} -> {names[1]}: Effective Training Time",
        name=f"{names[0]} → {names[1]}",
        facts=f"{facts(before)} → {facts(after)}",
        tiles=_tiles(before, after),
        phases=_phases(before, after),
        notes=[f"{r.source}: {note}" for r in (before, after) for note in r.notes],
        version=__version__,
    )


def _tiles(before: Report, after: Report) -> list[tuple[str, str, str, str]]:
    """Titles, figures after, figures before, and whether that is good or bad."""
    points = 100 * (after.ett - before.ett)
    found = [
        (
            "ETT",
            format_percent(after.ett),
            f"was {format_percent(before.ett)} ({points:+.2f} points)",
            _kind(-points),
        )
    ]
    for title, old, new in (
        ("Time to Start", before.time_to_start, after.time_to_start),
        ("Time to Recover, mean", _mean(before), _mean(after)),
        ("Lost work", before.lost, after.lost),
    ):
        worse = new - old if new is not None and old is not None else 0.0
        found.append((title, _time(new), f"was {_time(old)}", _kind(worse)))
    worse = after.failures - before.failures
    found.append(("Failures", str(after.failures), f"was {before.failures}", _kind(worse)))
    return found


def _kind(worse: float) -> str:
    return "bad" if worse > 0 else "good" if worse < 0 else ""


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else format_seconds(seconds)


def _mean(report: Report) -> float | None:
    times = report.times_to_recover
    return sum(times) / len(times) if times else None


def _phases(before: Report, after: Report) -> list[tuple[str, str, str, str, str]]:
    names = sorted(before.phases.keys() | after.phases.keys(), key=phase_order)
    pairs = [(name, before.phases.get(name, 0.0), after.phases.get(name, 0.0)) for name in names]
    pairs.sort(key=lambda entry: -abs(entry[2] - entry[1]))
    # Training would make the bars of all other phases invisible.
    most = max((max(o, n) for name, o, n in pairs if name != "training"), default=0.0) or 1.0
    return [
        (
            phase_name(name).title,
            format_seconds(old) if old else "-",
            format_seconds(new) if new else "-",
            format_change(old, new) if old and new else "gone" if old else "new",
            _bars(min(1.0, old / most), min(1.0, new / most)),
        )
        for name, old, new in pairs
        if old or new
    ]


def _bars(old: float, new: float) -> str:
    """An SVG of two bars, whose sizes are fractions."""
    shapes = "".join(
        f'<rect class="{kind}" y="{y}" width="{_WIDTH * size:.1f}" height="8"></rect>'
        for kind, y, size in (("before", 0, old), ("after", 10, new))
    )
    return Markup(
        f'<svg class="pair" viewBox="0 0 {_WIDTH:.0f} 18" preserveAspectRatio="none">{shapes}</svg>'
    )
