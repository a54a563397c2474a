"""A job's account as TensorBoard scalars, by attempt."""

from __future__ import annotations

import os
from typing import Any

from fastplan.ett.arithmetic import Report
from fastplan.report.names import visible


class NoTensorBoard(ImportError):
    """What writes event files is not installed."""


def scalars(report: Report) -> list[tuple[str, float, int]]:
    """Tag, value and attempt of every scalar; ETT is that of the job up to the attempt's end."""
    found: list[tuple[str, float, int]] = []
    productive = 0.0
    name = "time_to_start"
    for attempt in report.attempts:
        number = attempt.number
        productive += attempt.productive
        if attempt.end > 0:
            found.append(("ett/percent", 100 * productive / attempt.end, number))
        if attempt.to_training is not None:
            found.append((f"ett/{name}_seconds", attempt.to_training, number))
            name = "time_to_recover"
        found.append(("ett/lost_steps", attempt.lost_steps, number))
        found.append(("ett/failures", sum(a.failed for a in report.attempts[: number + 1]), number))
        found += [
            (f"ett_phase_seconds/{visible(name)}", seconds, number)
            for name, seconds in attempt.phases.items()
        ]
    return found


def write_scalars(report: Report, directory: str | os.PathLike[str]) -> None:
    """Writes an event file by torch.utils.tensorboard. Raises NoTensorBoard where it can't."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NoTensorBoard(
            "TensorBoard scalars are written by torch.utils.tensorboard, which needs the packages "
            f"torch and tensorboard: `pip install tensorboard` ({error})"
        ) from error
    writer: Any = SummaryWriter(log_dir=os.fspath(directory))
    try:
        for tag, value, number in scalars(report):
            writer.add_scalar(tag, value, number)
    finally:
        writer.close()
