"""Runs the micro-benchmarks on all ranks and fits TorchRec's constants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.cases import Case, Sizes, cases
from fastplan.measure.constants import Calibration, Point, calibration, slowest_median
from fastplan.measure.launch import run_group
from fastplan.measure.settings import LOGS, POINTS, LaunchSettings, MeasureError, WorkerConfig


class Calibrated(NamedTuple):
    """Constants, the measurements behind them, and the names of the devices."""

    found: Calibration
    points: tuple[Point, ...]
    devices: tuple[str, ...]


def calibrate(
    group: LaunchSettings,
    sizes: Sizes,
    *,
    repetitions: int = 7,
    progress: Callable[[int], None] = lambda done: None,
) -> Calibrated | None:
    """Runs every micro-benchmark on a group.

    Args:
        group: The processes to start.
        sizes: The sizes to benchmark.
        repetitions: Timed repetitions of each benchmark.
        progress: Called with the number of finished benchmarks.

    Returns:
        The constants; None on hosts without rank 0.

    Raises:
        MeasureError: A rank failed.
    """
    every = cases(group.device, group.ranks, group.ranks_per_host, sizes)
    with tempfile.TemporaryDirectory(prefix="fastplan-calibrate-") as name:
        folder = Path(name)
        (folder / POINTS).touch()
        WorkerConfig(
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
            raise MeasureError(f"{failure.text(labels)}{_last_log_line(folder)}")
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


def _last_log_line(folder: Path) -> str:
    """Returns the last line of torchrun's log, because the folder is deleted."""
    log = folder / LOGS / "torchrun.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f" ({lines[-1].strip()})" if lines else ""
