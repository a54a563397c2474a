"""What `fastplan inspect` and `fastplan plan` print about a plan, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastplan.model.plan import Plan
from fastplan.model.step import PHASES, Step
from fastplan.report.analysis import Analysis, Costs, Memory, TableRow, analyse
from fastplan.report.estimates import by_load
from fastplan.report.terminal import Column, Style, escape_name, table_lines, table_name
from fastplan.report.units import (
    format_bytes,
    format_count,
    format_milliseconds,
    format_percent,
    format_seconds,
    rank_words,
)

if TYPE_CHECKING:
    from fastplan.planning.moves import Move
    from fastplan.planning.replan import ReplanReport

_FEW_RANKS = 8
_FEW_TABLES = 10
_LABEL = 9


def inspect_text(
    plan: Plan, *, ranks: str = "worst", tables: bool = False, style: Style | None = None
) -> str:
    """Returns a plan as text.

    Args:
        plan: The plan.
        ranks: "worst" for the most loaded ranks, "all" for all ranks.
        tables: Whether to list all tables instead of those that make the worst rank the worst.
        style: `Style.of(stream)` of the stream to print to.

    Raises:
        ValueError: if `ranks` is neither "worst" nor "all".
    """
    if ranks not in ("worst", "all"):
        raise ValueError(f"`ranks` must be worst or all, not {ranks!r}")
    return analysis_text(analyse(plan), ranks=ranks, tables=tables, style=style or Style())


def analysis_text(analysis: Analysis, *, ranks: str, tables: bool, style: Style) -> str:
    """Returns the same text for a plan that is already analysed."""
    lines = [*_head(analysis, style), "", *_verdict(analysis, style)]
    lines += _loads(analysis, style, every=ranks == "all")
    lines += _all_tables(analysis, style) if tables else _pinning(analysis, style)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(analysis: Analysis, style: Style) -> list[str]:
    plan = analysis.plan
    made = [plan.notes.get("engine", "")]
    if "cache" in plan.notes:
        made.append(f"cache {plan.notes['cache']}")
    if plan.fingerprint:
        made.append(f"key {plan.fingerprint[:12]}")
    lines = [style.paint(style.name(plan.name, style.width), "bold")]
    lines.append(style.name(facts(analysis), style.width))
    if any(made):
        lines.append(style.name(", ".join(filter(None, made)), style.width))
    return lines


def facts(analysis: Analysis) -> str:
    """Returns a line such as `26 tables, 122.0 GiB of weights, 16 ranks (2 hosts x 8), a100`."""
    weights = f"{format_bytes(analysis.bytes)} of weights"
    if not analysis.bytes and any(table.bytes is None for table in analysis.tables):
        weights = "weights of unknown size"
    found = [format_count(len(analysis.tables), "table"), weights, cluster(analysis)]
    if "sku" in analysis.plan.notes:
        found.append(analysis.plan.notes["sku"])
    return ", ".join(found)


def cluster(analysis: Analysis) -> str:
    """Returns a cluster such as `16 ranks (2 hosts x 8)`."""
    text = format_count(analysis.ranks, "rank")
    if analysis.hosts is None:
        return text
    return f"{text} ({format_count(analysis.hosts, 'host')} x {analysis.ranks_per_host})"


def _verdict(analysis: Analysis, style: Style) -> Iterator[str]:
    if analysis.step is not None:
        yield from _lines(
            "step", f"{format_milliseconds(analysis.step.ms)} predicted", style, "bold"
        )
        for line in step_lines(analysis.step):
            yield from _lines("", line, style)
        if analysis.step.statistics:
            yield from _lines("ids", _statistics_text(analysis.step), style)
    if analysis.costs is not None:
        yield from _lines("rating", _rating_text(analysis.costs), style, "bold")
        if analysis.torchrec_rating is not None:
            text = f"{format_milliseconds(analysis.torchrec_rating)} by TorchRec's costs"
            yield from _lines("", text, style)
        yield from _lines("balance", _balance_text(analysis.costs), style)
    elif analysis.rating is not None:
        yield from _lines("rating", f"{format_milliseconds(analysis.rating)} est.", style, "bold")
    if analysis.lower_bound is not None and analysis.gap is not None:
        bound = format_milliseconds(analysis.lower_bound)
        text = f"at most {format_percent(analysis.gap)}; no plan is below {bound}"
        yield from _lines("gap", text, style)
    for tier in analysis.memory:
        full = tier.headroom is not None and tier.headroom < 0
        yield from _lines(tier.tier.upper(), memory_text(tier), style, *(["red"] if full else []))
    for assumption in analysis.assumptions:
        if analysis.costs is None or "assumed" in assumption:
            yield from _lines("note", assumption, style, "dim")


def _statistics_text(step: Step) -> str:
    tables = format_count(step.tables, "table")
    text = f"as the statistics of {step.statistics} of {tables} have them"
    others = step.tables - step.statistics
    return f"{text}; those of the other {others} are assumed to be uniform" if others else text


def step_lines(step: Step) -> Iterator[str]:
    """Yields a line for each phase of a step, exchanges of one kind together."""
    for name in PHASES:
        phases = [phase for phase in step.phases if phase.name == name]
        ms = sum(phase.ms for phase in phases)
        if not phases or ms == 0:
            continue
        text = f"{format_milliseconds(ms):>10}  {name.replace('_', ' ')}"
        if len(phases) == 1 and phases[0].mean_ms < ms:
            text += f", on rank {phases[0].rank}; mean {format_milliseconds(phases[0].mean_ms)}"
        elif len(phases) > 1:
            text += f" of {format_count(len(phases), 'group')}"
        yield text + (" (hidden by the pipeline)" if phases[0].hidden else "")


def _lines(label: str, text: str, style: Style, *colours: str) -> list[str]:
    return style.labelled(label, _LABEL, text, *colours)


def _rating_text(costs: Costs) -> str:
    """Returns the rating, its rank, and the shares of compute and communication there."""
    text = f"{format_milliseconds(costs.rating)} est."
    worst = costs.worst_rank
    comms = float(costs.comms[worst] / costs.total[worst]) if costs.total[worst] > 0 else 0.0
    where = rank_words(costs.worst_ranks, len(costs.total))
    if not costs.balanced:
        tie = len(costs.worst_ranks) > 1
        where += ", which tie for the worst" if tie else ", the worst"
    return f"{text} on {where}: {format_percent(1 - comms)} compute, {format_percent(comms)} comms"


def _balance_text(costs: Costs) -> str:
    """Returns how far the worst rank is above the mean."""
    if costs.balanced:
        return "all ranks cost the same"
    above, mean = format_percent(costs.imbalance), format_milliseconds(costs.mean)
    return f"worst rank {above} above the mean of {mean}"


def memory_text(tier: Memory) -> str:
    """Returns the use of the fullest rank."""
    rank = tier.fullest_rank
    used = format_bytes(int(tier.used[rank]))
    if tier.capacity is None or tier.headroom is None or tier.headroom_share is None:
        return f"{used} of weights on {fullest_words(tier)}"
    of = f"{used} of {format_bytes(int(tier.capacity[rank]))} on {fullest_words(tier)}"
    if tier.headroom < 0:
        return f"{of}: {format_bytes(-tier.headroom)} over capacity"
    return f"{of}: {format_bytes(tier.headroom)} ({format_percent(tier.headroom_share)}) free"


def fullest_words(tier: Memory) -> str:
    """Returns the fullest rank of a tier, or all ranks that tie: `rank 2, the fullest`."""
    where = rank_words(tier.fullest_ranks, len(tier.used))
    return where if where == "every rank" else f"{where}, the fullest"


def _loads(analysis: Analysis, style: Style, *, every: bool) -> Iterator[str]:
    costs = analysis.costs
    if costs is None:
        return
    glyphs = ("█", "▒") if style.unicode else ("#", "-")
    order = by_load(costs.total)
    shown = list(range(analysis.ranks)) if every else order[:_FEW_RANKS].tolist()
    yield ""
    key = f"{style.paint(glyphs[0], 'blue')} compute  {style.paint(glyphs[1], 'yellow')} comms"
    yield f"{'load by rank':<{_LABEL}}   {key}"
    wide = len(str(analysis.ranks - 1)) + 1
    room = max(10, style.width - wide - 15)
    scale = room / max(float(costs.total.max()), 1e-300)
    compute, comms = costs.compute, costs.comms
    for rank in shown:
        ends = [round(float(value) * scale) for value in (compute[rank], costs.total[rank])]
        bar = style.paint(glyphs[0] * ends[0], "blue")
        bar += style.paint(glyphs[1] * (ends[1] - ends[0]), "yellow")
        figure = format_milliseconds(float(compute[rank] + comms[rank]))
        yield f"  {'r' + str(rank):<{wide}} {figure:>10} {bar}"
    if len(shown) < analysis.ranks:
        least = int(order[-1])
        figures = f"mean {format_milliseconds(costs.mean)}, "
        figures += f"least {format_milliseconds(float(costs.total[least]))} on r{least}"
        text = f"  the {len(shown)} worst of {analysis.ranks:,} ranks; {figures}"
        yield style.paint(style.name(text, style.width), "dim")


def _pinning(analysis: Analysis, style: Style) -> Iterator[str]:
    costs = analysis.costs
    if costs is None or not analysis.pinning:
        yield from _all_tables(analysis, style, most=_FEW_TABLES)
        return
    worst = costs.worst_rank
    total = float(costs.total[worst])
    shown = analysis.pinning[:_FEW_TABLES]
    yield ""
    if costs.balanced:
        yield f"tables that cost most on rank {worst}"
    else:
        role = "the worst" if len(costs.worst_ranks) == 1 else "one of the worst"
        title = f"tables that make rank {worst} {role}, by cost above their mean over ranks"
        yield style.name(title, style.width)
    columns = [*_TABLE_COLUMNS[:4], Column("there", right=True), Column("of it", right=True)]
    rows = []
    for index in shown:
        table = analysis.tables[index]
        there = table.on_worst or 0.0
        cells = [*_cells(table, analysis.ranks)[:4], format_milliseconds(there)]
        rows.append([*cells, format_percent(there / total)])
    yield from table_lines(columns, rows, style)
    rest = analysis.pinning[_FEW_TABLES:]
    if rest:
        other = sum(analysis.tables[i].on_worst or 0.0 for i in rest)
        text = f"  and {format_count(len(rest), 'more table')}: {format_percent(other / total)}"
        yield style.paint(text, "dim")


_TABLE_COLUMNS = [
    Column("table"),
    Column("sharding"),
    Column("ranks"),
    Column("bytes", right=True),
    Column("rows x dim", right=True),
    Column("cost", right=True),
]


def _cells(table: TableRow, ranks: int) -> list[str]:
    return [
        table_name(table.path, table.name),
        f"{table.sharding_type} {table.kernel}",
        table.where(ranks),
        "?" if table.bytes is None else format_bytes(table.bytes),
        "?" if table.shape is None else f"{table.shape[0]:,} x {table.shape[1]}",
        "" if table.cost_share is None else format_percent(table.cost_share),
    ]


def _all_tables(analysis: Analysis, style: Style, most: int | None = None) -> Iterator[str]:
    """Tables by their share of the cost; without costs, by size."""
    order = sorted(
        analysis.tables, key=lambda table: (-(table.cost_share or 0.0), -(table.bytes or 0))
    )
    columns = _TABLE_COLUMNS if analysis.costs is not None else _TABLE_COLUMNS[:5]
    rows = [_cells(table, analysis.ranks)[: len(columns)] for table in order[:most]]
    yield ""
    yield "tables" if len(rows) == len(order) else f"largest of {len(order):,} tables"
    yield from table_lines(columns, rows, style)


def inspect_json(plan: Plan) -> dict[str, Any]:
    """Returns a plan as JSON types, in milliseconds and bytes; None is unknown.

    Keys: `name`, `fingerprint`, `notes`, `ranks`, `ranks_per_host`; `rating`, `torchrec_rating`
    and `step` (with hardware costs: the rating by TorchRec's costs, and the predicted step by
    phase), `lower_bound`, `gap`,
    `imbalance`, `worst_rank`, `fits`; `costs` (lists by rank, under each part and `total`);
    `memory` (by tier: `used` and `capacity` by rank, `fullest_rank`, `headroom`,
    `headroom_share`); `tables` in the plan's order; `assumptions`.
    """
    analysis = analyse(plan)
    costs = analysis.costs
    return {
        "name": plan.name,
        "fingerprint": plan.fingerprint,
        "notes": dict(plan.notes),
        "ranks": analysis.ranks,
        "ranks_per_host": analysis.ranks_per_host,
        "rating": analysis.rating,
        "torchrec_rating": analysis.torchrec_rating,
        "step": None if analysis.step is None else analysis.step.describe(),
        "lower_bound": analysis.lower_bound,
        "gap": analysis.gap,
        "imbalance": costs.imbalance if costs is not None else None,
        "worst_rank": costs.worst_rank if costs is not None else None,
        "fits": analysis.fits,
        "costs": _costs_json(costs),
        "memory": {tier.tier: _memory_json(tier) for tier in analysis.memory},
        "tables": [_table_json(table) for table in analysis.tables],
        "assumptions": list(analysis.assumptions),
    }


def _costs_json(costs: Costs | None) -> dict[str, list[float]] | None:
    """Returns lists by rank, for each part and `total`."""
    if costs is None:
        return None
    by_part = {part: values.tolist() for part, values in costs.parts.items()}
    return {**by_part, "total": costs.total.tolist()}


def _memory_json(tier: Memory) -> dict[str, Any]:
    return {
        "used": tier.used.tolist(),
        "capacity": tier.capacity.tolist() if tier.capacity is not None else None,
        "fullest_rank": tier.fullest_rank,
        "headroom": tier.headroom,
        "headroom_share": tier.headroom_share,
    }


def _table_json(table: TableRow) -> dict[str, Any]:
    shape = None if table.shape is None else list(table.shape)
    return {**table._asdict(), "shape": shape, "ranks": table.ranks.tolist()}


_MOST_LINES = 20


def replan_lines(report: ReplanReport) -> Iterator[str]:
    """Yields a re-plan as lines of text: the difference, the moves and what they gain.

    Args:
        report: The report of a plan that follows a previous one.
    """
    yield f"since the previous plan: {escape_name(str(report.difference))}"
    moves = report.moves
    how = "follows the previous plan" if report.followed else "from scratch"
    yield f"plan: {how}" + (f" ({escape_name(report.reason)})" if report.reason else "")
    yield f"moves: {_format_moves(report)}"
    if report.scratch_rating is not None and report.scratch_moved is not None:
        part = report.scratch_moved / report.held if report.held else 0.0
        yield (
            f"a plan from scratch moves {format_percent(part)} and has a rating of "
            f"{report.scratch_rating:.4g}; this plan has {report.rating:.4g}"
        )
    if len(moves) and moves.pays_back_after is not None:
        yield f"pays back after {format_count(round(moves.pays_back_after), 'step')}"
    for move in moves.moves[:_MOST_LINES]:
        yield f"  > {_format_move(move)}"
    if len(moves) > _MOST_LINES:
        yield f"  and {len(moves) - _MOST_LINES} more"
    for name in moves.removed:
        yield f"  - {escape_name(name)}"


def _format_moves(report: ReplanReport) -> str:
    """Returns the amount and time of the moves, and how much of it no plan can avoid."""
    moves = report.moves
    if not len(moves):
        return "none"
    must = format_bytes(report.least) if report.least else "nothing"
    return (
        f"{format_count(len(moves), 'move')}, {format_bytes(moves.bytes)} = "
        f"{format_percent(report.moved_part)} of all bytes; {must} must move in any plan"
        + ("" if moves.seconds is None else f"; about {format_seconds(moves.seconds)}")
    )


def _format_move(move: Move) -> str:
    source = "storage" if move.source is None else f"rank {move.source}"
    name = escape_name(table_name(move.path, move.table))
    return f"{name}[{move.shard}]: {source} -> rank {move.target}, {format_bytes(move.bytes)}"


def replan_json(report: ReplanReport) -> dict[str, Any]:
    """Returns a re-plan as JSON types."""
    moves = report.moves
    return {
        "followed": report.followed,
        "previous": report.previous,
        "reason": report.reason,
        "difference": str(report.difference),
        "rating": report.rating,
        "moved": report.moved,
        "must_move": report.least,
        "bytes": report.held,
        "scratch_rating": report.scratch_rating,
        "scratch_moved": report.scratch_moved,
        "seconds": moves.seconds,
        "pays_back_after": moves.pays_back_after,
        "frontier": [point._asdict() for point in report.frontier],
        "moves": [move._asdict() for move in moves],
        "removed": list(moves.removed),
    }
