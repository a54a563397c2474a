"""Calibrates: runs the micro-benchmarks on all ranks and fits TorchRec's constants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.cases import Case, Sizes, cases
from fastplan.measure.constants import Calibration, Point, calibration, slowest_median
from fastplan.measure.folder import LOGS, POINTS
from fastplan.measure.launch import run_group
from fastplan.measure.settings import Assignment, Group, MeasureError


class Calibrated(NamedTuple):
    """Constants, and where they were measured."""

    found: Calibration
    points: tuple[Point, ...]
    devices: tuple[str, ...]  # names, each once


def calibrate(
    group: Group,
    sizes: Sizes,
    *,
    repetitions: int = 7,
    progress: Callable[[int], None] = lambda done: None,
) -> Calibrated | None:
    """Runs every micro-benchmark on the group; None on hosts that rank 0 is not on.

    `progress` is told how many are done. Raises MeasureError if a rank fails.
    """
    every = cases(group.device, group.ranks, group.ranks_per_host, sizes)
    with tempfile.TemporaryDirectory(prefix="fastplan-calibrate-") as name:
        folder = Path(name)
        (folder / POINTS).touch()
        Assignment(
            task="calibrate",
            device=group.device,
            timeout=group.timeout,
            settings={"repetitions": repetitions, "cases": [case.json() for case in every]},
            labels=tuple(case.kind for case in every),
        ).write(folder)

        def watch() -> None:
            progress((folder / POINTS).read_bytes().count(b"\n"))

        failure = run_group(folder, group, watch)
        if failure is not None:
            labels = tuple(case.kind for case in every)
            raise MeasureError(f"{failure.text(labels)}{_last_words(folder)}")
        lines = [json.loads(line) for line in (folder / POINTS).read_text().splitlines()]
    if not lines and group.hosts > 1:
        return None
    if not lines:
        raise MeasureError("the ranks ended without a result")
    points = tuple(_point(line) for line in lines)
    devices = sorted({rank["device"] for line in lines for rank in line["ranks"]})
    return Calibrated(
        calibration(points, group.device, group.ranks, group.hosts), points, tuple(devices)
    )


def _point(line: dict[str, Any]) -> Point:
    ranks = [rank["seconds"] for rank in line["ranks"]]
    return Point(Case(**line["case"]), slowest_median(ranks))


def _last_words(folder: Path) -> str:
    """The end of torchrun's log, which goes with the folder."""
    log = folder / LOGS / "torchrun.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f" ({lines[-1].strip()})" if lines else ""
