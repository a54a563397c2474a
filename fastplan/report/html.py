"""The HTML report on plans: one file without dependencies, to open in a browser and to pass on.

Its scatter plot has estimated and measured times on logarithmic scales. There a constant ratio of
the two is a line, and the distance from it is the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from fastplan import __version__
from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.compare_text import counted, fullest_text, remarks
from fastplan.report.comparison import Comparison, PlanStep
from fastplan.report.html_data import change_data, embedded, plan_data, received_bytes
from fastplan.report.page import render_page
from fastplan.report.plan_text import analysis_text, facts
from fastplan.report.terminal import Style, escape_name
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)
from fastplan.report.what_if import what_if_data

_STYLES = ("base.css", "ranks.css", "lists.css", "scatter.css", "what_if.css", "sizes.css")
_SCRIPTS = ("base.js", "chart.js", "ranks.js", "what_if.js", "filters.js", "lists.js", "page.js")
# Title, class and key of each column in the table of plans.
_COLUMNS = (
    ("Plan", "", "label"),
    ("Load by rank", "load", "load"),
    ("Rating, est.", "num", "rating"),
    ("Change", "num", "change"),
    ("Step, meas.", "num", "step"),
    ("Imbalance", "num less", "imbalance"),
    ("Fullest rank", "num", "fullest"),
    ("To move, est.", "num", "to_move"),
)


def html_report(
    plans: Sequence[Plan], comparison: Comparison | None = None, findings: Sequence[str] = ()
) -> str:
    """Renders a page about one or more plans.

    Args:
        plans: The plans to show.
        comparison: The comparison of these plans, which adds how they differ.
        findings: Sentences about how estimates and measurements agree.

    Returns:
        The page as HTML.

    Raises:
        ValueError: if there is no plan, or `comparison` is of other plans.
    """
    if not plans:
        raise ValueError("`plans` must have at least one")
    if comparison is None:
        analyses, labels = [analyse(plan) for plan in plans], [plan.name for plan in plans]
    else:
        analyses, labels = list(comparison.analyses), list(comparison.labels)
    # A comparison may rate plans by other costs, which keeps their layouts.
    pairs = zip(analyses, plans, strict=True)
    if any(analysis.plan.layout is not plan.layout for analysis, plan in pairs):
        raise ValueError("`comparison` must be of these plans")
    data: dict[str, Any] = {"plans": [plan_data(analysis) for analysis in analyses]}
    for own, analysis in zip(data["plans"], analyses, strict=True):
        own["what_if"] = what_if_data(analysis, len(plans))
    if comparison is not None:
        data["changes"] = change_data(comparison)
        for plan, step in zip(data["plans"][1:], comparison.steps, strict=True):
            plan["lanes"] += received_bytes(step, labels[0], plan["ranks"])
    name = analyses[0].plan.name
    texts = [analysis_text(it, ranks="worst", tables=True, style=Style()) for it in analyses]
    return render_page(
        "plans.html",
        styles=_STYLES,
        scripts=_SCRIPTS,
        title=f"{name}: sharding plan",
        mark="Sharding plan" if len(labels) == 1 else f"{len(labels)} sharding plans",
        name=name,
        facts=facts(analyses[0]),
        labels=labels,
        comparison=None if comparison is None else _comparison(comparison),
        findings=findings,
        origins=[_origin(*pair) for pair in zip(analyses, labels, strict=True)],
        version=__version__,
        text="\n".join(texts),
        data=Markup(embedded(data)),
    )


def _origin(analysis: Analysis, label: str) -> list[tuple[str, str]]:
    """Titles and texts about how a plan was created, and the assumptions of its figures."""
    plan = analysis.plan
    found = {"plan": label, **{name: str(value) for name, value in plan.notes.items()}}
    if plan.layout.device:
        found["device"] = plan.layout.device
    if plan.fingerprint:
        found["fingerprint"] = plan.fingerprint
    pairs = [*found.items(), *(("assumption", text) for text in analysis.assumptions)]
    return [(_title(name), text) for name, text in pairs]


def _title(name: str) -> str:
    words = escape_name(name).replace("_", " ")
    return words[:1].upper() + words[1:]


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """The section about how plans differ, as the template reads it."""
    steps = comparison.steps
    rows = [_row(comparison, index) for index in range(len(comparison.labels))]
    return {
        "sentence": _sentence(comparison),
        "remarks": [
            *filter(None, [comparison.yardstick]),
            *(
                f"{step.label}: {text}" if len(steps) > 1 else text
                for step in steps
                for text in remarks(step, most=5)
            ),
        ],
        "counts": [(mark, f"{count:,}", words) for mark, count, words in counted(steps[0])]
        if len(steps) == 1
        else [],
        "columns": [
            column
            for column in _COLUMNS
            if column[2] == "load" or any(row[column[2]] for row in rows)
        ],
        "rows": rows,
        "changed": any(step.changes for step in steps),
        "scatter": Markup(scatter(_points(comparison))),
    }


def _points(comparison: Comparison) -> list[ScatterPoint]:
    return [
        ScatterPoint(label, analysis.rating, 1000 * measured.median, 1000 * measured.spread)
        for label, analysis, measured in zip(
            comparison.labels, comparison.analyses, comparison.measured, strict=True
        )
        if analysis.rating is not None and measured is not None
    ]


def _sentence(comparison: Comparison) -> str:
    """The estimate of the best of the other plans, and what the change to it takes."""
    if not any(step.changes for step in comparison.steps):
        return "All plans place every table the same way."
    first, *others = (analysis.rating for analysis in comparison.analyses)
    known = [(rating, i) for i, rating in enumerate(others) if rating is not None]
    if first is None or not known:
        step = max(comparison.steps, key=lambda step: len(step.changes))
        return f"{_effort(step)}."
    best, index = min(known)
    step = comparison.steps[index]
    if best == first:
        return f"{step.label} costs the same by estimate. {_effort(step)}."
    much = f"{format_percent(abs(1 - best / first))} {'less' if best < first else 'more'}"
    costs = f"{format_milliseconds(best)} a step instead of {format_milliseconds(first)}"
    return f"{step.label} costs {much} by estimate: {costs}. {_effort(step)}."


def _effort(step: PlanStep) -> str:
    moved = format_bytes(step.movement.bytes)
    text = f"Getting there changes {format_count(len(step.changes), 'table')} and moves {moved}"
    seconds = step.movement.seconds
    return text if seconds is None else f"{text} in about {format_seconds(seconds)}"


def _row(comparison: Comparison, index: int) -> dict[str, Any]:
    """A row in the table of plans. Lists are parts that a line break does not split."""
    analysis, measured = comparison.analyses[index], comparison.measured[index]
    first, own, costs = comparison.analyses[0].rating, analysis.rating, analysis.costs
    row: dict[str, Any] = {
        "index": index,
        "label": comparison.labels[index],
        "rating": [] if own is None else [format_milliseconds(own)],
        "change": "",
        "tone": "",
        "step": [],
        "imbalance": [] if costs is None else [f"+{format_percent(costs.imbalance)}"],
        "fullest": [fullest_text(analysis.memory[0])] if analysis.memory else [],
        "to_move": [],
    }
    if measured is not None:
        half = format_seconds(measured.spread / 2)
        row["step"] = [format_seconds(measured.median), f"± {half}"]
    if index:
        if first is not None and own is not None:
            row["change"] = format_change(first, own)
            row["tone"] = "good" if own < first else "bad" if own > first else ""
        moves = comparison.steps[index - 1].movement
        seconds = "" if moves.seconds is None else format_seconds(moves.seconds)
        row["to_move"] = [format_bytes(moves.bytes), seconds]
    return row


_PLOT_WIDTH, _PLOT_HEIGHT = 760.0, 420.0
_PLOT_LEFT, _PLOT_RIGHT, _PLOT_TOP, _PLOT_BOTTOM = 84.0, 24.0, 16.0, 52.0
_LABEL_HEIGHT = 15.0  # between two labels
_MOST_LETTERS = 36  # letters of a label


class ScatterPoint(NamedTuple):
    """A plan that was both estimated and measured, in milliseconds."""

    label: str
    estimated: float
    measured: float
    spread: float  # between the quartiles of what was measured


class _Axis:
    """Maps a range of times, with a margin, to pixels."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.08 * (high - low), 0.04)
        self.low, self.high = low - room, high + room
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Round times with enough distance for their labels."""
        low, high = 10.0**self.low, 10.0**self.high
        if high / low < 6:
            power = 10.0 ** math.floor(math.log10(high - low))
            step = next(s * power for s in (0.2, 0.5, 1, 2, 5) if (high - low) / (s * power) < 6)
            first = math.ceil(low / step)
            return [step * i for i in range(first, math.floor(high / step) + 1)]
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [step * 10.0**power for power in powers for step in steps]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) <= 7:
                return ticks
        return ticks[:: math.ceil(len(ticks) / 7)]


def scatter(points: Sequence[ScatterPoint]) -> str:
    """Draws a point per plan, bars for spreads, and a line for the median ratio.

    Returns:
        An SVG; empty with fewer than two points above zero.
    """
    points = [point for point in points if point.estimated > 0 and point.measured > 0]
    if len(points) < 2:
        return ""
    across = _Axis([point.estimated for point in points], _PLOT_LEFT, _PLOT_WIDTH - _PLOT_RIGHT)
    ends = [end for point in points for end in _quartiles(point)]
    up = _Axis(ends, _PLOT_HEIGHT - _PLOT_BOTTOM, _PLOT_TOP)
    parts = [*_grid(across, up), *_factor_line(points, across, up), *_marks(points, across, up)]
    return (
        f'<svg viewBox="0 0 {_PLOT_WIDTH:g} {_PLOT_HEIGHT:g}" role="img" '
        f'aria-label="Estimated and measured step of {len(points)} plans">{"".join(parts)}</svg>'
    )


def _quartiles(point: ScatterPoint) -> tuple[float, float]:
    half = point.spread / 2
    # A logarithmic scale can't show a bar down to zero.
    return max(point.measured - half, point.measured / 4), point.measured + half


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    right, bottom = _PLOT_WIDTH - _PLOT_RIGHT, _PLOT_HEIGHT - _PLOT_BOTTOM
    for tick in up.ticks():
        y = up.at(tick)
        yield _line("grid", _PLOT_LEFT, y, right, y)
        yield _text(_PLOT_LEFT - 8, y + 4, format_milliseconds(tick), "end")
    for tick in across.ticks():
        x = across.at(tick)
        yield _line("grid", x, _PLOT_TOP, x, bottom)
        yield _text(x, bottom + 18, format_milliseconds(tick), "middle")
    yield _text((_PLOT_LEFT + right) / 2, _PLOT_HEIGHT - 10, "estimated, a step", "middle")
    yield f'<g transform="translate(14 {(_PLOT_TOP + bottom) / 2:g}) rotate(-90)">'
    yield _text(0, 0, "measured, a step", "middle") + "</g>"


def _factor_line(points: Sequence[ScatterPoint], across: _Axis, up: _Axis) -> Iterator[str]:
    """A line for the median ratio of measured to estimated time."""
    factor = median(math.log10(point.measured / point.estimated) for point in points)
    begin, end = max(across.low, up.low - factor), min(across.high, up.high - factor)
    if begin < end:
        (x1, y1), (x2, y2) = (
            (across.at(10.0**x), up.at(10.0 ** (x + factor))) for x in (begin, end)
        )
        times = f"measured = {10.0**factor:,.3g} x estimated, the median of these plans"
        yield _line("mean", x1, y1, x2, y2, title=times)


def _marks(points: Sequence[ScatterPoint], across: _Axis, up: _Axis) -> Iterator[str]:
    points = sorted(points, key=lambda point: -point.measured)
    heights = [up.at(point.measured) for point in points]
    for point, y, beside in zip(points, heights, _spread_labels(heights), strict=True):
        x = across.at(point.estimated)
        low, high = map(up.at, _quartiles(point))
        yield _line("spread", x, low, x, high)
        estimated, measured = map(format_milliseconds, (point.estimated, point.measured))
        text = f"{point.label}: est. {estimated}, meas. {measured}"
        yield (
            f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="5">'
            f"<title>{escape(escape_name(text))}</title></circle>"
        )
        left = x > (_PLOT_LEFT + _PLOT_WIDTH) / 2
        side = x - 10 if left else x + 10
        yield _text(side, beside + 4, _short(point.label), "end" if left else "")


def _spread_labels(heights: Sequence[float]) -> list[float]:
    """The heights of labels from the top: next to their points, without overlaps if possible."""
    line = min(_LABEL_HEIGHT, (_PLOT_HEIGHT - _PLOT_TOP - _PLOT_BOTTOM) / len(heights))
    lowest = _PLOT_HEIGHT - _PLOT_BOTTOM
    places: list[float] = []
    for i, height in enumerate(heights):
        above = places[-1] + line if places else _PLOT_TOP
        rest = (len(heights) - 1 - i) * line
        places.append(min(max(height, above), lowest - rest))
    return places


def _short(label: str) -> str:
    name = escape_name(label)
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}>{inside}</line>'


def _text(x: float, y: float, words: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'
