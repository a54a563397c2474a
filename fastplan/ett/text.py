"""What `fastplan ett report` and `fastplan ett diff` print, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fastplan.ett.advice import advice
from fastplan.ett.arithmetic import AttemptReport, PlannerTimes, Report
from fastplan.ett.phases import phase_name, phase_order
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import format_change, format_count, format_percent, format_seconds

_LABEL = 17
_BAR = 24
_FEW_ATTEMPTS = 20
_LONGEST_ESCAPE = 10  # characters for one, such as \\U0010ffff


def report_text(report: Report, style: Style | None = None) -> str:
    """Returns the report as text.

    Args:
        report: The report on a job.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    lines = [
        style.paint(_plain(report.source or "job", style), "bold"),
        facts(report),
        "",
        *_headline(report, style),
        "",
        *_waterfall(report, style),
        "",
        *_attempts(report, style),
        *_planning(report, style),
        *_advice(report, style),
        *_notes(report, style),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def report_json(report: Report) -> dict[str, Any]:
    """Returns the report as JSON types, with the times by the names of other tools."""
    found = asdict(report)
    found["ett"] = report.ett
    found["idle"] = report.idle
    found["time_to_start"] = report.time_to_start
    found["times_to_recover"] = list(report.times_to_recover)
    found["goodput"] = by_bucket(report)
    found["one_logger"] = by_span(report)
    found["advice"] = [asdict(each) for each in advice(report)]
    return found


def by_bucket(report: Report) -> dict[str, float]:
    """Returns seconds by ml-goodput-measurement's buckets; TOTAL is its productive time."""
    found: dict[str, float] = {}
    for name, seconds in report.phases.items():
        bucket = phase_name(name).goodput
        found[bucket] = found.get(bucket, 0.0) + seconds
    return found


def by_span(report: Report) -> dict[str, float]:
    """Returns seconds by one-logger's spans, without phases that have no span there."""
    found: dict[str, float] = {}
    for name, seconds in report.phases.items():
        span = phase_name(name).span
        if span is not None:
            found[span] = found.get(span, 0.0) + seconds
    return found


def facts(report: Report) -> str:
    """Returns a line such as `8 ranks, 2 attempts, 3.2 h`."""
    worlds = sorted({attempt.world for attempt in report.attempts})
    ranks = " to ".join(f"{world:,}" for world in (worlds[:1] + worlds[1:][-1:]))
    return (
        f"{ranks} {'rank' if worlds == [1] else 'ranks'}, "
        f"{format_count(len(report.attempts), 'attempt')}, {format_seconds(report.seconds)}"
    )


def format_shares(report: Report) -> str:
    """Returns the definition of ETT with this job's figures."""
    whole = report.seconds or 1.0
    idle, failing = format_percent(report.idle / whole), format_percent(report.failing / whole)
    return f"100 % - {idle} idleness - {failing} failures"


def format_recovery(report: Report) -> str:
    """Returns the mean and the worst time to recover."""
    times = report.times_to_recover
    if not times:
        return "none"
    mean = format_seconds(sum(times) / len(times))
    return f"{mean} on average, {format_seconds(max(times))} at worst" if len(times) > 1 else mean


def format_lost(report: Report) -> str:
    """Returns the steps that failures lost, and their time."""
    return f"{format_count(report.lost_steps, 'step')}, {format_seconds(report.lost)}"


def _headline(report: Report, style: Style) -> Iterator[str]:
    yield _line("ETT", f"{format_percent(report.ett)} = {format_shares(report)}", style, "bold")
    start = report.time_to_start
    yield _line("Time to Start", "never" if start is None else format_seconds(start), style)
    yield _line("Time to Recover", format_recovery(report), style)
    yield _line("Failures", str(report.failures), style, *(["red"] if report.failures else []))
    yield _line("Lost work", format_lost(report), style)


def _line(label: str, text: str, style: Style, *colours: str) -> str:
    return f"{style.paint(label.ljust(_LABEL), 'dim')}{style.paint(text, *colours)}"


def _waterfall(report: Report, style: Style) -> Iterator[str]:
    """Phases from the longest to the shortest; each bar begins where the previous one ends."""
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
                phase_name(name).title,
                format_seconds(seconds),
                format_percent(seconds / whole),
                bar(done / whole, seconds / whole, style),
                f"{format_seconds(longest.seconds)} r{longest.rank}" if longest else "-",
            ]
        )
        done += seconds
    yield from table_lines(columns, rows, style)
    for name, seconds in report.background.items():
        title = escape_name(phase_name(name).title)
        text = f"  in the background: {title}, up to {format_seconds(seconds)} on a rank"
        yield style.paint(text, "dim")


