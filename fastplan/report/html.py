"""The HTML report: one file that needs nothing else, to look at and to pass on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fastplan import __version__
from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.comparison import Comparison
from fastplan.report.html_compare import (
    arrivals,
    change_data,
    comparison_section,
    measured_section,
)
from fastplan.report.html_data import embedded, plan_data
from fastplan.report.inspect_text import facts, page_of
from fastplan.report.names import visible
from fastplan.report.page import html_page
from fastplan.report.terminal import Style


def html_report(
    plans: Sequence[Plan], comparison: Comparison | None = None, findings: Sequence[str] = ()
) -> str:
    """A page about one plan; or about several, and how they differ if their comparison is given.

    `findings` are sentences about how their estimates and measurements agree.
    """
    if not plans:
        raise ValueError("`plans` must have at least one")
    if comparison is None:
        analyses, labels = [analyse(plan) for plan in plans], [plan.name for plan in plans]
    else:
        analyses, labels = list(comparison.analyses), list(comparison.labels)
    if any(analysis.plan is not plan for analysis, plan in zip(analyses, plans, strict=True)):
        raise ValueError("`comparison` must be of these plans")
    style = _assets("base.css", "ranks.css", "lists.css", "scatter.css", "sizes.css")
    parts = _assets("base.js", "chart.js", "ranks.js", "lists.js", "page.js")
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    data: dict[str, Any] = {"plans": [plan_data(analysis) for analysis in analyses]}
    body = [_header(analyses[0], labels)]
    if comparison is not None:
        data["changes"] = change_data(comparison)
        for plan, step in zip(data["plans"][1:], comparison.steps, strict=True):
            plan["lanes"] += arrivals(step, labels[0], plan["ranks"])
        body += [comparison_section(comparison), measured_section(comparison, findings)]
    body += [_summary(labels), _RANKS, _TABLES, _provenance(analyses, labels), _noscript(analyses)]
    body.append(f'<script id="data" type="application/json">{embedded(data)}</script>')
    title = f"{visible(analyses[0].plan.name)}: sharding plan"
    return html_page(title, style, body, script)


_RANKS = """<section id="ranks" aria-labelledby="ranks-title">
<div class="bar">
<h2 id="ranks-title">Ranks</h2>
<button type="button" id="zoom-out" hidden>All ranks</button>
<fieldset class="choice"><legend>Order of ranks</legend>
<label><input type="radio" name="order" value="rank" checked>By rank</label>
<label><input type="radio" name="order" value="load">By load</label>
</fieldset>
</div>
<div class="panel figure">
<ul class="legend" id="legend"></ul>
<div class="chart" id="chart" tabindex="0" role="slider" aria-label="Rank" aria-valuemin="0"></div>
<div class="details" id="details"></div>
</div>
</section>"""

_TABLES = """<section id="tables" aria-labelledby="tables-title">
<div class="bar">
<h2 id="tables-title">Tables</h2>
<output id="table-count" class="quiet" aria-live="polite"></output>
<input type="search" id="filter-text" placeholder="Filter by name" aria-label="Filter by name">
<select id="filter-type" aria-label="Sharding type"></select>
<input type="number" id="filter-rank" min="0" placeholder="On rank" aria-label="On rank">
</div>
<div class="panel" id="table-list"></div>
</section>"""


def _assets(*names: str) -> str:
    home = files("fastplan.report").joinpath("assets")
    return "\n".join(home.joinpath(name).read_text("utf-8") for name in names)


def _header(first: Analysis, labels: list[str]) -> str:
    mark = "Sharding plan" if len(labels) == 1 else f"{len(labels)} sharding plans"
    return (
        f'<header><p class="mark">{mark}</p>'
        f"<h1>{escape(visible(first.plan.name))}</h1>"
        f'<p class="facts">{escape(visible(facts(first)))}</p></header>'
    )


def _summary(labels: list[str]) -> str:
    """The headline of the plan that is shown, and the choice between several."""
    choice = ""
    if len(labels) > 1:
        # What was changed to is of more interest than what was there.
        options = "".join(
            f'<label><input type="radio" name="plan" value="{i}"{" checked" if i == 1 else ""}>'
            f"{escape(visible(label))}</label>"
            for i, label in enumerate(labels)
        )
        choice = (
            '<div class="bar"><h2>Plan</h2><fieldset class="choice">'
            f"<legend>Plan</legend>{options}</fieldset></div>"
        )
    return (
        f'<section aria-label="Summary">{choice}<p class="sentence" id="sentence"></p>'
        '<div class="panel tiles" id="tiles"></div></section>'
    )


def _provenance(analyses: list[Analysis], labels: list[str]) -> str:
    lists = []
    for analysis, label in zip(analyses, labels, strict=True):
        plan = analysis.plan
        facts = {"plan": label, **plan.notes}
        if plan.layout.device:
            facts["device"] = plan.layout.device
        pairs = [(name, escape(visible(str(value)))) for name, value in facts.items()]
        if plan.fingerprint:
            pairs.append(("fingerprint", f"<code>{escape(visible(plan.fingerprint))}</code>"))
        pairs += [("assumption", escape(text)) for text in analysis.assumptions]
        rows = "".join(f"<dt>{escape(_title(name))}</dt><dd>{text}</dd>" for name, text in pairs)
        lists.append(f'<dl class="panel">{rows}</dl>')
    return (
        '<section aria-labelledby="origin-title"><div class="bar">'
        f'<h2 id="origin-title">Where this comes from</h2></div>{"".join(lists)}</section>'
        f"<footer>Made by fastplan {escape(__version__)}.</footer>"
    )


def _title(name: str) -> str:
    words = visible(name).replace("_", " ")
    return words[:1].upper() + words[1:]


def _noscript(analyses: list[Analysis]) -> str:
    texts = [page_of(it, ranks="worst", tables=True, style=Style()) for it in analyses]
    return f"<noscript><pre>{escape(chr(10).join(texts))}</pre></noscript>"
