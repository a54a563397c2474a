"""Measurements and agreements as text for people and as JSON for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fastplan.measure.agreement import Agreement, PartAgreement
from fastplan.measure.paired import ALPHA, Paired, compare_rounds
from fastplan.measure.results import PlanRuns, Runs
from fastplan.measure.settings import NAMES, PARTS
from fastplan.measure.statistics import Interval
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import (
    format_bytes,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)

_LARGE_DRIFT = 0.1


def agreement_text(found: Agreement, runs: Runs, style: Style | None = None) -> str:
    """Returns estimates and measurements, how far their orders agree, and the parts."""
    style = style or Style()
    if not found.plans:
        return "none of these plans was measured\n"
    lines = [style.paint(f"estimated and measured on {about(runs)}", "bold"), ""]
    lines += [*_plans(found, style), "", *order(found), "", *_parts(found, style)]
    remarks = list(warnings(runs))
    lines += ["", *remarks] if remarks else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def about(runs: Runs) -> str:
    """Returns where and what was measured, such as `4 cpu ranks (Xeon), batch 512`."""
    devices = ", ".join(map(escape_name, runs.devices))
    ranks = f"{runs.about['ranks']} {escape_name(runs.about['device'])} ranks ({devices})"
    return f"{ranks}, batch {runs.about['batch_size']}"


def warnings(runs: Runs) -> Iterator[str]:
    """Yields warnings about the figures."""
    if runs.scale_rows > 1:
        yield (
            f"rows of tables were divided by {runs.scale_rows} to fit: caches hit more often than "
            "with full tables, and memory is for the smaller tables"
        )
    if runs.drift > _LARGE_DRIFT:
        yield (
            f"the machine changed by {format_percent(runs.drift)} between rounds; plans "
            "alternated, so this affected all of them"
        )
    for failure in runs.failures:
        yield f"not measured: {escape_name(failure)}"


def _plans(found: Agreement, style: Style) -> Iterator[str]:
    columns = [
        Column("plan"),
        *(Column(title, right=True) for title in ("est.", "meas.", "spread")),
        Column(""),
        *(Column(title, right=True) for title in ("memory est.", "meas.")),
    ]
    rows = [
        [
            escape_name(plan.label),
            "-" if plan.estimated is None else format_milliseconds(plan.estimated),
            format_seconds(plan.measured.median),
            format_seconds(plan.measured.spread),
            mark(plan.versus_fastest),
            "-" if plan.estimated_memory is None else format_bytes(plan.estimated_memory),
            format_bytes(plan.peak_memory),
        ]
        for plan in found.plans
    ]
    yield from table_lines(columns, rows, style)
    yield from mark_lines([plan.versus_fastest for plan in found.plans])


def mark(versus: Paired | None) -> str:
    """Returns the mark of a plan that is not clearly slower than the fastest one."""
    if versus is None or versus.different:
        return ""
    return "=" if versus.outcome == "same" else "?"


def mark_lines(plans: Sequence[Paired | None]) -> Iterator[str]:
    """Yields what the marks of plans mean, how it was tested, and how noisy the machine is."""
    known = [versus for versus in plans if versus is not None]
    same = [versus for versus in known if versus.outcome == "same"]
    if same:
        test = f"paired test of {min(v.rounds for v in same)} rounds, Wilcoxon, alpha {ALPHA:g}"
        yield f"  = as fast as the fastest, within noise ({test})"
    unclear = [versus for versus in known if versus.outcome == "unclear"]
    if unclear:
        worst = max(unclear, key=lambda versus: versus.resolution)
        yield f"  ? may be as fast as the fastest: {worst.why_unclear}"


def order(found: Agreement) -> Iterator[str]:
    """Yields lines that say whether the estimates have the order of the measurements."""
    if found.tau is None or found.pairs is None:
        yield "order: too few plans have an estimate"
        return
    if math.isnan(found.tau.value):
        yield "order: the estimates of all plans are equal"
    else:
        assert found.tau_rated is not None
        yield (
            f"order: Kendall's tau {format_interval(found.tau)}; without the distribution of "
            f"inputs, which ratings don't include, {format_interval(found.tau_rated)}"
        )
        yield "       1 is the device's order, 0 is chance, -1 is the reverse"
    pairs = found.pairs
    within = format_count(pairs.noise, "pair is", "pairs are")
    unclear = f"; the machine is too noisy to tell for {pairs.unclear}" if pairs.unclear else ""
    yield (
        f"pairs: {pairs.agreeing} of {pairs.clear} that differ by more than noise have the right "
        f"estimated order; {within} within noise{unclear}"
    )


def _parts(found: Agreement, style: Style) -> Iterator[str]:
    columns = [Column("part, slowest rank")]
    columns += [Column(title, right=True) for title in ("meas. / est.", "further error")]
    rows = [
        [
            NAMES[part.part],
            "-" if part.factor is None else format_factor(part.factor),
            "-" if part.error is None else format_percent(part.error),
        ]
        for part in found.parts
    ]
    yield from table_lines(columns, rows, style)


def format_interval(found: Interval) -> str:
    """Returns a value and its 95 % interval as text."""
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def format_factor(factor: float) -> str:
    """Returns a factor as text."""
    return f"{factor:,.0f} x" if factor >= 100 else f"{factor:.3g} x"


def agreement_json(found: Agreement, runs: Runs) -> dict[str, Any]:
    """Returns an agreement as JSON: estimates in milliseconds, measurements in seconds, bytes.

    Keys: `plans`, the fastest first; `tau` and `tau_rated`, without the distribution of inputs
    (null, or `value`, `low`, `high`); `pairs` (null, or `clear`, `agreeing`, `noise`, `unclear`);
    `parts`; `drift`, `scale_rows`, `failures`. A plan's `versus_fastest` is null for the fastest
    one, or `outcome`, `difference`, `p`, `noise`, `resolution`, `rounds`.
    """
    return {
        "plans": [
            {
                "label": plan.label,
                "estimated": plan.estimated,
                "measured": plan.measured.median,
                "spread": plan.measured.spread,
                "steps": plan.measured.n,
                "like_fastest": plan.like_fastest,
                "versus_fastest": _paired_json(plan.versus_fastest),
                "peak_memory": plan.peak_memory,
                "estimated_memory": plan.estimated_memory,
            }
            for plan in found.plans
        ],
        "tau": _interval_json(found.tau),
        "tau_rated": _interval_json(found.tau_rated),
        "pairs": None if found.pairs is None else found.pairs._asdict(),
        "parts": [_part_json(part) for part in found.parts],
        "drift": runs.drift,
        "scale_rows": runs.scale_rows,
        "failures": list(runs.failures),
    }


def _interval_json(found: Interval | None) -> dict[str, float] | None:
    return None if found is None or math.isnan(found.value) else found._asdict()


def _paired_json(found: Paired | None) -> dict[str, Any] | None:
    if found is None:
        return None
    values = found._asdict()
    return {k: None if v == math.inf else v for k, v in values.items()}


def _part_json(part: PartAgreement) -> dict[str, Any]:
    return {**part._asdict(), "estimated": list(part.estimated), "measured": list(part.measured)}


def runs_text(runs: Runs, style: Style | None = None) -> str:
    """Returns all measured plans as text, the fastest first."""
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
    versus = [None, *(compare_rounds(plans[0].steps, plan.steps) for plan in plans[1:])]
    rows = [
        [
            escape_name(plan.label),
            format_seconds(plan.step.median),
            format_seconds(plan.step.spread),
            mark(own),
            *(format_seconds(plan.part(part).median) for part in PARTS),
        ]
        for plan, own in zip(plans, versus, strict=True)
    ]
    yield from table_lines(columns, rows, style)
    yield from mark_lines(versus)


def _memory(plans: list[PlanRuns], style: Style) -> Iterator[str]:
    columns = [Column("peak memory")]
    columns += [Column(title, right=True) for title in ("fullest rank", "all ranks", "est.", "")]
    rows = []
    for plan in plans:
        estimated = plan.estimated_memory
        rank = plan.peak_memory.index(max(plan.peak_memory))
        row = [escape_name(plan.label), f"{format_bytes(max(plan.peak_memory))} (r{rank})"]
        row += [format_bytes(sum(plan.peak_memory)), "-", ""]
        if estimated is not None:
            row[3:] = [
                format_bytes(sum(estimated)),
                f"{sum(plan.peak_memory) / max(1, sum(estimated)):.2f} x",
            ]
        rows.append(row)
    yield from table_lines(columns, rows, style)


def _count(runs: Runs) -> str:
    steps = runs.plans[0].step.n
    rounds = format_count(len(runs.plans[0].steps), "round")
    return (
        f"medians of {format_count(steps, 'step')} in {rounds}, spread between the quartiles;\n"
        "parts are for their slowest rank; all ranks wait for each other before each part"
    )


def runs_json(runs: Runs) -> dict[str, Any]:
    """Returns a measurement as JSON: seconds and bytes.

    Keys: `about` (the content of run.json), `devices`, `drift`, `failures` (as text), and `plans`,
    each with `label`, `step` and by name `parts` (`median`, `spread`, `n`), `rank_parts`,
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
