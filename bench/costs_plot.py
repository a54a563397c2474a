"""The plot of estimated over measured times, both axes logarithmic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from bench.costs_table import Measured
from fastplan.measure.record_estimates import RecordEstimate
from fastplan.measure.record_work import LookupWork

SERIES = (
    ("TorchRec's constants", "torchrec_ms", "#b5473c"),
    ("datasheet", "datasheet_ms", "#d9a05b"),
    ("hardware costs", "hardware_ms", "#2b6cb0"),
)
_EVERY = 16  # of the collectives, one is drawn, to keep the file small
_HALF = 0.035  # of a mark, in decades


def draw(every: Sequence[Measured], estimated: Sequence[RecordEstimate], path: Path) -> None:
    """Writes an SVG: lookups on the left, collectives on the right."""
    lookups = [e for m, e in zip(every, estimated, strict=True) if isinstance(m.work, LookupWork)]
    others = [
        e for m, e in zip(every, estimated, strict=True) if not isinstance(m.work, LookupWork)
    ]
    style = {"svg.fonttype": "none", "svg.hashsalt": "fastplan", "font.size": 10}
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5), layout="constrained")
        _panel(left, lookups, "lookups", (-3, 3))
        _panel(right, others[::_EVERY], "collectives", (-3, 3))
        left.set_ylabel("estimated, ms")
        left.legend(frameon=False, loc="upper left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _panel(
    axes: Any, estimated: Sequence[RecordEstimate], title: str, decades: tuple[int, int]
) -> None:
    # One path for all marks of a series: an element for each would make a large file.
    for label, field, colour in SERIES:
        points = [(e.measured_ms, getattr(e, field)) for e in estimated]
        logs = np.log10([(x, y) for x, y in points if x and y])
        inside = logs[(logs > decades[0]).all(1) & (logs < decades[1]).all(1)]
        if len(inside):
            marks = Outline.make_compound_path(*map(_diamond, inside))
            axes.add_patch(PathPatch(marks, color=colour, linewidth=0, alpha=0.7, label=label))
    axes.plot(decades, decades, color="#888888", linewidth=0.8)
    ticks = range(decades[0], decades[1] + 1)
    axes.set(xlim=decades, ylim=decades, title=title, xlabel="measured, ms")
    axes.set_xticks(ticks, [f"{10.0**k:g}" for k in ticks])
    axes.set_yticks(ticks, [f"{10.0**k:g}" for k in ticks])
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _diamond(centre: Any) -> Outline:
    around = np.array([(1, 0), (0, 1), (-1, 0), (0, -1), (1, 0)]) * _HALF
    return Outline(centre + around, closed=True)
