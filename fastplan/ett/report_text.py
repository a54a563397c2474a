"""What `fastplan ett report` prints: the answer first, then where the time went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fastplan.ett.arithmetic import AttemptReport, Report
from fastplan.ett.names import name_of
from fastplan.report.names import visible
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import of_count, of_seconds, of_share

_LABEL = 17
_BAR = 24
_FEW_ATTEMPTS = 20


def report_text(report: Report, style: Style | None = None) -> str:
    """The account on a page; `style` is that of the stream it is for."""
    style = style or Style()
    lines = [
        style.paint(style.name(report.source or "job", style.width), "bold"),
        facts(report),
        "",
        *_headline(report, style),
        "",
        *_waterfall(report, style),
        "",
        *_attempts(report, style),
        *_planning(report, style),
        *_notes(report, style),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def report_json(report: Report) -> dict[str, Any]:
    """The account as plain data, with the names that other tools have for the phases."""
    found = asdict(report)
    found["ett"] = report.ett
    found["idle"] = report.idle
    found["time_to_start"] = report.time_to_start
    found["times_to_recover"] = list(report.times_to_recover)
    found["goodput"] = by_bucket(report)
    found["one_logger"] = by_span(report)
    return found


def by_bucket(report: Report) -> dict[str, float]:
    """Seconds by ml-goodput-measurement's buckets; TOTAL is what counts as productive there."""
    found: dict[str, float] = {}
    for name, seconds in report.phases.items():
        bucket = name_of(name).goodput
        found[bucket] = found.get(bucket, 0.0) + seconds
    return found


def by_span(report: Report) -> dict[str, float]:
    """Seconds by one-logger's spans; what it has no span for is left out."""
    found: dict[str, float] = {}
    for name, seconds in report.phases.items():
        span = name_of(name).span
        if span is not None:
            found[span] = found.get(span, 0.0) + seconds
    return found


def facts(report: Report) -> str:
    """Such as `8 ranks, 2 attempts, 3.2 h`."""
    worlds = sorted({attempt.world for attempt in report.attempts})
    ranks = " to ".join(f"{world:,}" for world in (worlds[:1] + worlds[1:][-1:]))
    return (
        f"{ranks} {'rank' if worlds == [1] else 'ranks'}, "
        f"{of_count(len(report.attempts), 'attempt')}, {of_seconds(report.seconds)}"
    )


def shares(report: Report) -> str:
    """The definition with this job's figures in it."""
    whole = report.seconds or 1.0
    return (
        f"100 % - {of_share(report.idle / whole)} idleness - {of_share(report.failing / whole)} "
        "failures"
    )


def recovery(report: Report) -> str:
    """Mean and worst time to recover."""
    times = report.times_to_recover
    if not times:
        return "none"
    mean = of_seconds(sum(times) / len(times))
    return f"{mean} on average, {of_seconds(max(times))} at worst" if len(times) > 1 else mean


def lost_text(report: Report) -> str:
    return f"{of_count(report.lost_steps, 'step')}, {of_seconds(report.lost)}"


def _headline(report: Report, style: Style) -> Iterator[str]:
    yield _line("ETT", f"{of_share(report.ett)} = {shares(report)}", style, "bold")
    start = report.time_to_start
    yield _line("Time to Start", "never" if start is None else of_seconds(start), style)
    yield _line("Time to Recover", recovery(report), style)
    yield _line("Failures", str(report.failures), style, *(["red"] if report.failures else []))
    yield _line("Lost work", lost_text(report), style)


def _line(label: str, text: str, style: Style, *colours: str) -> str:
    return f"{style.paint(label.ljust(_LABEL), 'dim')}{style.paint(text, *colours)}"


def _waterfall(report: Report, style: Style) -> Iterator[str]:
    """Phases from the largest to the smallest, each beginning where the one before ended."""
    columns = [
        Column("where the time went"),
        Column("time", right=True),
        Column("share", right=True),
        Column(""),
        Column("longest on a rank", right=True),
    ]
    whole = report.seconds or 1.0
    rows, done = [], 0.0
    for name, seconds in sorted(report.phases.items(), key=lambda entry: -entry[1]):
        longest = report.longest.get(name)
        rows.append(
            [
                name_of(name).title,
                of_seconds(seconds),
                of_share(seconds / whole),
                bar(done / whole, seconds / whole, style),
                f"{of_seconds(longest.seconds)} r{longest.rank}" if longest else "-",
            ]
        )
        done += seconds
    yield from table_lines(columns, rows, style)
    for name, seconds in report.background.items():
        title = visible(name_of(name).title)
        yield style.paint(f"  besides: {title}, up to {of_seconds(seconds)} on a rank", "dim")


def bar(begin: float, size: float, style: Style) -> str:
    """A piece of a bar, at its place in the whole."""
    first = min(_BAR - 1, int(_BAR * begin))
    last = max(first + 1, min(_BAR, round(_BAR * (begin + size))))
    full, empty = ("█", "·") if style.unicode else ("#", ".")
    return empty * first + full * (last - first) + empty * (_BAR - last)


def _attempts(report: Report, style: Style) -> Iterator[str]:
    columns = [
        Column("attempt"),
        Column("time", right=True),
        Column("to training", right=True),
        Column("of it planning", right=True),
        Column("steps", right=True),
        Column("lost", right=True),
        Column("ended"),
    ]
    shown = report.attempts[:_FEW_ATTEMPTS]
    yield from table_lines(columns, [attempt_cells(attempt) for attempt in shown], style)
    if len(report.attempts) > len(shown):
        yield style.paint(f"  and {len(report.attempts) - len(shown)} more attempts", "dim")


def attempt_cells(attempt: AttemptReport) -> list[str]:
    """An attempt as a row of a table."""
    return [
        str(attempt.number),
        of_seconds(attempt.seconds),
        "-" if attempt.to_training is None else of_seconds(attempt.to_training),
        _planning_text(attempt),
        f"{attempt.steps:,}",
        f"{attempt.lost_steps:,}",
        _ended_text(attempt),
    ]


def _planning_text(attempt: AttemptReport) -> str:
    """What planning took, and how much that is of the start."""
    if not attempt.planning:
        return "-"
    start = sum(attempt.start.values())
    share = f" ({of_share(attempt.planning / start)})" if start else ""
    return of_seconds(attempt.planning) + share


def _ended_text(attempt: AttemptReport) -> str:
    """How it ended, in words."""
    if attempt.cause is not None:
        return attempt.cause.splitlines()[0] if attempt.cause.strip() else "failed"
    return "well"


def _planning(report: Report, style: Style) -> Iterator[str]:
    """What the planner of the first attempt that planned tells about itself."""
    plan = next((attempt.plan for attempt in report.attempts if attempt.plan), None)
    if plan is None or not plan.parts:
        return
    told = ", ".join(
        f"{name} {of_seconds(seconds)}"
        for name, seconds in sorted(plan.parts.items(), key=lambda entry: -entry[1])
    )
    by = plan.engine or "unknown"
    cached = f", cache {plan.cache}" if plan.cache else ""
    yield ""
    yield style.name(f"inside plan on rank {plan.rank} ({by}{cached}): {told}", style.width)


def _notes(report: Report, style: Style) -> Iterator[str]:
    if report.notes:
        yield ""
    for note in report.notes:
        yield style.paint(f"note: {visible(note)}", "yellow")
