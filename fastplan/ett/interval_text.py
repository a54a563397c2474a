"""What `fastplan ett interval` prints and draws."""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup

from fastplan import __version__
from fastplan.ett.interval import FailureModel
from fastplan.report.terminal import Column, Style, table_lines
from fastplan.report.units import format_count, format_percent, format_seconds

_BAR = 24
_PARTS = ("saving", "recovering", "repeating")
_POINTS = 120  # of the drawn curve
_WIDTH, _HEIGHT = 1000.0, 300.0
ASSUMPTIONS = (
    "failures are independent of each other and equally likely at any time, also while a job saves "
    "or recovers",
    "every checkpoint blocks training for the same time, and every recovery takes the same time",
    "a failure loses everything since the last checkpoint that can be restored",
)


def interval_text(model: FailureModel, style: Style) -> str:
    """Returns the intervals and the curve as text.

    Args:
        model: The costs of checkpoints and failures.
        style: `Style.of(stream)` of the stream to print to.
    """
    lines = [
        style.paint(_headline(model), "bold"),
        f"Young {format_seconds(model.young)}, Daly {format_seconds(model.daly)}, exact "
        f"{format_seconds(model.best)}",
        _given(model),
        "",
        *_table(model, style),
    ]
    if model.interval is not None:
        lines += ["", _now(model)]
    lines += ["", "assuming that", *(f"- {text}" for text in ASSUMPTIONS)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(model: FailureModel) -> str:
    steps = "" if model.step is None else f" ({_steps(model, model.best)})"
    wasted = format_percent(model.waste(model.best))
    return f"save a checkpoint every {format_seconds(model.best)}{steps}: {wasted} wasted"


def _given(model: FailureModel) -> str:
    parts = [
        f"C {format_seconds(model.save)} blocked per checkpoint",
        f"M {format_seconds(model.between_failures)} between failures",
        f"R {format_seconds(model.recover)} per recovery",
    ]
    if model.upload:
        parts.append(f"U {format_seconds(model.upload)} per upload")
    return ", ".join(parts)


def _now(model: FailureModel) -> str:
    assert model.interval is not None
    points = 100 * (model.waste(model.interval) - model.waste(model.best))
    return (
        f"now every {format_seconds(model.interval)}: {format_percent(model.waste(model.interval))}"
        f" wasted, {points:.2f} points more than necessary"
    )


def _steps(model: FailureModel, interval: float) -> str:
    assert model.step is not None
    return format_count(max(1, round(interval / model.step)), "step")


def _table(model: FailureModel, style: Style) -> Iterator[str]:
    columns = [
        Column("every", right=True),
        *([Column("", right=True)] if model.step else []),
        Column("wasted", right=True),
        Column(""),
        *(Column(name, right=True) for name in _PARTS),
        Column(""),
    ]
    rows = []
    for interval in model.curve():
        parts = model.parts(interval)
        rows.append(
            [
                format_seconds(interval),
                *([_steps(model, interval)] if model.step else []),
                format_percent(model.waste(interval)),
                _bar(model.waste(interval), style),
                *(format_percent(parts[name]) for name in _PARTS),
                _mark(model, interval),
            ]
        )
    yield from table_lines(columns, rows, style)


def _bar(share: float, style: Style) -> str:
    full, empty = ("█", "·") if style.unicode else ("#", ".")
    length = min(_BAR, max(1, round(_BAR * share)))
    return full * length + empty * (_BAR - length)


def _mark(model: FailureModel, interval: float) -> str:
    words = ["best"] * (interval == model.best) + ["now"] * (interval == model.interval)
    return ", ".join(words)


def interval_html(model: FailureModel, source: str = "") -> str:
    """Renders a page with the curve: the wasted share by interval, and its parts.

    Args:
        model: The costs of checkpoints and failures.
        source: Where the figures come from, such as a recorded job.

    Returns:
        The page as HTML.
    """
    from fastplan.report.page import render_page

    tiles = [
        ("Save every", format_seconds(model.best), "the exact optimum"),
        ("Wasted", format_percent(model.waste(model.best)), "of the job's time"),
        ("Young", format_seconds(model.young), "the square root of 2 C M"),
        ("Daly", format_seconds(model.daly), "with two more terms"),
    ]
    if model.interval is not None:
        wasted = format_percent(model.waste(model.interval))
        tiles.append(("Now every", format_seconds(model.interval), f"{wasted} wasted"))
    return render_page(
        "ett_interval.html",
        styles=("base.css", "ett.css", "ett_interval.css"),
        title="Checkpoint interval",
        name=source or "Checkpoint interval",
        facts=_given(model),
        tiles=tiles,
        chart=Markup(curve_svg(model)),
        ticks=_ticks(model),
        parts=_PARTS,
        rows=[
            [
                format_seconds(each),
                format_percent(model.waste(each)),
                *(format_percent(part) for part in model.parts(each).values()),
                _mark(model, each),
            ]
            for each in model.curve()
        ],
        assumptions=ASSUMPTIONS,
        version=__version__,
    )


def curve_svg(model: FailureModel) -> str:
    """Returns the curve as SVG: areas of the parts over the interval, which is logarithmic."""
    edges = model.curve()
    low, high = math.log(edges[0]), math.log(edges[-1])
    xs = [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]
    parts = [model.parts(math.exp(x)) for x in xs]
    top = max(sum(each.values()) for each in parts)

    def place(x: float, share: float) -> str:
        return f"{_WIDTH * (x - low) / (high - low):.1f},{_HEIGHT * (1 - share / top):.1f}"

    shapes = []
    below = [0.0] * _POINTS
    for name in _PARTS:
        above = [under + each[name] for under, each in zip(below, parts, strict=True)]
        border = [place(x, y) for x, y in zip(xs, above, strict=True)]
        back = [place(x, y) for x, y in zip(xs[::-1], below[::-1], strict=True)]
        shapes.append(f'<polygon class="c-{name}" points="{" ".join([*border, *back])}"/>')
        below = above
    for name, interval in (("best", model.best), ("now", model.interval)):
        if interval is not None:
            x = f"{_WIDTH * (math.log(interval) - low) / (high - low):.1f}"
            title = f"{name}: {format_seconds(interval)}, {format_percent(model.waste(interval))}"
            shapes.append(
                f'<line class="edge" x1="{x}" x2="{x}" y1="0" y2="{_HEIGHT:.0f}">'
                f"<title>{title}</title></line>"
            )
    return (
        f'<svg class="curve" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" '
        f'role="img" aria-label="wasted share by interval">{"".join(shapes)}</svg>'
    )


def _ticks(model: FailureModel) -> list[str]:
    """The interval at the left, in the middle and at the right of the curve."""
    edges = model.curve()
    return [format_seconds(t) for t in (edges[0], math.sqrt(edges[0] * edges[-1]), edges[-1])]
