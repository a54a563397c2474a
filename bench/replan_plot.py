"""The chart of re-planning: bytes moved by each change, and the rating over a day of changes."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt

SERIES = (
    ("torchrec", "TorchRec from scratch", "#b5473c", "o"),
    ("optimize", "optimize from scratch", "#d9a05b", "s"),
    ("replan", "replan", "#2b6cb0", "D"),
)


def draw(rows: list[dict[str, Any]], days: list[dict[str, Any]], path: Path) -> None:
    """Writes an SVG."""
    # Text stays text and ids stay the same from run to run, so the file can be compared.
    style = {"svg.fonttype": "none", "svg.hashsalt": "fastplan", "font.size": 10}
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        for who, label, colour, marker in SERIES:
            points = [
                (row[who]["moved"] / row["bytes"], row[who]["rating"] / row["torchrec"]["rating"])
                for row in rows
            ]
            left.plot(*zip(*points, strict=True), marker, color=colour, markersize=4, label=label)
            ratings = [row[who]["rating"] / row["optimize"]["rating"] for row in days]
            right.plot(range(1, len(ratings) + 1), ratings, color=colour, label=label)
        left.set_xlabel("bytes moved, as a part of all")
        left.set_ylabel("rating, as a part of TorchRec's")
        left.set_xscale("symlog", linthresh=0.001)
        left.set_title("eleven changes of four models")
        right.set_xlabel("changes")
        right.set_ylabel("rating, as a part of optimize's")
        right.set_title("a day of small changes")
        left.legend()
        right.legend()
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)
