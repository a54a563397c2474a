"""What `fastplan measure` prints: plans by time, with parts and memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.measure.agreement_text import AS_FAST, about, warnings
from fastplan.measure.parts import NAMES, PARTS
from fastplan.measure.results import PlanRuns, Runs
from fastplan.report.names import escape_name
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import format_bytes, format_count, format_seconds


def runs_text(runs: Runs, style: Style | None = None) -> str:
    """All plans that were measured, the fastest first."""
    style = style or Style()
    lines = [style.paint(f"{escape_name(runs.about['model'])} on {about(runs)}", "bold")]
    if runs.plans:
        plans = sorted(runs.plans, key=lambda plan: plan.step.median)
        lines += ["", *_steps(plans, style), "", *_memory(plans, style), "", _count(runs)]
    lines += warnings(runs)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _steps(plans: list[PlanRuns], style: Style) -> Iterator[str]:
    columns = [Column("plan"), Column("step", right=True), Column("spread", right=True)]
    columns.append(Column(""))
    columns += [Column(NAMES[part], right=True) for part in PARTS]
    fastest = plans[0].step
    like_fastest = [False, *(plan.step.same_as(fastest) for plan in plans[1:])]
    rows = [
        [
            escape_name(plan.label),
            format_seconds(plan.step.median),
            format_seconds(plan.step.spread),
            "=" if same else "",
            *(format_seconds(plan.part(part).median) for part in PARTS),
        ]
        for plan, same in zip(plans, like_fastest, strict=True)
    ]
    yield from table_lines(columns, rows, style)
    if any(like_fastest):
        yield AS_FAST


def _memory(plans: list[PlanRuns], style: Style) -> Iterator[str]:
    columns = [Column("peak memory")]
    columns += [Column(title, right=True) for title in ("fullest rank", "all ranks", "est.", "")]
    rows = []
    for plan in plans:
        told = plan.estimated_memory
        rank = plan.peak_memory.index(max(plan.peak_memory))
        row = [escape_name(plan.label), f"{format_bytes(max(plan.peak_memory))} (r{rank})"]
        row += [format_bytes(sum(plan.peak_memory)), "-", ""]
        if told is not None:
            row[3:] = [
                format_bytes(sum(told)),
                f"{sum(plan.peak_memory) / max(1, sum(told)):.2f} x",
            ]
        rows.append(row)
    yield from table_lines(columns, rows, style)


def _count(runs: Runs) -> str:
    steps = runs.plans[0].step.n
    rounds = format_count(len(runs.plans[0].steps), "round")
    return (
        f"medians of {format_count(steps, 'step')} in {rounds}, spread between the quartiles;\n"
        "parts on their slowest rank, with all ranks waiting for each other before each"
    )


def runs_json(runs: Runs) -> dict[str, Any]:
    """The same for scripts: seconds and bytes.

    Keys: `about` (what run.json says), `devices`, `drift`, `failures` (in words), and `plans`, each
    with `label`, `step` and by name `parts` (`median`, `spread`, `n`), `rank_parts`,
    `peak_memory` and `estimated_memory` by rank.
    """
    return {
        "about": runs.about,
        "devices": list(runs.devices),
        "drift": runs.drift,
        "failures": list(runs.failures),
        "plans": [
            {
                "label": plan.label,
                "step": plan.step._asdict(),
                "parts": {part: plan.part(part)._asdict() for part in PARTS},
                "rank_parts": {part: list(plan.rank_parts[part]) for part in PARTS},
                "peak_memory": list(plan.peak_memory),
                "estimated_memory": None
                if plan.estimated_memory is None
                else list(plan.estimated_memory),
            }
            for plan in runs.plans
        ],
    }
