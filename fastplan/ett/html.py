"""The HTML report: one file without scripts, to look at and to pass on."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from fastplan import __version__
from fastplan.ett.arithmetic import AttemptReport, Report, account
from fastplan.ett.drawing import axis, chosen_ranks, lane, legend
from fastplan.ett.names import name_of
from fastplan.ett.pieces import Piece, within
from fastplan.ett.report_text import (
    attempt_cells,
    by_bucket,
    by_span,
    facts,
    lost_text,
    recovery,
    shares,
)
from fastplan.ett.timeline import Attempt, Job
from fastplan.report.names import visible
from fastplan.report.page import html_page
from fastplan.report.units import of_count, of_seconds, of_share

_FEW_STARTS = 12
_OPEN_STARTS = 2
_FEW_RANKS = 32


def html_report(job: Job, report: Report | None = None) -> str:
    """A page about a job: its account, its timeline by rank and attempt, and its starts."""
    report = account(job) if report is None else report
    name = visible(report.source or "job")
    body = [
        f'<header><p class="mark">Effective Training Time</p><h1>{escape(name)}</h1>'
        f'<p class="facts">{escape(facts(report))}</p></header>',
        _summary(report),
        _waterfall(report),
        _timeline(job),
        _starts(job, report),
        _attempts(report),
        _phases(report),
        _other_tools(report),
        _notes(report),
        f"<footer>Made by fastplan {escape(__version__)}.</footer>",
    ]
    return html_page(f"{name}: Effective Training Time", _style(), body)


def _style() -> str:
    base = (files("fastplan.report") / "assets" / "base.css").read_text("utf-8")
    own = (files("fastplan.ett") / "assets" / "ett.css").read_text("utf-8")
    return f"{base}\n{own}"


def _section(title: str, *parts: str) -> str:
    inside = "\n".join(parts)
    return f'<section><div class="bar"><h2>{escape(title)}</h2></div>\n{inside}</section>'


def _cell(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(visible(text))}</span>'


def _summary(report: Report) -> str:
    start, times = report.time_to_start, report.times_to_recover
    tiles = [
        ("ETT", of_share(report.ett), shares(report)),
        ("Time to Start", "never" if start is None else of_seconds(start), "launch to training"),
        (
            "Time to Recover",
            of_seconds(sum(times) / len(times)) if times else "none",
            recovery(report) if len(times) > 1 else "failure to training",
        ),
        ("Failures", str(report.failures), of_count(len(report.attempts), "attempt")),
        ("Lost work", of_seconds(report.lost), lost_text(report)),
    ]
    made = "".join(
        f'<div class="tile"><h3>{escape(title)}</h3><p class="value">{escape(value)}</p>'
        f'<p class="note">{escape(note)}</p></div>'
        for title, value, note in tiles
    )
    return f'<section aria-label="Summary"><div class="panel tiles">{made}</div></section>'


def _waterfall(report: Report) -> str:
    """The whole time, what each phase takes off it, and what is left for training."""
    whole = report.seconds or 1.0
    taken = [entry for entry in report.phases.items() if entry[0] != "training"]
    taken.sort(key=lambda entry: -entry[1])
    rows, left = [], whole
    for name, seconds in taken:
        left -= seconds
        rows.append((name_of(name).title, name, left, seconds))
    rows.append(("training: the rest", "training", 0.0, report.phases.get("training", 0.0)))
    cells = [_row("whole job", "starting", 0.0, report.seconds, whole)]
    cells += [_row(title, name, begin, took, whole) for title, name, begin, took in rows]
    drawn = f'<div class="panel figure"><div class="rows">{"".join(cells)}</div></div>'
    return _section("Where the time went", drawn)


def _row(title: str, name: str, begin: float, seconds: float, whole: float) -> str:
    piece = Piece(round(begin * 1e9), round((begin + seconds) * 1e9), name)
    return (
        _cell("name", title)
        + lane([piece], 0, round(whole * 1e9))
        + _cell("figures", of_seconds(seconds))
        + _cell("figures", of_share(seconds / whole))
    )


def _lanes(rows: Iterable[tuple[str, str, bool]], begin: int, end: int) -> str:
    cells = "".join(
        _cell("name whole" if whole else "name", label) + drawn for label, drawn, whole in rows
    )
    return (
        f'<div class="lanes">{cells}<span></span><div class="axis">{axis(begin, end)}</div></div>'
    )


def _timeline(job: Job) -> str:
    """The whole job: a lane for what all waited for, and a lane per rank in each attempt."""
    begin, end = job.begin, job.end
    pieces = [piece for attempt in job.attempts for piece in attempt.job]
    rows = [("job", lane(pieces, begin, end, whole=True), True)]
    for attempt in job.attempts:
        for rank in chosen_ranks(attempt, max(4, _FEW_RANKS // len(job.attempts))):
            label = f"attempt {attempt.number} rank {rank.rank}"
            rows.append((label, lane(rank.pieces, begin, end), False))
    names = {piece.name for piece in pieces}
    names |= {p.name for a in job.attempts for rank in a.ranks for p in rank.pieces}
    drawn = f'<div class="panel figure">{legend(names)}{_lanes(rows, begin, end)}</div>'
    return _section("Timeline", drawn)


def _starts(job: Job, report: Report) -> str:
    """Every start from its beginning to the end of its first step; the line is the first batch."""
    both = list(zip(job.attempts, report.attempts, strict=True))
    parts = [_start(attempt, told) for attempt, told in both[:_FEW_STARTS]]
    if len(both) > _FEW_STARTS:
        parts.append(f"<p>And {len(both) - _FEW_STARTS} more starts.</p>")
    return _section("Starts, to the end of the first step", *parts)


def _start(attempt: Attempt, told: AttemptReport) -> str:
    begin, end = attempt.begin, attempt.first_step_end or attempt.end
    ranks = chosen_ranks(attempt, _FEW_RANKS)
    all_pieces = [("job", attempt.job), *((f"rank {rank.rank}", rank.pieces) for rank in ranks)]
    rows, names = [], set()
    for label, pieces in all_pieces:
        inside, whole = within(pieces, begin, end), label == "job"
        drawn = lane(inside, begin, end, whole=whole, edge=attempt.first_batch)
        rows.append((label, drawn, whole))
        names |= {piece.name for piece in inside}
    some = f", {len(ranks)} of {len(attempt.ranks)} ranks" if len(ranks) < told.ranks else ""
    words = f"Attempt {attempt.number}: {of_seconds((end - begin) / 1e9)}{some}"
    opened = " open" if attempt.number < _OPEN_STARTS else ""
    return (
        f"<details{opened}><summary>{escape(words)}</summary>"
        f'<div class="panel figure">{legend(names)}{_lanes(rows, begin, end)}'
        f"{_inside_plan(told)}</div></details>"
    )


def _inside_plan(told: AttemptReport) -> str:
    plan = told.plan
    if plan is None or not plan.parts:
        return ""
    parts = sorted(plan.parts.items(), key=lambda entry: -entry[1])
    words = ", ".join(f"{name} {of_seconds(seconds)}" for name, seconds in parts)
    by = plan.engine or "unknown"
    cached = f", cache {plan.cache}" if plan.cache else ""
    text = f"Inside plan on rank {plan.rank} ({by}{cached}): {words}."
    return f'<p class="facts">{escape(visible(text))}</p>'


def _table(titles: list[tuple[str, bool]], rows: list[list[str]]) -> str:
    head = "".join(
        f'<th class="num">{escape(title)}</th>' if number else f"<th>{escape(title)}</th>"
        for title, number in titles
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="num">{escape(visible(cell))}</td>'
            if number
            else f"<td>{escape(visible(cell))}</td>"
            for cell, (_, number) in zip(row, titles, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="panel"><table>{inside}</table></div>'


def _attempts(report: Report) -> str:
    titles = [("Attempt", False), ("Time", True), ("To training", True)]
    titles += [("Of it planning", True), ("Steps", True), ("Lost", True), ("Ended", False)]
    rows = [attempt_cells(attempt) for attempt in report.attempts]
    return _section("Attempts", _table(titles, rows))


def _phases(report: Report) -> str:
    titles = [("Phase", False), ("Time", True), ("Share", True), ("Longest on a rank", True)]
    titles += [("ml-goodput-measurement", False), ("one-logger", False)]
    rows = []
    for name, seconds in report.phases.items():
        known, longest = name_of(name), report.longest.get(name)
        rows.append(
            [
                known.title,
                of_seconds(seconds),
                of_share(seconds / (report.seconds or 1.0)),
                f"{of_seconds(longest.seconds)}, rank {longest.rank}" if longest else "-",
                known.goodput,
                known.span or "-",
            ]
        )
    for name, seconds in report.background.items():
        known = name_of(name)
        told = f"{of_seconds(seconds)}, in the background"
        rows.append([known.title, "-", "-", told, "-", known.span or "-"])
    return _section("Phases", _table(titles, rows))


def _other_tools(report: Report) -> str:
    whole = report.seconds or 1.0
    rows = [
        [tool, name, of_seconds(seconds), of_share(seconds / whole)]
        for tool, found in (
            ("ml-goodput-measurement", by_bucket(report)),
            ("one-logger", by_span(report)),
        )
        for name, seconds in found.items()
    ]
    titles = [("Tool", False), ("Bucket or span", False), ("Time", True), ("Share", True)]
    return _section("In the words of other tools", _table(titles, rows))


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    items = "".join(f"<li>{escape(visible(note))}</li>" for note in report.notes)
    return _section("What is missing, and what was put right", f'<ul class="notes">{items}</ul>')
