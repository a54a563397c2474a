"""The HTML report on a job: one file without scripts, to open in a browser and to pass on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from fastplan import __version__
from fastplan.ett.advice import advice
from fastplan.ett.arithmetic import AttemptReport, Report, job_report
from fastplan.ett.phases import NAMES, Piece, Span, phase_name, phase_order, within
from fastplan.ett.text import (
    attempt_cells,
    by_bucket,
    by_span,
    facts,
    format_lost,
    format_recovery,
    format_shares,
    planner_text,
)
from fastplan.ett.timeline import Attempt, Job, RankTimeline
from fastplan.report.page import render_page
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_count, format_percent, format_seconds

_FEW_STARTS = 12
_OPEN_STARTS = 2
_FEW_RANKS = 32
_ZOOMS = (1, 4, 16)
_BEFORE = ("launch", "restart", "down", "imports")  # of what a job does by itself
_WIDTH = 1000.0
_FINEST = 2000  # pieces that a lane can show side by side
_TICKS = 5

Titles = list[tuple[str, bool]]  # of a table's columns, and whether they contain numbers


def html_report(job: Job, report: Report | None = None) -> str:
    """Renders a page about a job: its report, its timeline by rank and attempt, and its starts.

    Args:
        job: The job.
        report: Its report, if it was computed already.

    Returns:
        The page as HTML.
    """
    report = job_report(job) if report is None else report
    name = report.source or "job"
    return render_page(
        "ett.html",
        styles=("base.css", "ett.css"),
        title=f"{name}: Effective Training Time",
        name=name,
        facts=facts(report),
        tiles=_tiles(report),
        waterfall=_waterfall(report),
        advice=[(each.title, each.text) for each in advice(report)],
        zooms=_ZOOMS,
        job=_job_lanes(job),
        starts=[
            _start(*pair)
            for pair in zip(job.attempts[:_FEW_STARTS], report.attempts[:_FEW_STARTS], strict=True)
        ],
        more_starts=max(0, len(job.attempts) - _FEW_STARTS),
        tables=[_attempts(report), _phases(report), _other_tools(report)],
        notes=report.notes,
        version=__version__,
    )


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    start, times = report.time_to_start, report.times_to_recover
    to_start = "never" if start is None else format_seconds(start)
    return [
        ("ETT", format_percent(report.ett), format_shares(report)),
        ("Time to Start", to_start, "launch to training"),
        (
            "Time to Recover",
            format_seconds(sum(times) / len(times)) if times else "none",
            format_recovery(report) if len(times) > 1 else "failure to training",
        ),
        ("Failures", str(report.failures), format_count(len(report.attempts), "attempt")),
        ("Lost work", format_seconds(report.lost), format_lost(report)),
    ]


def _waterfall(report: Report) -> list[tuple[str, str, str, str]]:
    """The whole time, the time of each phase, and the time that is left for training."""
    whole = report.seconds or 1.0
    phases = [entry for entry in report.phases.items() if entry[0] != "training"]
    rows, left = [_bar("whole job", "starting", 0.0, report.seconds, whole)], whole
    for name, seconds in sorted(phases, key=lambda entry: -entry[1]):
        left -= seconds
        rows.append(_bar(phase_name(name).title, name, left, seconds, whole))
    training = report.phases.get("training", 0.0)
    return [*rows, _bar("training", "training", 0.0, training, whole)]


def _bar(
    title: str, name: str, begin: float, seconds: float, whole: float
) -> tuple[str, str, str, str]:
    piece = Piece(round(begin * 1e9), round((begin + seconds) * 1e9), name)
    lane = _lane([piece], 0, round(whole * 1e9))
    return title, lane, format_seconds(seconds), format_percent(seconds / whole)


def _lanes(
    rows: list[tuple[str, str, bool]], names: Iterable[str], begin: int, end: int
) -> dict[str, Any]:
    """A timeline as the template reads it. A row is a label, a lane, and whether it is the job."""
    known = sorted(set(names), key=phase_order)
    ticks = [(end - begin) * i / (_TICKS - 1) / 1e9 for i in range(_TICKS)]
    return {
        "legend": [(_css_class(name), phase_name(name).title) for name in known],
        "rows": rows,
        "ticks": [format_seconds(tick) if tick else "0" for tick in ticks],
    }


def _job_lanes(job: Job) -> dict[str, Any]:
    """A lane for the job as a whole, and a lane per rank in each attempt."""
    begin, end = job.begin, job.end
    pieces = [piece for attempt in job.attempts for piece in attempt.job]
    rows = [("job", _lane(pieces, begin, end, is_job=True), True)]
    for attempt in job.attempts:
        for rank in chosen_ranks(attempt, max(4, _FEW_RANKS // len(job.attempts))):
            label = f"attempt {attempt.number} rank {rank.rank}"
            rows.append((label, _lane(rank.pieces, begin, end), False))
    names = {piece.name for piece in pieces}
    names |= {name for a in job.attempts for rank in a.ranks for _, _, name in rank.pieces}
    return _lanes(rows, names, begin, end)


def _start(attempt: Attempt, report: AttemptReport) -> dict[str, Any]:
    """A start up to the end of its first step, as a whole and after launch and imports."""
    begin, end = attempt.begin, attempt.first_step_end or attempt.end
    imported = _end_of_imports(within(attempt.job, begin, end), begin)
    shown = len(chosen_ranks(attempt, _FEW_RANKS))
    some = f", {shown} of {len(attempt.ranks)} ranks" if shown < report.ranks else ""
    took = f"{format_seconds((end - begin) / 1e9)}, {format_seconds((end - imported) / 1e9)}"
    plan = planner_text(report.plan)
    return {
        "summary": f"Attempt {attempt.number}: {took} after imports{some}",
        "open": attempt.number < _OPEN_STARTS,
        "lanes": _start_lanes(attempt, begin, end),
        "after_imports": _start_lanes(attempt, imported, end),
        "plan": plan and f"Inside plan {plan}.",
    }


def _end_of_imports(pieces: Iterable[Span], begin: int) -> int:
    """When the job begins with something else; later imports belong to what needs them."""
    for _, until, name in pieces:
        if name in _BEFORE:
            begin = until
        elif name != "starting":
            break
    return begin


def _start_lanes(attempt: Attempt, begin: int, end: int) -> dict[str, Any]:
    """A part of a start; a line marks the first batch."""
    ranks = chosen_ranks(attempt, _FEW_RANKS)
    all_pieces: list[tuple[str, Sequence[Span]]] = [
        ("job", attempt.job),
        *((f"rank {rank.rank}", rank.pieces) for rank in ranks),
    ]
    rows, names = [], set()
    for label, pieces in all_pieces:
        inside, is_job = within(pieces, begin, end), label == "job"
        lane = _lane(inside, begin, end, is_job=is_job, edge=attempt.first_batch)
        rows.append((label, lane, is_job))
        names |= {name for _, _, name in inside}
    return _lanes(rows, names, begin, end)


def _attempts(report: Report) -> tuple[str, Titles, list[list[str]]]:
    titles = [("Attempt", False), ("Time", True), ("To training", True), ("Planning", True)]
    titles += [("Steps", True), ("Lost", True), ("Ended", False)]
    return "Attempts", titles, [attempt_cells(attempt) for attempt in report.attempts]


def _phases(report: Report) -> tuple[str, Titles, list[list[str]]]:
    titles = [("Phase", False), ("Time", True), ("Share", True), ("Longest on a rank", True)]
    titles += [("ml-goodput-measurement", False), ("one-logger", False)]
    rows = []
    for name, seconds in report.phases.items():
        known, longest = phase_name(name), report.longest.get(name)
        rows.append(
            [
                known.title,
                format_seconds(seconds),
                format_percent(seconds / (report.seconds or 1.0)),
                f"{format_seconds(longest.seconds)}, rank {longest.rank}" if longest else "-",
                known.goodput,
                known.span or "-",
            ]
        )
    for name, seconds in report.background.items():
        known = phase_name(name)
        text = f"{format_seconds(seconds)}, in the background"
        rows.append([known.title, "-", "-", text, "-", known.span or "-"])
    return "Phases", titles, rows


def _other_tools(report: Report) -> tuple[str, Titles, list[list[str]]]:
    whole = report.seconds or 1.0
    tools = (("ml-goodput-measurement", by_bucket(report)), ("one-logger", by_span(report)))
    rows = [
        [tool, name, format_seconds(seconds), format_percent(seconds / whole)]
        for tool, found in tools
        for name, seconds in found.items()
    ]
    titles = [("Tool", False), ("Bucket or span", False), ("Time", True), ("Share", True)]
    return "In other tools", titles, rows


def _lane(
    pieces: Iterable[Span], begin: int, end: int, *, is_job: bool = False, edge: int | None = None
) -> str:
    """An SVG of the time from `begin` to `end`: a rectangle per piece, and a line at `edge`."""
    scale = _WIDTH / max(1, end - begin)
    shapes = [_rectangle(piece, begin, scale) for piece in merge_small_pieces(pieces, begin, end)]
    if edge is not None and begin <= edge <= end:
        x = f"{(edge - begin) * scale:.2f}"
        shapes.append(f'<line class="edge" x1="{x}" x2="{x}" y1="0" y2="10"/>')
    kind = "lane whole" if is_job else "lane"
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 1000 10" preserveAspectRatio="none">'
        f"{''.join(shapes)}</svg>"
    )


def merge_small_pieces(pieces: Iterable[Span], begin: int, end: int) -> list[Piece]:
    """Returns pieces that are wide enough to see.

    Consecutive pieces that are too small become one, with the name of the longest of them.
    """
    finest = (end - begin) / _FINEST
    visible: list[Piece] = []
    small: list[Piece] = []

    def flush() -> None:
        if small:
            most = max(small, key=lambda piece: piece.took)
            visible.append(Piece(small[0].begin, small[-1].end, most.name))
            small.clear()

    for piece in map(Piece._make, pieces):
        if piece.took >= finest:
            flush()
            visible.append(piece)
        elif piece.took > 0:
            small.append(piece)
            if small[-1].end - small[0].begin >= finest:
                flush()
    flush()
    return visible


def _rectangle(piece: Piece, begin: int, scale: float) -> str:
    text = f"{phase_name(piece.name).title}: {format_seconds(piece.took / 1e9)}"
    return (
        f'<rect class="{_css_class(piece.name)}" x="{(piece.begin - begin) * scale:.2f}" '
        f'width="{piece.took * scale:.2f}" height="10"><title>{escape(escape_name(text))}</title>'
        "</rect>"
    )


def _css_class(name: str) -> str:
    """The class of a phase; all phases of the user share one."""
    return f"p-{name}" if name in NAMES else "p-own"


def chosen_ranks(attempt: Attempt, most: int) -> Sequence[RankTimeline]:
    """Returns at most `most` ranks: the first, the latest to train, and a sample of the others."""
    ranks = attempt.ranks
    if len(ranks) <= most:
        return ranks
    latest = sorted(ranks, key=lambda rank: -(rank.first_batch or rank.end))[: most // 4]
    spaced = [ranks[i * len(ranks) // most] for i in range(most)]
    picked: dict[int, RankTimeline] = {}
    for rank in (ranks[0], *latest, *_shuffled(spaced)):
        if len(picked) < most:
            picked[rank.rank] = rank
    return [picked[number] for number in sorted(picked)]


def _shuffled(ranks: list[RankTimeline]) -> list[RankTimeline]:
    """A fixed order that is independent of the rank, so that no range of ranks is dropped."""
    return sorted(ranks, key=lambda rank: hashlib.sha256(str(rank.rank).encode()).digest())
