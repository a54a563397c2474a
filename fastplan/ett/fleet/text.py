"""A fleet as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.fleet.summary import (
    Spread,
    Summary,
    group_by_label,
    shown_names,
    summarise,
    worst_jobs,
)
from fastplan.ett.phases import phase_name
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import format_count, format_percent, format_seconds

_LABEL = 17
_PHASES = 12
_WORST = 8


def fleet_text(jobs: Sequence[FleetJob], by: Sequence[str], style: Style | None = None) -> str:
    """Returns the figures of some jobs as text.

    Args:
        jobs: The jobs.
        by: Labels to group by, each with a table.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    summary = summarise(jobs)
    lines = [*_headline(summary, style)]
    if summary.phases:
        lines += ["", *_phases(summary, style)]
    for name in by:
        lines += ["", *_groups(jobs, name, style)]
    if len(jobs) > 1:
        lines += ["", *_worst(jobs, style)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(summary: Summary, style: Style) -> Iterator[str]:
    dates = f", {format_date(summary.begin)} to {format_date(summary.end)}"
    yield style.paint(
        f"{format_count(summary.jobs, 'job')}, {format_seconds(summary.seconds)}"
        f"{dates if summary.begin is not None else ''}",
        "bold",
    )
    yield ""
    median = "" if summary.job_ett is None else f", {format_percent(summary.job_ett.median)} median"
    rows = [
        ("ETT", f"{format_percent(summary.ett)} of all time{median}"),
        ("Time to Start", format_spread(summary.time_to_start)),
        ("Time to Recover", format_spread(summary.time_to_recover)),
        ("Failures", _failures(summary)),
    ]
    for title, text in rows:
        yield f"{style.paint(title.ljust(_LABEL), 'dim')}{text}"


def _failures(summary: Summary) -> str:
    if not summary.failures:
        return "none"
    return f"{summary.failures:,} in {format_count(summary.failing_jobs, 'job')}"


def format_spread(spread: Spread | None) -> str:
    """Returns the median, the ninth decile and the maximum of times."""
    if spread is None:
        return "none"
    return (
        f"{format_seconds(spread.median)} median, {format_seconds(spread.p90)} p90, "
        f"{format_seconds(spread.most)} at most (n = {spread.n:,})"
    )


def format_date(seconds: float | None) -> str:
    """Returns a date in UTC."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, timezone.utc).date().isoformat()


def _phases(summary: Summary, style: Style) -> Iterator[str]:
    columns = [Column("time lost"), *_right("time", "share", "jobs", "median")]
    rows = [
        [
            phase_name(loss.phase).title,
            format_seconds(loss.seconds),
            format_percent(loss.share),
            f"{loss.jobs:,}",
            format_seconds(loss.median),
        ]
        for loss in summary.phases[:_PHASES]
    ]
    yield from table_lines(columns, rows, style)
    if len(summary.phases) > _PHASES:
        yield style.paint(f"  and {len(summary.phases) - _PHASES} more phases", "dim")


def _groups(jobs: Sequence[FleetJob], name: str, style: Style) -> Iterator[str]:
    columns = [Column(name), *_right("jobs", "time", "ETT", "Time to Start", "failures")]
    rows = [
        [
            group.name,
            f"{group.jobs:,}",
            format_seconds(group.seconds),
            format_percent(group.ett),
            "-" if group.time_to_start is None else format_seconds(group.time_to_start),
            f"{group.failures:,}",
        ]
        for group in group_by_label(jobs, name)
    ]
    yield from table_lines(columns, rows, style)


def _worst(jobs: Sequence[FleetJob], style: Style) -> Iterator[str]:
    columns = [Column("most time lost"), *_right("lost", "ETT", "Time to Start", "failures")]
    columns.append(Column("most in"))
    rows = []
    names = shown_names(jobs)
    for job in worst_jobs(jobs, _WORST):
        lost = {name: took for name, took in job.phases.items() if name not in ("training", "run")}
        most = max(lost, key=lambda name: lost[name], default=None)
        rows.append(
            [
                names[job.source],
                format_seconds(job.seconds - job.train_s),
                format_percent(job.ett),
                "-" if job.time_to_start_s is None else format_seconds(job.time_to_start_s),
                f"{job.failures:,}",
                "-" if most is None else escape_name(phase_name(most).title),
            ]
        )
    yield from table_lines(columns, rows, style)


def _right(*titles: str) -> list[Column]:
    return [Column(title, right=True) for title in titles]
