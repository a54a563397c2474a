"""What `fastplan ett project` prints: what a job would gain, and what that takes for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fastplan.ett.formula import Case, Costs, Plans, assumptions, project
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import of_seconds


def project_text(costs: Costs, plans: Plans, style: Style | None = None) -> str:
    """The job with each way of planning; `style` is that of the stream it is for."""
    style = style or Style()
    lines = [
        "ETT = W / (W + (1 + F)(B + P) + F L)",
        f"W {of_seconds(costs.work)} of training, F {costs.failures:g} failures, "
        f"B {of_seconds(costs.start)} per start without planning, "
        f"L {of_seconds(costs.lost)} lost per failure",
    ]
    if costs.other:
        lines.append(f"and {of_seconds(costs.other)} of other things, added to the denominator")
    lines += [
        "",
        *_cases(project(costs, plans), style),
        "points of ETT over full planning and over a PlanLoader hit; time saved over full planning",
        "",
        "assuming that",
    ]
    lines += [f"- {text}" for text in assumptions(costs, plans)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def project_json(costs: Costs, plans: Plans) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "costs": asdict(costs),
        "plans": asdict(plans),
        "cases": [asdict(case) for case in project(costs, plans)],
        "assumptions": assumptions(costs, plans),
    }


def _cases(cases: list[Case], style: Style) -> Iterator[str]:
    baselines = [case for case in cases if case.is_baseline]
    columns = [
        Column(""),
        Column("P first", right=True),
        Column("P later", right=True),
        Column("ETT", right=True),
        *(Column(f"over {title}", right=True) for title in ("full", "hit")[: len(baselines)]),
        Column("saved", right=True),
    ]
    rows = []
    for case in cases:
        gains = [f"{100 * (case.ett - base.ett):+.3f}" for base in baselines]
        rows.append(
            [
                case.name,
                of_seconds(case.first_plan),
                of_seconds(case.later_plan),
                f"{100 * case.ett:.3f} %",
                *(gains if not case.is_baseline else ["-"] * len(gains)),
                "-" if case.is_baseline else of_seconds(cases[0].seconds - case.seconds),
            ]
        )
    yield from table_lines(columns, rows, style)