def bar(begin: float, size: float, style: Style) -> str:
    """Returns a bar of a fixed width that is filled from `begin` for `size`, both fractions."""
    first = min(_BAR - 1, int(_BAR * begin))
    last = max(first + 1, min(_BAR, round(_BAR * (begin + size))))
    full, empty = ("█", "·") if style.unicode else ("#", ".")
    return empty * first + full * (last - first) + empty * (_BAR - last)


def _attempts(report: Report, style: Style) -> Iterator[str]:
    columns = [
        Column("attempt"),
        Column("time", right=True),
        Column("to training", right=True),
        Column("planning", right=True),
        Column("steps", right=True),
        Column("lost", right=True),
        Column("ended"),
    ]
    shown = report.attempts[:_FEW_ATTEMPTS]
    rows = [[*attempt_cells(attempt)[:-1], _ended_word(attempt)] for attempt in shown]
    yield from table_lines(columns, rows, style)
    if len(report.attempts) > len(shown):
        yield style.paint(f"  and {len(report.attempts) - len(shown)} more attempts", "dim")
    for attempt in shown:
        if attempt.cause is not None:
            label = f"  attempt {attempt.number}: "
            yield from _wrapped(label, ended_text(attempt), style)


def attempt_cells(attempt: AttemptReport) -> list[str]:
    """Returns an attempt as a row of a table."""
    return [
        str(attempt.number),
        format_seconds(attempt.seconds),
        "-" if attempt.to_training is None else format_seconds(attempt.to_training),
        _planning_text(attempt),
        f"{attempt.steps:,}",
        f"{attempt.lost_steps:,}",
        ended_text(attempt),
    ]


def _planning_text(attempt: AttemptReport) -> str:
    """The time of planning, and its share of the start."""
    if not attempt.planning:
        return "-"
    start = sum(attempt.start.values())
    share = f" ({format_percent(attempt.planning / start)})" if start else ""
    return format_seconds(attempt.planning) + share


def _ended_word(attempt: AttemptReport) -> str:
    """How an attempt ended; the cause has a line of its own."""
    if attempt.cause is None:
        return "well"
    return "failed" if attempt.failed else "open"


def ended_text(attempt: AttemptReport) -> str:
    """Returns the first line of the cause of the end; `well` if there was no failure."""
    if attempt.cause is not None:
        return attempt.cause.splitlines()[0] if attempt.cause.strip() else "failed"
    return "well"


def _planning(report: Report, style: Style) -> Iterator[str]:
    """The times inside the planner, in the first attempt that planned."""
    text = planner_text(next((attempt.plan for attempt in report.attempts if attempt.plan), None))
    if text:
        yield ""
        yield from _wrapped("", f"inside plan {text}", style)


def planner_text(plan: PlannerTimes | None) -> str:
    """Returns the times inside a planner; empty if they are not known."""
    if plan is None or not plan.parts:
        return ""
    times = ", ".join(
        f"{name} {format_seconds(seconds)}"
        for name, seconds in sorted(plan.parts.items(), key=lambda entry: -entry[1])
    )
    cached = f", cache {plan.cache}" if plan.cache else ""
    return f"on rank {plan.rank} ({plan.engine or 'unknown'}{cached}): {times}"


def _advice(report: Report, style: Style) -> Iterator[str]:
    found = advice(report)
    if found:
        yield ""
        yield style.paint("what would shorten it", "bold")
    for each in found:
        yield from _wrapped("  ", f"{each.title}: {each.text}", style)


