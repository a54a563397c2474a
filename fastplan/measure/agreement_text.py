"""Agreements as lines for people, and as JSON for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fastplan.measure.agreement import Agreement, PartAgreement
from fastplan.measure.parts import NAMES
from fastplan.measure.results import Runs
from fastplan.measure.statistics import Interval
from fastplan.report.names import escape_name
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import (
    format_bytes,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)

AS_FAST = "  = as fast as the fastest, within noise"

_LARGE_DRIFT = 0.1


def agreement_text(found: Agreement, runs: Runs, style: Style | None = None) -> str:
    """Estimated and measured side by side, how far their orders agree, and the parts."""
    style = style or Style()
    if not found.plans:
        return "none of these plans was measured\n"
    lines = [style.paint(f"estimated and measured on {about(runs)}", "bold"), ""]
    lines += [*_plans(found, style), "", *order(found), "", *_parts(found, style)]
    remarks = list(warnings(runs))
    lines += ["", *remarks] if remarks else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def about(runs: Runs) -> str:
    """Where and what, such as `4 cpu ranks (Xeon), batch 512`."""
    devices = ", ".join(map(escape_name, runs.devices))
    ranks = f"{runs.about['ranks']} {runs.about['device']} ranks ({devices})"
    return f"{ranks}, batch {runs.about['batch_size']}"


def warnings(runs: Runs) -> Iterator[str]:
    """What to know before trusting the figures."""
    if runs.scale_rows > 1:
        yield (
            f"rows of tables were divided by {runs.scale_rows} to fit: caches hit more often than "
            "they will, and memory is that of the smaller tables"
        )
    if runs.drift > _LARGE_DRIFT:
        yield (
            f"the machine changed by {format_percent(runs.drift)} between rounds; plans took "
            "turns, so that it hit all of them"
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
            "=" if number and plan.like_fastest else "",
            "-" if plan.estimated_memory is None else format_bytes(plan.estimated_memory),
            format_bytes(plan.peak_memory),
        ]
        for number, plan in enumerate(found.plans)
    ]
    yield from table_lines(columns, rows, style)
    if any(plan.like_fastest for plan in found.plans[1:]):
        yield AS_FAST


def order(found: Agreement) -> Iterator[str]:
    """Whether the estimates order plans as the device does."""
    if found.tau is None or found.pairs is None:
        yield "order: too few plans have an estimate"
        return
    if math.isnan(found.tau.value):
        yield "order: the estimates don't tell the plans apart"
    else:
        assert found.tau_rated is not None
        yield (
            f"order: Kendall's tau {of_interval(found.tau)}; without the distribution of inputs, "
            f"which ratings leave out, {of_interval(found.tau_rated)}"
        )
        yield "       1 is the device's order, 0 is chance, -1 is the reverse"
    pairs = found.pairs
    yield (
        f"pairs: {pairs.agreeing} of {pairs.clear} that differ beyond noise are estimated in the "
        f"right order; {format_count(pairs.noise, 'pair is', 'pairs are')} within noise"
    )


def _parts(found: Agreement, style: Style) -> Iterator[str]:
    columns = [Column("part, slowest rank")]
    columns += [Column(title, right=True) for title in ("meas. / est.", "further error")]
    rows = [
        [
            NAMES[part.part],
            "-" if part.factor is None else of_factor(part.factor),
            "-" if part.error is None else format_percent(part.error),
        ]
        for part in found.parts
    ]
    yield from table_lines(columns, rows, style)


def of_interval(found: Interval) -> str:
    """A value and where it lies 19 times out of 20."""
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def of_factor(factor: float) -> str:
    return f"{factor:,.0f} x" if factor >= 100 else f"{factor:.3g} x"


def agreement_json(found: Agreement, runs: Runs) -> dict[str, Any]:
    """The same for scripts. Estimates in milliseconds, measurements in seconds, sizes in bytes.

    Keys: `plans`, the fastest first; `tau` and `tau_rated`, which leaves the distribution of inputs
    out (null, or `value`, `low`, `high`); `pairs` (null, or `clear`, `agreeing`, `noise`); `parts`;
    `drift`, `scale_rows`, `failures`.
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


def _part_json(part: PartAgreement) -> dict[str, Any]:
    return {**part._asdict(), "estimated": list(part.estimated), "measured": list(part.measured)}
