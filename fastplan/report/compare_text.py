"""What `fastplan compare` prints: counts first, then the largest changes; and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from fastplan.engine.problem import Floats
from fastplan.planning.movement import KERNEL
from fastplan.report.analysis import Analysis, Memory
from fastplan.report.comparison import MARKS, Comparison, Measured, PlanStep
from fastplan.report.estimates import by_load
from fastplan.report.plan_text import cluster
from fastplan.report.terminal import Column, Style, escape_name, table_lines
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
)

_FEW_CHANGES = 10
_LABEL = 11
_COLOURS = {"~": "yellow", ">": "blue", "+": "green", "-": "red"}


def compare_text(
    comparison: Comparison, *, tables: bool = False, style: Style | None = None
) -> str:
    """Returns the differences between plans as text.

    Args:
        comparison: The plans.
        tables: Whether to list all changed tables instead of the largest changes.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    if len(comparison.steps) > 1:
        lines = list(_many(comparison, style))
    else:
        step = comparison.steps[0]
        lines = [*_head(comparison, style), ""]
        if comparison.yardstick:
            lines += [style.paint(comparison.yardstick, "yellow"), ""]
        lines += [*_remarks(step, style), _counts_text(step)]
        lines += _changes(step, style, every=tables)
        lines += ["", *_figures(comparison, step, style), *_ranks(comparison, style)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(comparison: Comparison, style: Style) -> list[str]:
    first, second = comparison.analyses[:2]
    room = style.width // 2 - 3
    before, after = (style.name(label, room) for label in comparison.labels[:2])
    facts = f"{format_count(len(first.tables), 'table')}, {cluster(first)}"
    if cluster(second) != cluster(first):
        facts += f" -> {cluster(second)}"
    return [style.paint(f"{before} -> {after}", "bold"), style.name(facts, style.width)]


def _remarks(step: PlanStep, style: Style, label: str = "") -> Iterator[str]:
    for remark in remarks(step, most=2):
        lines = wrap(label + remark, style.width - 2, break_on_hyphens=False)
        yield from (style.paint(style.name(line, style.width), "yellow") for line in lines)
        yield ""


def remarks(step: PlanStep, *, most: int) -> Iterator[str]:
    """Yields other differences between two plans, with at most `most` examples of each kind."""
    for title, found in (
        ("model and cluster", step.differences.words),
        ("planned differently", step.settings.words),
        ("other settings", tuple(map(escape_name, step.tuned))),
    ):
        if found:
            more = f"; and {len(found) - most} more" if len(found) > most else ""
            yield f"{title}: {'; '.join(found[:most])}{more}"


def _counts_text(step: PlanStep) -> str:
    """Returns a line such as `3 re-sharded, 5 moved, 0 added, 0 removed, 18 unchanged`."""
    return ", ".join(f"{count:,} {words}" for _, count, words in counted(step))


def counted(step: PlanStep) -> Iterator[tuple[str, int, str]]:
    """Yields mark, count and description of each kind of change."""
    for change, count in step.counts.items():
        if change != KERNEL:
            yield MARKS[change], count, change
        elif count:
            yield MARKS[change], count, "with another kernel"


def _changes(step: PlanStep, style: Style, *, every: bool) -> Iterator[str]:
    shown = step.changes if every else step.changes[:_FEW_CHANGES]
    if not shown:
        return
    columns = [Column("  table"), Column("change"), Column("to move", right=True)]
    rows = [
        [f"{MARKS[change.kind]} {escape_name(change.table)}", change.words, _bytes(change.bytes)]
        for change in shown
    ]
    yield ""
    titles, *lines = table_lines(columns, rows, style)
    yield titles
    for line, change in zip(lines, shown, strict=True):
        yield style.paint(line, _COLOURS[MARKS[change.kind]])
    rest = step.changes[len(shown) :]
    if rest:
        size = format_bytes(sum(change.bytes or 0 for change in rest))
        yield style.paint(f"  and {format_count(len(rest), 'more change')}, {size}", "dim")


def _bytes(count: int | None) -> str:
    return "?" if count is None else format_bytes(count)


def _figures(comparison: Comparison, step: PlanStep, style: Style) -> Iterator[str]:
    before, after = comparison.analyses[:2]
    yield from _lines("to move", _moves_text(step, before), style)
    old, new = before.rating, after.rating
    if old is not None and new is not None:
        text = f"est.  {format_milliseconds(old)} -> {format_milliseconds(new)}"
        text += f"  {format_change(old, new)}"
        yield from _lines("rating", text, style, _tone(old, new))
    if before.step is not None and after.step is not None:
        old, new = before.step.ms, after.step.ms
        text = f"predicted  {format_milliseconds(old)} -> {format_milliseconds(new)}"
        yield from _lines("step", f"{text}  {format_change(old, new)}", style, _tone(old, new))
    measured = _measured_text(*comparison.measured[:2])
    if measured is not None:
        yield from _lines("step", measured, style)
    if before.costs is not None and after.costs is not None:
        text = (
            f"{format_percent(before.costs.imbalance)} -> {format_percent(after.costs.imbalance)}"
        )
        yield from _lines("imbalance", f"{text} above the mean", style)
    for name, text in _memory_changes(before, after):
        yield from _lines(name, text, style)


def _lines(label: str, text: str, style: Style, *colours: str) -> list[str]:
    return style.labelled(label, _LABEL, text, *filter(None, colours))


def _tone(before: float, after: float) -> str:
    return "green" if after < before else "red" if after > before else ""


def _moves_text(step: PlanStep, before: Analysis) -> str:
    """Returns the bytes to move, the rank that receives most, and the estimated time."""
    moves = step.movement
    text = "nothing"
    if moves.bytes:
        received = moves.rank_received
        busiest = int(received.argmax())
        sent, weights = format_bytes(moves.bytes), format_bytes(before.bytes)
        text = f"{sent} with states (weights: {weights})"
        if moves.assumed:
            text = f"{sent} of {weights} of weights"
        text += f", most to rank {busiest}: {format_bytes(int(received[busiest]))}"
        if moves.seconds is not None:
            text += f"; est. {format_seconds(moves.seconds)}"
    if moves.created:
        text += f"; {format_bytes(moves.created)} to create"
    if moves.unknown:
        text += f"; {format_count(len(moves.unknown), 'table')} of unknown size"
    return f"{text}; 4-byte elements assumed" if moves.assumed else text


def _measured_text(before: Measured | None, after: Measured | None) -> str | None:
    """Returns the measured steps, and whether the change is within the spread."""
    if before is None or after is None:
        return None
    sides = [
        f"{format_seconds(one.median)} ({format_seconds(one.spread)} spread)"
        for one in (before, after)
    ]
    change = format_change(before.median, after.median)
    within = abs(before.median - after.median) <= max(before.spread, after.spread)
    return f"meas. {' -> '.join(sides)}  {change}{', within the spread' if within else ''}"


def _memory_changes(before: Analysis, after: Analysis) -> Iterator[tuple[str, str]]:
    """Yields each tier of memory, and the use of its fullest rank in both plans."""
    old = {tier.tier: tier for tier in before.memory}
    new = {tier.tier: tier for tier in after.memory}
    for name in dict.fromkeys([*old, *new]):
        yield name.upper(), f"fullest {_full(old.get(name))} -> {_full(new.get(name))}"


def _full(tier: Memory | None) -> str:
    if tier is None:
        return "0 B"
    rank = tier.fullest_rank
    used = format_bytes(int(tier.used[rank]))
    if tier.headroom_share is None:
        return f"{used} (r{rank})"
    return f"{used} (r{rank}, {format_percent(1 - tier.headroom_share)})"


def _ranks(comparison: Comparison, style: Style) -> Iterator[str]:
    """The worst ranks of both plans, as estimated and as measured."""
    if not comparison.steps[0].changes:
        return
    estimated = [None if it.costs is None else it.costs.total for it in comparison.analyses[:2]]
    measured = [None if it is None else it.rank_milliseconds for it in comparison.measured[:2]]
    for mark, (before, after) in (("est.", estimated), ("meas.", measured)):
        if before is not None and after is not None:
            yield ""
            yield f"worst ranks, {mark}"
            yield from _worst_ranks(before, after, style)


def _worst_ranks(before: Floats, after: Floats, style: Style) -> Iterator[str]:
    worst = [rank for side in (before, after) for rank in by_load(side)[:3]]
    rows = []
    for rank in dict.fromkeys(map(int, worst)):
        old, new = (float(side[rank]) if rank < len(side) else None for side in (before, after))
        change = format_change(old, new) if old is not None and new is not None else ""
        shown = ["-" if value is None else format_milliseconds(value) for value in (old, new)]
        rows.append([f"r{rank}", *shown, change])
    columns = [Column("rank"), *(Column(name, right=True) for name in ("before", "after", ""))]
    yield from table_lines(columns, rows, style)


def _many(comparison: Comparison, style: Style) -> Iterator[str]:
    """Three or more plans: one line each, compared with the first."""
    first = comparison.analyses[0]
    facts = f"{format_count(len(first.tables), 'table')}, {cluster(first)}"
    yield style.paint(style.name(f"{len(comparison.labels)} plans, {facts}", style.width), "bold")
    yield ""
    if comparison.yardstick:
        yield style.paint(comparison.yardstick, "yellow")
    for step in comparison.steps:
        yield from _remarks(step, style, f"{style.name(step.label, 30)}: ")
    titles = ("rating est.", "change", "step pred.", "step meas.", "imbalance", "fullest rank")
    names = ["plan", *titles, "to move", "est."]
    rows = [_row(comparison, index) for index in range(len(comparison.labels))]
    kept = [i for i in range(len(names)) if i == 0 or any(row[i] for row in rows)]
    columns = [Column(names[i], right=i > 0) for i in kept]
    yield from table_lines(columns, [[row[i] for i in kept] for row in rows], style)


def _row(comparison: Comparison, index: int) -> list[str]:
    analysis = comparison.analyses[index]
    first, own = comparison.analyses[0].rating, analysis.rating
    costs, memory, measured = analysis.costs, analysis.memory, comparison.measured[index]
    row = [
        comparison.labels[index],
        format_milliseconds(own) if own is not None else "",
        format_change(first, own) if index and first is not None and own is not None else "",
        format_milliseconds(analysis.step.ms) if analysis.step is not None else "",
        format_seconds(measured.median) if measured is not None else "",
        format_percent(costs.imbalance) if costs is not None else "",
        fullest_text(memory[0]) if memory else "",
    ]
    if not index:
        return [*row, "", ""]
    step = comparison.steps[index - 1]
    seconds = step.movement.seconds
    move_time = format_seconds(seconds) if seconds is not None else ""
    return [*row, format_bytes(step.movement.bytes), move_time]


def fullest_text(tier: Memory) -> str:
    """Returns the use of the fullest rank, such as `74.6 % HBM`."""
    if tier.headroom_share is None:
        return format_bytes(int(tier.used[tier.fullest_rank]))
    return f"{format_percent(1 - tier.headroom_share)} {tier.tier.upper()}"


def compare_json(comparison: Comparison, *, labels: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the differences as JSON types, in bytes, milliseconds (`rating`) and seconds.

    Args:
        comparison: The plans.
        labels: Names of the plans instead of those for people, such as whole paths.

    Keys: `same`; `yardstick`, a remark if the plans were made with different costs; `plans`, each
    with `label`, `rating`, `step` (predicted; null with TorchRec's costs), `imbalance`,
    `worst_rank`, `fits` and `measured` (null, or `median` and `spread` in seconds); `steps` from
    the first plan to each other one, with `label`, `counts` by kind, `changes` (`table`, `kind`,
    `bytes`, and null or `sharding_type`, `kernel`, `ranks` under `before` and `after`),
    `move_bytes`, `move_seconds`, `received`, `sent` and `created` by rank, `assumed` (whether sizes
    of elements are assumed), and lists of strings: `differences` (fields of model and cluster),
    `settings` (fields of the search) and `tuned` (tables with the same placement and other
    settings).
    """
    names = comparison.labels if labels is None else labels
    pairs = zip(names, comparison.analyses, comparison.measured, strict=True)
    return {
        "same": comparison.same,
        "yardstick": comparison.yardstick,
        "plans": [_plan_json(*pair) for pair in pairs],
        "steps": [
            {"label": name, **_step_json(step)}
            for name, step in zip(names[1:], comparison.steps, strict=True)
        ],
    }


def _plan_json(label: str, analysis: Analysis, measured: Measured | None) -> dict[str, Any]:
    costs = analysis.costs
    return {
        "label": label,
        "rating": analysis.rating,
        "step": None if analysis.step is None else analysis.step.describe(),
        "imbalance": costs.imbalance if costs is not None else None,
        "worst_rank": costs.worst_rank if costs is not None else None,
        "fits": analysis.fits,
        "measured": None
        if measured is None
        else {"median": measured.median, "spread": measured.spread},
    }


def _step_json(step: PlanStep) -> dict[str, Any]:
    return {
        "counts": dict(step.counts),
        "changes": [
            {
                **change._asdict(),
                "before": change.before and change.before._asdict(),
                "after": change.after and change.after._asdict(),
            }
            for change in step.changes
        ],
        "move_bytes": step.movement.bytes,
        "move_seconds": step.movement.seconds,
        "received": step.movement.rank_received.tolist(),
        "sent": step.movement.rank_sent.tolist(),
        "created": step.movement.rank_created.tolist(),
        "assumed": step.movement.assumed,
        "differences": list(step.differences.fields),
        "settings": list(step.settings.fields),
        "tuned": list(step.tuned),
    }
