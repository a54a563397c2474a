"""A scatter plot of plans: estimated and measured time, both on logarithmic scales.

On such scales a constant ratio of the two is a line, and the distance from it is the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from statistics import median
from typing import NamedTuple

from fastplan.report.terminal import escape_name
from fastplan.report.units import format_milliseconds

_WIDTH, _HEIGHT = 760.0, 420.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 24.0, 16.0, 52.0
_LINE = 15.0  # between two labels
_LONGEST = 36  # letters of a label


class Point(NamedTuple):
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


def scatter(points: Sequence[Point]) -> str:
    """Draws a point per plan, bars for spreads, and a line for the median ratio.

    Returns:
        An SVG; empty with fewer than two points above zero.
    """
    points = [point for point in points if point.estimated > 0 and point.measured > 0]
    if len(points) < 2:
        return ""
    across = _Axis([point.estimated for point in points], _LEFT, _WIDTH - _RIGHT)
    ends = [end for point in points for end in _quartiles(point)]
    up = _Axis(ends, _HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(across, up), *_factor_line(points, across, up), *_marks(points, across, up)]
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="Estimated and measured step of {len(points)} plans">{"".join(parts)}</svg>'
    )


def _quartiles(point: Point) -> tuple[float, float]:
    half = point.spread / 2
    # A logarithmic scale can't show a bar down to zero.
    return max(point.measured - half, point.measured / 4), point.measured + half


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for tick in up.ticks():
        y = up.at(tick)
        yield _line("grid", _LEFT, y, right, y)
        yield _text(_LEFT - 8, y + 4, format_milliseconds(tick), "end")
    for tick in across.ticks():
        x = across.at(tick)
        yield _line("grid", x, _TOP, x, bottom)
        yield _text(x, bottom + 18, format_milliseconds(tick), "middle")
    yield _text((_LEFT + right) / 2, _HEIGHT - 10, "estimated, a step", "middle")
    yield f'<g transform="translate(14 {(_TOP + bottom) / 2:g}) rotate(-90)">'
    yield _text(0, 0, "measured, a step", "middle") + "</g>"


def _factor_line(points: Sequence[Point], across: _Axis, up: _Axis) -> Iterator[str]:
    """A line for the median ratio of measured to estimated time."""
    factor = median(math.log10(point.measured / point.estimated) for point in points)
    begin, end = max(across.low, up.low - factor), min(across.high, up.high - factor)
    if begin < end:
        (x1, y1), (x2, y2) = (
            (across.at(10.0**x), up.at(10.0 ** (x + factor))) for x in (begin, end)
        )
        times = f"measured = {10.0**factor:,.3g} x estimated, the median of these plans"
        yield _line("mean", x1, y1, x2, y2, title=times)


def _marks(points: Sequence[Point], across: _Axis, up: _Axis) -> Iterator[str]:
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
        left = x > (_LEFT + _WIDTH) / 2
        side = x - 10 if left else x + 10
        yield _text(side, beside + 4, _short(point.label), "end" if left else "")


def _spread_labels(heights: Sequence[float]) -> list[float]:
    """The heights of labels from the top: next to their points, without overlaps if possible."""
    line = min(_LINE, (_HEIGHT - _TOP - _BOTTOM) / len(heights))
    lowest = _HEIGHT - _BOTTOM
    places: list[float] = []
    for i, height in enumerate(heights):
        above = places[-1] + line if places else _TOP
        rest = (len(heights) - 1 - i) * line
        places.append(min(max(height, above), lowest - rest))
    return places


def _short(label: str) -> str:
    name = escape_name(label)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends}>{inside}</line>'


def _text(x: float, y: float, words: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'
