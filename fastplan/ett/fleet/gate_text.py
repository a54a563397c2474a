"""What `fastplan ett gate` prints."""

from __future__ import annotations

from collections.abc import Sequence

from fastplan.ett.fleet.compare import LEVEL, RECOVER, START, Comparison
from fastplan.ett.phases import phase_name
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import format_count, format_percent, format_seconds

_TITLES = {START: "Time to Start", RECOVER: "Time to Recover"}
_PHASES = 8


def gate_text(
    found: Sequence[Comparison],
    phases: Sequence[Comparison],
    allowed: float,
    style: Style | None = None,
) -> str:
    """Returns the verdict, the figures that decided it, and the phases of starts.

    Args:
        found: The figures that decide.
        phases: Other phases of starts, which explain.
        allowed: The accepted regression.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    lines = [_verdict(each, phases, allowed, style) for each in found]
    lines += ["", *table_lines(_columns("figure"), [_row(each) for each in found], style)]
    by_change = sorted(phases, key=lambda each: -abs(each.median[1] - each.median[0]))
    if by_change:
        rows = [_row(each) for each in by_change[:_PHASES]]
        lines += ["", *table_lines(_columns("phase of starts"), rows, style)]
    lines += [
        "",
        "Change: the median ratio of a job after to a job before, with its interval. p: the chance "
        "of this order",
        f"without a change (Mann-Whitney, one-sided); a regression needs {LEVEL:g} or less"
        + (f", divided by {len(found)} figures." if len(found) > 1 else "."),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def figure_title(name: str) -> str:
    """Returns the title of a figure."""
    return _TITLES.get(name) or escape_name(phase_name(name).title)


def _verdict(each: Comparison, phases: Sequence[Comparison], allowed: float, style: Style) -> str:
    title, change = figure_title(each.name), _percent(each.change)
    if not each.decided:
        jobs = format_count(min(each.n), "job")
        return style.paint(f"undecided: {title}: {jobs} on a side are too few to tell", "yellow")
    if each.regressed:
        most = max(phases, key=lambda p: p.median[1] - p.median[0], default=None)
        cause = ""
        if most is not None and most.median[1] > most.median[0]:
            by = format_seconds(most.median[1] - most.median[0])
            cause = f", most of it in {figure_title(most.name)} (+{by})"
        return style.paint(f"regression: {title} {change}{cause}", "bold", "red")
    if each.p is not None and each.p <= LEVEL and each.change > 0:
        limit = format_percent(allowed)
        return f"ok: {title} {change}, and {limit} is ruled out"
    proven = "faster" if each.interval[1] < 0 else "not a proven change"
    return style.paint(f"ok: {title} {change}, {proven}", "green")


def _columns(title: str) -> list[Column]:
    names = ("before", "after", "change", "interval", "p", "n")
    return [Column(title), *(Column(name, right=True) for name in names)]


def _row(each: Comparison) -> list[str]:
    return [
        figure_title(each.name),
        format_seconds(each.median[0]),
        format_seconds(each.median[1]),
        _percent(each.change),
        f"{_percent(each.interval[0])} to {_percent(each.interval[1])}",
        "-" if each.p is None else "<1e-6" if each.p < 1e-6 else f"{each.p:.2g}",
        f"{each.n[0]:,} + {each.n[1]:,}",
    ]


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %"
