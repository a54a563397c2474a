"""Bytes over the host link: offload plans, TorchRec's scale-up proposer, uniform load factors.

It reads only the result file: bench.offload needs TorchRec.
"""

import math
import statistics
from typing import Any

from bench.figures.markdown import table

_SIDES = ("fastplan", "scaleup", "uniform")


def cases(result: dict[str, Any]) -> str:
    """A row for each model and share of HBM."""
    header = ["stream", "tables", "ranks", "HBM", "offload plan", "scale-up proposer", "uniform"]
    header += ["scale-up / offload", "predicted step"]
    rows = []
    for row in result["rows"]:
        ratio = _ratio(row, "scaleup")
        step = f"{row['step_ms']:.3f} ms" if "step_ms" in row else "-"
        rows.append(
            [row["model"], str(row["tables"]), str(row["ranks"]), f"{row['share']:.0%}"]
            + [_megabytes(row[side]) for side in _SIDES]
            + ["-" if ratio is None else f"{ratio:.2f}", step]
        )
    return table(header, rows)


def ratios(result: dict[str, Any]) -> str:
    """Median, least and number of ratios, by the share of HBM and of all."""
    header = ["HBM", "scale-up / offload: median", "least", "most", "n"]
    header += ["uniform / offload: median", "least", "n", "scale-up without a plan"]
    groups = [(f"{share:.0%}", share) for share in sorted({r["share"] for r in result["rows"]})]
    rows = []
    for name, share in [*groups, ("all", None)]:
        own = [row for row in result["rows"] if share is None or row["share"] == share]
        cells = [name]
        for side in ("scaleup", "uniform"):
            found = [ratio for row in own if (ratio := _ratio(row, side)) is not None]
            numbers = [statistics.median(found), min(found)] if found else [math.nan] * 2
            numbers += [max(found, default=math.nan)] if side == "scaleup" else []
            cells += [*(f"{number:.2f}" for number in numbers), str(len(found))]
        rows.append([*cells, str(sum(row["scaleup"] is None for row in own))])
    return table(header, rows)


def _ratio(row: dict[str, Any], side: str) -> float | None:
    own, other = row["fastplan"], row[side]
    if own is None or other is None or own + other == 0:
        return None
    return math.inf if own == 0 else float(other / own)


def _megabytes(size: float | None) -> str:
    return "no plan" if size is None else f"{size / 1e6:.2f} MB"
