"""The chart of plan quality: the distance of the best plan from the bound, over time."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

# A plan at its bound has no place on a logarithmic axis.
SMALLEST_GAP = 1e-4


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes an SVG with one falling line per instance, from the longest run of each."""
    style = {"svg.fonttype": "none", "svg.hashsalt": "fastplan", "font.size": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(9.5, 5.4), layout="constrained")
        colours = plt.get_cmap("tab10").colors
        for row, colour in zip(rows, colours, strict=False):
            longest = max(row["fastplan"], key=lambda entry: entry["budget_seconds"])
            points = [(max(at, 1e-3), rating) for at, rating in longest["trace"]]
            if not points:
                continue
            points.append((longest["budget_seconds"], points[-1][1]))
            times = [at for at, _ in points]
            gaps = [max(rating / row["bound"] - 1, SMALLEST_GAP) for _, rating in points]
            axes.step(times, gaps, where="post", color=colour, linewidth=1.6, label=row["name"])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("seconds")
        axes.set_ylabel("best plan above the bound")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda gap, _: f"{100 * gap:g} %"))
        axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)
