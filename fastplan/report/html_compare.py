"""The part of the HTML report that is about how plans differ."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fastplan.report.compare_text import counted, fullest_text, remarks
from fastplan.report.comparison import MARKS, Comparison, Placed, Step
from fastplan.report.names import visible
from fastplan.report.scatter import Point, scatter
from fastplan.report.units import (
    of_bytes,
    of_change,
    of_count,
    of_milliseconds,
    of_seconds,
    of_share,
)


def comparison_section(comparison: Comparison) -> str:
    """Headline, a line per plan, and the list of changes for the script to fill."""
    parts = [
        '<section aria-labelledby="compare-title">',
        '<div class="bar"><h2 id="compare-title">Comparison</h2></div>',
        f'<p class="sentence">{escape(_sentence(comparison))}</p>',
    ]
    for step in comparison.steps:
        parts.append(_remarks(step, named=len(comparison.steps) > 1))
    if len(comparison.steps) == 1:
        parts.append(_counts(comparison.steps[0]))
    parts.append(_plans(comparison))
    if any(step.changes for step in comparison.steps):
        parts.append(_CHANGES)
    return "\n".join([*parts, "</section>"])


def measured_section(comparison: Comparison, findings: Sequence[str]) -> str:
    """The picture of estimated against measured times, if there are any, and what it tells."""
    points = [
        Point(label, analysis.rating, 1000 * measured.median, 1000 * measured.spread)
        for label, analysis, measured in zip(
            comparison.labels, comparison.analyses, comparison.measured, strict=True
        )
        if analysis.rating is not None and measured is not None
    ]
    picture = scatter(points)
    if not picture:
        return ""
    told = "".join(f'<p class="remark">{escape(visible(text))}</p>' for text in findings)
    return (
        '<section aria-labelledby="measured-title"><div class="bar">'
        '<h2 id="measured-title">Estimated against measured</h2></div>'
        f'<div class="panel figure scatter">{picture}</div>{told}'
        '<p class="remark">Bars are the distance between the quartiles. On the dashed line are '
        "plans whose measured time is the usual multiple of the estimated.</p></section>"
    )


_CHANGES = """<div class="bar gap"><h2>What changes</h2>
<input type="search" id="filter-change" placeholder="Filter by name" aria-label="Filter changes">
</div>
<div class="panel" id="change-list"></div>"""


def change_data(comparison: Comparison) -> list[dict[str, Any]]:
    """The changes as the script reads them."""
    return [
        {
            "plan": visible(step.label),
            "mark": MARKS[change.kind],
            "table": visible(change.table),
            "before": _placed(change.before),
            "after": _placed(change.after),
            "bytes": change.bytes,
        }
        for step in comparison.steps
        for change in step.changes
    ]


def arrivals(step: Step, first: str, ranks: int) -> list[dict[str, Any]]:
    """The bytes that each rank receives on the way from the first plan, if any."""
    received = np.zeros(ranks, np.int64)
    known = np.asarray(step.movement.rank_received)[:ranks]
    received[: len(known)] = known
    if not received.any():
        return []
    note = f"when moving from {visible(first)}"
    return [{"name": "To receive", "note": note, "used": received.tolist(), "capacity": None}]


def _placed(side: Placed | None) -> str:
    if side is None:
        return "–"
    kind = f"{side.sharding_type} {side.kernel}".replace("_", " ")
    return f"{visible(kind)}, {side.ranks}"


def _sentence(comparison: Comparison) -> str:
    """What the best of the other plans costs, and what it takes to get there."""
    if not any(step.changes for step in comparison.steps):
        return "The plans place every table alike."
    first, *others = (analysis.rating for analysis in comparison.analyses)
    known = [(rating, i) for i, rating in enumerate(others) if rating is not None]
    if first is None or not known:
        step = max(comparison.steps, key=lambda step: len(step.changes))
        return f"{_effort(step)}."
    best, index = min(known)
    step = comparison.steps[index]
    if best == first:
        return f"{visible(step.label)} costs the same by estimate. {_effort(step)}."
    much = f"{of_share(abs(1 - best / first))} {'less' if best < first else 'more'}"
    costs = f"{of_milliseconds(best)} a step instead of {of_milliseconds(first)}"
    return f"{visible(step.label)} costs {much} by estimate: {costs}. {_effort(step)}."


def _effort(step: Step) -> str:
    moved = of_bytes(step.movement.bytes)
    text = f"Getting there changes {of_count(len(step.changes), 'table')} and moves {moved}"
    seconds = step.movement.seconds
    return text if seconds is None else f"{text} in about {of_seconds(seconds)}"


def _remarks(step: Step, *, named: bool) -> str:
    label = f"{visible(step.label)}: " if named else ""
    found = (f'<p class="remark">{escape(label + text)}</p>' for text in remarks(step, most=5))
    return "".join(found)


def _counts(step: Step) -> str:
    items = (
        f"<li><code>{escape(mark)}</code><b>{count:,}</b> {words}</li>"
        for mark, count, words in counted(step)
    )
    return f'<ul class="counts">{"".join(items)}</ul>'


def _plans(comparison: Comparison) -> str:
    titles = ["Plan", "Load by rank", "Rating, est.", "Change", "Step, meas.", "Imbalance"]
    titles += ["Fullest rank", "To move, est."]
    rows = [_row(comparison, index) for index in range(len(comparison.labels))]
    kept = [i for i in range(len(titles)) if i == 1 or any(row[i] for row in rows)]
    kinds = ["", "load", "num", "num", "num", "num less", "num", "num"]
    head = "".join(f'<th scope="col" class="{kinds[i]}">{titles[i]}</th>' for i in kept)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kinds[i]}">{row[i]}</td>' for i in kept) + "</tr>"
        for row in rows
    )
    return (
        '<div class="panel list"><table class="plans">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(comparison: Comparison, index: int) -> list[str]:
    analysis, measured = comparison.analyses[index], comparison.measured[index]
    first, own, costs = comparison.analyses[0].rating, analysis.rating, analysis.costs
    change = step_time = to_move = ""
    if index and first is not None and own is not None:
        tone = "good" if own < first else "bad" if own > first else ""
        change = f'<span class="{tone}">{escape(of_change(first, own))}</span>'
    if measured is not None:
        step_time = _pair(of_seconds(measured.median), f"± {of_seconds(measured.spread / 2)}")
    if index:
        step = comparison.steps[index - 1]
        seconds = step.movement.seconds
        duration = "" if seconds is None else of_seconds(seconds)
        to_move = _pair(of_bytes(step.movement.bytes), duration)
    return [
        escape(visible(comparison.labels[index])),
        f'<svg class="strip" data-plan="{index}" aria-hidden="true"></svg>',
        _pair(of_milliseconds(own)) if own is not None else "",
        change,
        step_time,
        _pair(f"+{of_share(costs.imbalance)}") if costs is not None else "",
        _pair(fullest_text(analysis.memory[0])) if analysis.memory else "",
        to_move,
    ]


def _pair(*parts: str) -> str:
    """Parts that stay whole where the line between them breaks."""
    return " ".join(f"<span>{escape(part)}</span>" for part in parts if part)
