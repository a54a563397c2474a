"""What `fastplan calibrate` prints: fits, constants, and what they can't express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.measure.fit import Fit
from fastplan.measure.sku_file import CalibratedSku, figure_text, range_text
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import format_percent, format_seconds


def calibration_text(sku: CalibratedSku, style: Style | None = None) -> str:
    """The calibration on a page."""
    style = style or Style()
    found = sku.calibrated.found
    lines = [style.paint("time = bytes / bandwidth, and latency + bytes / bandwidth", "bold")]
    lines += [*_fits(sku, style), "", style.paint("constants", "bold"), *_constants(sku, style)]
    if found.left_out:
        lines += ["", f"not determined, so taken from {sku.like}:"]
        lines += [f"  {name}: {reason}" for name, reason in found.left_out.items()]
    if found.remarks:
        lines += ["", *found.remarks]
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


def calibration_json(sku: CalibratedSku) -> dict[str, Any]:
    """The same for scripts: bytes per second and seconds in `fits`, a SKU's units in `constants`.

    Further keys: `name`, `devices`, `left_out` (reasons by figure), `remarks`, `topology` (keyword
    arguments of TorchRec's Topology).
    """
    found = sku.calibrated.found
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
        "remarks": list(found.remarks),
        "topology": sku.topology,
    }
