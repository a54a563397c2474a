"""Calibrations as text for people and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.measure.calibrate import CalibratedSku, figure_text, range_text
from fastplan.measure.cost_constants import Ratio
from fastplan.measure.statistics import Fit
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import format_percent, format_seconds


def calibration_text(sku: CalibratedSku, style: Style | None = None) -> str:
    """Returns a calibration as text."""
    style = style or Style()
    found = sku.calibrated.found
    lines = [style.paint("time = bytes / bandwidth, and latency + bytes / bandwidth", "bold")]
    lines += [*_fits(sku, style), "", style.paint("constants", "bold"), *_constants(sku, style)]
    if found.left_out:
        lines += ["", f"not determined, values of {escape_name(sku.like)} are used:"]
        lines += [f"  {name}: {reason}" for name, reason in found.left_out.items()]
    if found.remarks:
        lines += ["", *found.remarks]
    lines += ["", style.paint("constants of the hardware costs", "bold"), *_costs(sku, style)]
    lines += ["", *_cost_reasons(sku)]
    title = "estimate / measurement or its inverse, median and 90th percentile"
    lines += ["", style.paint(title, "bold"), *_form_errors(sku, style)]
    if sku.costs.remarks:
        lines += ["", *sku.costs.remarks]
    arguments = ", ".join(f"{name}={value!r}" for name, value in sku.topology.items())
    lines += ["", f"Topology({arguments})"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fits(sku: CalibratedSku, style: Style) -> Iterator[str]:
    titles = ("n", "GB/s", "held-out error", "latency", "GB/s", "held-out error")
    columns = [Column("what"), *(Column(title, right=True) for title in titles)]
    rows = [
        [f"{what}: {fit}", *("-" * len(titles))] if isinstance(fit, str) else [what, *_cells(fit)]
        for what, fit in sku.calibrated.found.fits.items()
    ]
    yield from table_lines(columns, rows, style)


def _cells(fit: Fit) -> list[str]:
    return [
        str(fit.points),
        f"{fit.bandwidth / 1e9:.3g}",
        format_percent(fit.error),
        format_seconds(fit.latency),
        f"{1e-9 / fit.slope:.3g}" if fit.slope > 0 else "-",
        format_percent(fit.error_with_latency),
    ]


def _constants(sku: CalibratedSku, style: Style) -> Iterator[str]:
    columns = [Column("figure")]
    titles = ("measured", "95 % interval", f"{sku.like} has")
    columns += [Column(title, right=True) for title in titles]
    constants, base = sku.calibrated.found.constants, sku.base
    rows = [
        [
            name,
            figure_text(name, figure),
            range_text(constants[name]),
            figure_text(name, getattr(base, name)),
        ]
        for name, figure in sku.figures.items()
    ]
    yield from table_lines(columns, rows, style)


def _costs(sku: CalibratedSku, style: Style) -> Iterator[str]:
    columns = [Column("constant"), Column("measured", right=True), Column("unit")]
    columns += [Column(title, right=True) for title in ("95 % interval", "n")]
    rows = [
        [
            name,
            f"{figure.value:.4g}",
            CONSTANTS_BY_NAME[name].unit,
            f"{figure.low:.3g} to {figure.high:.3g}",
            str(figure.n),
        ]
        for name, figure in sku.costs.figures.items()
        if name in sku.costs.measured
    ]
    yield from table_lines(columns, rows, style)


def _cost_reasons(sku: CalibratedSku) -> Iterator[str]:
    reasons = sku.costs.not_measured()
    if reasons:
        yield "not identified:"
    for reason, names in reasons.items():
        yield f"  {names}: {escape_name(reason)}"


def _form_errors(sku: CalibratedSku, style: Style) -> Iterator[str]:
    titles = ("n", "TorchRec's form", "hardware costs")
    columns = [Column("what"), *(Column(title, right=True) for title in titles)]
    rows = [
        [group, str(found.n), _ratio(found.torchrec), _ratio(found.hardware)]
        for group, found in sku.costs.errors.items()
    ]
    yield from table_lines(columns, rows, style)


def _ratio(found: Ratio) -> str:
    return f"{found.median:.3g} / {found.p90:.3g}"


def calibration_json(sku: CalibratedSku) -> dict[str, Any]:
    """Returns a calibration as JSON: `fits` in bytes per second, `constants` in a SKU's units.

    More keys: `name`, `devices`, `left_out` (reasons by figure), `remarks`, `topology` (keyword
    arguments of TorchRec's Topology), `costs` (constants of the hardware costs, by full name),
    `errors` (by group of constants, how well both forms estimate: `n`, and `median` and `p90` of
    the ratios of `torchrec` and `hardware`).
    """
    found, costs = sku.calibrated.found, sku.costs
    return {
        "name": sku.name,
        "devices": list(sku.calibrated.devices),
        "constants": {
            name: {
                "value": figure,
                "low": found.constants[name].low,
                "high": found.constants[name].high,
                "source": found.constants[name].source,
            }
            for name, figure in sku.figures.items()
        },
        "left_out": dict(found.left_out),
        "fits": {
            what: {"problem": fit}
            if isinstance(fit, str)
            else {**fit._asdict(), "problem": fit.problem}
            for what, fit in found.fits.items()
        },
        "remarks": [*found.remarks, *costs.remarks],
        "topology": sku.topology,
        "costs": {
            name: {
                "value": figure.value,
                "unit": CONSTANTS_BY_NAME[name].unit,
                "low": figure.low,
                "high": figure.high,
                "n": figure.n,
                "source": figure.source,
                "note": figure.note,
                "measured": name in costs.measured,
            }
            for name, figure in costs.figures.items()
        },
        "errors": {
            group: {
                "n": errors.n,
                "torchrec": errors.torchrec._asdict(),
                "hardware": errors.hardware._asdict(),
            }
            for group, errors in costs.errors.items()
        },
    }
