"""Bytes over the host link: offload plans, TorchRec's scale-up proposer, uniform load factors.

It reads only the result file: bench.offload needs TorchRec.
"""

import math
import statistics
from typing import Any

from bench.figures.markdown import table

_SIDES = ("bytes", "step", "scaleup", "uniform", "least")


def cases(result: dict[str, Any]) -> str:
    header = ["stream", "tables", "ranks", "HBM", "fewest bytes", "shortest step", "scale-up"]
    header += ["uniform", "least", "scale-up / fewest bytes", "steps of the first two"]
    rows = []
    for row in result["rows"]:
        ratio = _ratio(row, "scaleup", "bytes")
        facts = [row.get(f"{side}_facts") for side in _SIDES[:2]]
        steps = ["-" if own is None else f"{own['step_ms']:.1f} ms" for own in facts]
        rows.append(
            [row["model"], str(row["tables"]), str(row["ranks"]), f"{row['share']:.0%}"]
            + [_gigabytes(row[side]) for side in _SIDES]
            + ["-" if ratio is None else f"{ratio:.2f}", " / ".join(steps)]
        )
    return table(header, rows)


def ratios(result: dict[str, Any]) -> str:
    header = ["HBM", "scale-up / fewest bytes: median", "least", "most", "n"]
    header += ["scale-up / shortest step: median", "least", "scale-up / least: median"]
    header += ["uniform / fewest bytes: median", "least", "scale-up without a plan"]
    groups = [(f"{share:.0%}", share) for share in sorted({r["share"] for r in result["rows"]})]
    rows = []
    for name, share in [*groups, ("all", None)]:
        own = [row for row in result["rows"] if share is None or row["share"] == share]
        few, step, least = (_ratios(own, "scaleup", side) for side in ("bytes", "step", "least"))
        uniform = _ratios(own, "uniform", "bytes")
        numbers = [statistics.median(few), min(few), max(few)]
        more = [
            statistics.median(step),
            min(step),
            statistics.median(least),
            statistics.median(uniform),
            min(uniform),
        ]
        cells = [*map(_number, numbers), str(len(few)), *map(_number, more)]
        rows.append([name, *cells, str(sum(row["scaleup"] is None for row in own))])
    return table(header, rows)


def _ratios(rows: list[dict[str, Any]], side: str, own: str) -> list[float]:
    return [ratio for row in rows if (ratio := _ratio(row, side, own)) is not None] or [math.nan]


def _ratio(row: dict[str, Any], side: str, own: str) -> float | None:
    a, b = row[side], row[own]
    if a is None or b is None or a + b == 0:
        return None
    return math.inf if b == 0 else float(a / b)


def _number(value: float) -> str:
    return f"{value:.2f}"


def _gigabytes(size: float | None) -> str:
    return "no plan" if size is None else f"{size / 1e9:.3f} GB"
