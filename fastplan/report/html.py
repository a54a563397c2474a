"""The HTML report on plans: one file without dependencies, to open in a browser and to pass on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from fastplan import __version__
from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.compare_text import counted, fullest_text, remarks
from fastplan.report.comparison import Comparison, PlanStep
from fastplan.report.html_data import change_data, embedded, plan_data, received_bytes
from fastplan.report.page import render_page
from fastplan.report.plan_text import analysis_text, facts
from fastplan.report.scatter import Point, scatter
from fastplan.report.terminal import Style, escape_name
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)

_STYLES = ("base.css", "ranks.css", "lists.css", "scatter.css", "sizes.css")
_SCRIPTS = ("base.js", "chart.js", "ranks.js", "lists.js", "page.js")
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
    if any(analysis.plan is not plan for analysis, plan in zip(analyses, plans, strict=True)):
        raise ValueError("`comparison` must be of these plans")
    data: dict[str, Any] = {"plans": [plan_data(analysis) for analysis in analyses]}
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
        text=Markup(escape("\n".join(texts))),
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
            f"{step.label}: {text}" if len(steps) > 1 else text
            for step in steps
            for text in remarks(step, most=5)
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


def _points(comparison: Comparison) -> list[Point]:
    return [
        Point(label, analysis.rating, 1000 * measured.median, 1000 * measured.spread)
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