def _notes(report: Report, style: Style) -> Iterator[str]:
    if report.notes:
        yield ""
    for note in report.notes:
        yield style.paint(f"note: {_plain(note, style)}", "yellow")


def _wrapped(label: str, text: str, style: Style) -> Iterator[str]:
    """A text beside its label, on as many lines as it takes: nothing is cut out."""
    from textwrap import wrap

    lines = wrap(_plain(text, style), style.width - len(label), break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield (" " * len(label) if number else label) + line


def _plain(text: str, style: Style) -> str:
    """A text of any length in characters of the stream, not cut off."""
    return style.name(text, len(escape_name(text)) * _LONGEST_ESCAPE)


def diff_text(before: Report, after: Report, style: Style | None = None) -> str:
    """Returns two reports next to each other, and the changes.

    Args:
        before: The report on a job.
        after: The report on another job.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    names = [_plain(report.source or "job", style) for report in (before, after)]
    points = 100 * (after.ett - before.ett)
    change = f"ETT {format_percent(before.ett)} -> {format_percent(after.ett)}"
    lines = [
        style.paint(" -> ".join(names), "bold"),
        f"{facts(before)} -> {facts(after)}",
        "",
        style.paint(
            f"{change} ({points:+.2f} points)",
            "bold",
            "green" if points > 0 else "red" if points < 0 else "bold",
        ),
        "",
        *_figures(before, after, style),
        "",
        *_phases(before, after, style),
    ]
    for report in (before, after):
        for note in report.notes:
            text = f"note: {report.source}: {note}"
            lines.append(style.paint(_plain(text, style), "yellow"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def diff_json(before: Report, after: Report) -> dict[str, Any]:
    """Returns the comparison as JSON types; pairs are before and after."""
    return {
        "before": before.source,
        "after": after.source,
        "ett": [before.ett, after.ett],
        "points": 100 * (after.ett - before.ett),
        "time_to_start": [before.time_to_start, after.time_to_start],
        "time_to_recover": [_mean(before), _mean(after)],
        "failures": [before.failures, after.failures],
        "lost_steps": [before.lost_steps, after.lost_steps],
        "seconds": [before.seconds, after.seconds],
        "phases": {
            name: [before.phases.get(name, 0.0), after.phases.get(name, 0.0)]
            for name in _names(before, after)
        },
    }


def _figures(before: Report, after: Report, style: Style) -> Iterator[str]:
    times = [
        ("Time to Start", before.time_to_start, after.time_to_start),
        ("Time to Recover, mean", _mean(before), _mean(after)),
        ("lost work", before.lost, after.lost),
        ("whole job", before.seconds, after.seconds),
    ]
    rows = [[title, *_change(old, new)] for title, old, new in times]
    rows.append(["failures", str(before.failures), str(after.failures), ""])
    yield from table_lines([Column(""), *_columns()], rows, style)


def _phases(before: Report, after: Report, style: Style) -> Iterator[str]:
    """All phases, by the change of their time."""
    changes = [
        (name, before.phases.get(name, 0.0), after.phases.get(name, 0.0))
        for name in _names(before, after)
    ]
    changes.sort(key=lambda entry: -abs(entry[2] - entry[1]))
    rows = [[phase_name(name).title, *_change(old, new)] for name, old, new in changes]
    yield from table_lines([Column("phase"), *_columns()], rows, style)


def _columns() -> list[Column]:
    return [Column(title, right=True) for title in ("before", "after", "change")]


def _change(old: float | None, new: float | None) -> list[str]:
    shown = [format_seconds(value) if value else "-" for value in (old, new)]
    if old is None or new is None:
        return [*shown, ""]
    if old and new:
        return [*shown, format_change(old, new)]
    return [*shown, "gone" if old else "new" if new else ""]


def _mean(report: Report) -> float | None:
    times = report.times_to_recover
    return sum(times) / len(times) if times else None


def _names(before: Report, after: Report) -> list[str]:
    return sorted(before.phases.keys() | after.phases.keys(), key=phase_order)
