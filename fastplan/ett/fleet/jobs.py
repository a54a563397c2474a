"""A job of a fleet: one row, whichever tool recorded it."""

from __future__ import annotations

from typing import Any

import msgspec

from fastplan.ett.arithmetic import Report
from fastplan.ett.timeline import Job

RECORDED = "fastplan"  # the kind of jobs that fastplan.ett recorded
_MOST_NOTES = 20
_FAR = 253_402_300_800.0  # seconds: the year 10000, which no calendar shows


class FleetError(Exception):
    """A fleet can't be read or shown. The message says why, and what to do."""


class FleetJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are in seconds; None where the source can't tell.

    Attributes:
        source: The directory, file or URL; with `#2` for the second job of a file.
        place: The directory, file or URL alone.
        kind: The format: `fastplan`, `mllog`, `goodput` or `csv`.
        job: The name of the job.
        begin: When it began, in seconds since 1970.
        seconds: From its begin to its end.
        phases: All of its time by phase.
        start: Its first start by phase.
        within: Times that are part of a phase, such as evaluations of an MLPerf run.
    """

    source: str
    place: str
    kind: str
    job: str
    begin: float | None
    seconds: float
    time_to_start_s: float | None
    times_to_recover_s: list[float] = []
    train_s: float
    ett: float
    failures: int
    attempts: int = 1
    ranks: int | None = None
    steps: int | None = None
    lost_steps: int | None = None
    phases: dict[str, float]
    start: dict[str, float] = {}
    within: dict[str, float] = {}
    labels: dict[str, str] = {}
    notes: list[str] = []


class Place(msgspec.Struct, kw_only=True):
    """What is known about a directory or file: whether it has to be read again, and its jobs."""

    place: str
    kind: str  # empty for files that no importer knows
    modified: int  # nanoseconds; 0 if a change could have the same time
    size: int
    files: int
    settled: bool  # its files don't grow any more
    read_at: float = 0.0
    jobs: list[FleetJob] = []


def recorded_job(job: Job, report: Report, place: str, labels: dict[str, str]) -> FleetJob:
    """Returns the row of a job that fastplan.ett recorded."""
    first = next((attempt for attempt in report.attempts if attempt.to_training is not None), None)
    return FleetJob(
        source=place,
        place=place,
        kind=RECORDED,
        job=labels.get("job") or _run_name(job, place),
        begin=usable_time(job.begin / 1e9),
        seconds=report.seconds,
        time_to_start_s=report.time_to_start,
        times_to_recover_s=list(report.times_to_recover),
        train_s=report.productive,
        ett=report.ett,
        failures=report.failures,
        attempts=len(report.attempts),
        ranks=max(attempt.world for attempt in report.attempts),
        steps=report.steps,
        lost_steps=report.lost_steps,
        phases=report.phases,
        start={} if first is None else first.start,
        labels=labels,
        notes=list(report.notes[:_MOST_NOTES]),
    )


def usable_time(seconds: float) -> float | None:
    """Returns a time since 1970 that calendars can show, or None."""
    return seconds if 0 <= seconds < _FAR else None


def _run_name(job: Job, place: str) -> str:
    run = job.attempts[0].run
    return run if run not in ("", "none") else last_name(place)


def last_name(place: str) -> str:
    """Returns the last part of a path or URL."""
    return place.rstrip("/").rpartition("/")[2] or place


def job_json(job: FleetJob) -> dict[str, Any]:
    """Returns a row as JSON types."""
    found: dict[str, Any] = msgspec.to_builtins(job)
    del found["place"]
    return found
