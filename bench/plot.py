"""The scaling plot: planning time over the size of the problem, both axes logarithmic."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

SERIES = (
    # label, colour, marker, how a cell yields its seconds
    ("TorchRec, whole plan", "#b5473c", "o", lambda cell: cell["torchrec"]["seconds"]),
    (
        "TorchRec, enumerate() alone",
        "#d9a05b",
        "s",
        lambda cell: cell["torchrec"]["enumerate_seconds"],
    ),
    ("fastplan, whole plan", "#2b6cb0", "D", lambda cell: cell["fastplan"]["median_seconds"]),
)


def draw(cells: list[dict[str, Any]], path: Path) -> None:
    """Writes an SVG. Cells that were not run leave a gap; estimates are never drawn."""
    ordered = sorted(cells, key=_size)
    # Text stays text and ids stay the same from run to run, so the file can be compared.
    style = {"svg.fonttype": "none", "svg.hashsalt": "fastplan", "font.size": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
        for label, colour, marker, seconds in SERIES:
            points = [(_size(cell), seconds(cell)) for cell in ordered]
            known = [(size, value) for size, value in points if value is not None]
            if known:
                axes.plot(
                    *zip(*known, strict=True),
                    color=colour,
                    marker=marker,
                    markersize=5,
                    linewidth=1.6,
                    label=label,
                )
        _decorate(axes, ordered)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _size(cell: dict[str, Any]) -> int:
    return cell["tables"] * cell["ranks"]


def _decorate(axes: Any, ordered: list[dict[str, Any]]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("tables x ranks")
    axes.set_ylabel("planning time")
    axes.yaxis.set_major_formatter(FuncFormatter(_seconds_label))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # One tick per cell says more than powers of ten.
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(
        [_size(cell) for cell in ordered],
        [f"{cell['tables']} x {cell['ranks']}" for cell in ordered],
        rotation=40,
        ha="right",
        rotation_mode="anchor",
    )
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    # Above the axes: the curves fill every corner.
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SERIES))


def _seconds_label(seconds: float, _position: int) -> str:
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms"
