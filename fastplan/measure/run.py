"""Measures plans: prepares a folder, runs the ranks, and goes on without a plan that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fastplan.measure.failures import Failure
from fastplan.measure.folder import FAILURES, LOGS, ROUNDS, RUN, append_line
from fastplan.measure.launch import run_group
from fastplan.measure.prepare import Subject, prepare
from fastplan.measure.scaling import Room
from fastplan.measure.settings import Assignment, Group, MeasureError, Settings, Turn, turns


def measure(
    folder: Path,
    subject: Subject,
    group: Group,
    settings: Settings,
    *,
    room: Room,
    scale: int | None = 1,
    progress: Callable[[int], None] = lambda count: None,
) -> list[Failure]:
    """Measures plans into a new folder, to be read with `read_runs`, and returns what failed.

    A plan that fails is left out from then on, and the others are measured to the end; on several
    hosts, and when nothing could be measured, it ends there. `progress` is told how many turns
    are done.

    Args:
        room: memory that plans may take.
        scale: factor to divide rows by; None is the smallest that fits.

    Raises MeasureError for what can't be measured at all.
    """
    prepare(folder, subject, group, settings, scale=scale, room=room)
    try:
        return _measure(folder, subject, group, settings, progress)
    except BaseException:
        if not finished(folder):
            (folder / RUN).unlink(missing_ok=True)  # so that the next attempt can be made there
        raise


def _measure(
    folder: Path,
    subject: Subject,
    group: Group,
    settings: Settings,
    progress: Callable[[int], None],
) -> list[Failure]:
    every = turns(len(subject.plans), settings.rounds)
    failures: list[Failure] = []
    while True:
        failed = {failure.plan for failure in failures}
        done = finished(folder)
        left = tuple(turn for turn in every if turn.plan not in failed and turn not in done)
        if not left:
            return failures
        Assignment(
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
            if group.hosts == 1 and set(left) - finished(folder):
                raise MeasureError(f"the ranks ended early; {folder / LOGS} may say why")
            return failures
        failures.append(failure)
        told = {**failure._asdict(), "text": failure.text(subject.labels)}
        append_line(folder / FAILURES, json.dumps(told))
        if failure.plan is None or group.hosts > 1:
            return failures


def finished(folder: Path) -> set[Turn]:
    """The turns that all ranks have finished."""
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
