"""Measures plans: prepares a folder, runs the ranks, and skips plans that fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fastplan.measure.failures import Failure
from fastplan.measure.launch import run_group
from fastplan.measure.prepare import Subject, prepare
from fastplan.measure.scaling import MemoryLimit
from fastplan.measure.settings import (
    FAILURES,
    LOGS,
    ROUNDS,
    RUN,
    LaunchSettings,
    MeasureError,
    Settings,
    Turn,
    WorkerConfig,
    append_line,
    turns,
)


def measure(
    folder: Path,
    subject: Subject,
    group: LaunchSettings,
    settings: Settings,
    *,
    room: MemoryLimit,
    scale: int | None = 1,
    progress: Callable[[int], None] = lambda count: None,
) -> list[Failure]:
    """Measures plans into a new folder. `read_runs` reads the result.

    A plan that fails is skipped in later rounds, and the others are measured to the end. On several
    real hosts, and if nothing could be measured, the first failure ends the measurement.

    Args:
        folder: The folder to create.
        subject: The model and its plans.
        group: The processes to start.
        settings: How plans are measured.
        room: The memory limit for plans.
        scale: The factor to divide rows by; None is the smallest that fits.
        progress: Called with the number of finished turns.

    Returns:
        The failures.

    Raises:
        MeasureError: The plans can't be measured.
    """
    prepare(folder, subject, group, settings, scale=scale, room=room)
    try:
        return _measure(folder, subject, group, settings, progress)
    except BaseException:
        if not finished(folder):
            (folder / RUN).unlink(missing_ok=True)  # so that the folder can be used again
        raise


def _measure(
    folder: Path,
    subject: Subject,
    group: LaunchSettings,
    settings: Settings,
    progress: Callable[[int], None],
) -> list[Failure]:
    every = turns(len(subject.plans), settings.rounds, settings.seed)
    failures: list[Failure] = []
    while True:
        failed = {failure.plan for failure in failures}
        done = finished(folder)
        left = tuple(turn for turn in every if turn.plan not in failed and turn not in done)
        if not left:
            return failures
        WorkerConfig(
            task="measure",
            device=group.device,
            timeout=group.timeout,
            settings=asdict(settings),
            target=subject.target,
            labels=subject.labels,
            turns=left,
        ).write(folder)
        failure = run_group(folder, group, lambda: progress(_lines(folder)))
        if failure is None:
            if group.on_this_machine and set(left) - finished(folder):
                raise MeasureError(f"the ranks ended early; {folder / LOGS} may say why")
            return failures
        failures.append(failure)
        content = {**failure._asdict(), "text": failure.text(subject.labels)}
        append_line(folder / FAILURES, json.dumps(content))
        if failure.plan is None or not group.on_this_machine:
            return failures


def finished(folder: Path) -> set[Turn]:
    """Returns the turns that all ranks have finished."""
    found = set()
    for line in (folder / ROUNDS).read_text().splitlines():
        try:
            content = json.loads(line)
            found.add(Turn(content["round"], content["plan"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _lines(folder: Path) -> int:
    return (folder / ROUNDS).read_bytes().count(b"\n")
