"""What `fastplan inspect` prints: a page of text, or the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, Costs, Memory, TableRow, analyse
from fastplan.report.names import table_name
from fastplan.report.spread import by_load
from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style
from fastplan.report.units import of_bytes, of_count, of_milliseconds, of_share

_FEW_RANKS = 8
_FEW_TABLES = 10
_LABEL = 9


def inspect_text(
    plan: Plan, *, ranks: str = "worst", tables: bool = False, style: Style | None = None
) -> str:
    """The plan on a page.

    Args:
        ranks: "worst" shows the most loaded ranks, "all" every rank.
        tables: lists every table instead of those that pin the worst rank.
        style: `Style.of(stream)` of the stream it is for.
    """
    if ranks not in ("worst", "all"):
        raise ValueError(f"`ranks` must be worst or all, not {ranks!r}")
    return page_of(analyse(plan), ranks=ranks, tables=tables, style=style or Style())


def page_of(analysis: Analysis, *, ranks: str, tables: bool, style: Style) -> str:
    """The same of a plan that has been analysed."""
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
    """Such as `26 tables, 122.0 GiB of weights, 16 ranks (2 hosts x 8), a100`."""
    weights = f"{of_bytes(analysis.bytes)} of weights"
    found = [of_count(len(analysis.tables), "table"), weights, cluster(analysis)]
    if "sku" in analysis.plan.notes:
        found.append(analysis.plan.notes["sku"])
    return ", ".join(found)


def cluster(analysis: Analysis) -> str:
    """Such as `16 ranks (2 hosts x 8)`."""
    text = of_count(analysis.ranks, "rank")
    if analysis.hosts is None:
        return text
    return f"{text} ({of_count(analysis.hosts, 'host')} x {analysis.ranks_per_host})"


def _verdict(analysis: Analysis, style: Style) -> Iterator[str]:
    if analysis.costs is not None:
        yield from _lines("rating", rating_text(analysis.costs), style, "bold")
        yield from _lines("balance", balance_text(analysis.costs), style)
    elif analysis.rating is not None:
        yield from _lines("rating", f"{of_milliseconds(analysis.rating)} est.", style, "bold")
    if analysis.lower_bound is not None and analysis.gap is not None:
        bound = of_milliseconds(analysis.lower_bound)
        text = f"at most {of_share(analysis.gap)}; no plan is below {bound}"
        yield from _lines("gap", text, style)
    for tier in analysis.memory:
        full = tier.headroom is not None and tier.headroom < 0
        yield from _lines(tier.tier.upper(), memory_text(tier), style, *(["red"] if full else []))
    for assumption in analysis.assumptions:
        if analysis.costs is None or "assumed" in assumption:
            yield from _lines("note", assumption, style, "dim")


def _lines(label: str, text: str, style: Style, *colours: str) -> list[str]:
    return style.labelled(label, _LABEL, text, *colours)


def rating_text(costs: Costs) -> str:
    """Rating, the rank it comes from, and what that rank does."""
    text = f"{of_milliseconds(costs.rating)} est."
    worst = costs.worst_rank
    comms = float(costs.comms[worst] / costs.total[worst]) if costs.total[worst] > 0 else 0.0
    where = "every rank" if costs.balanced else f"rank {worst}, the worst"
    return f"{text} on {where}: {of_share(1 - comms)} compute, {of_share(comms)} comms"


def balance_text(costs: Costs) -> str:
    if costs.balanced:
        return "all ranks cost the same"
    return f"worst rank {of_share(costs.imbalance)} above the mean of {of_milliseconds(costs.mean)}"


def memory_text(tier: Memory) -> str:
    """How full the fullest rank is."""
    rank = tier.fullest_rank
    used = of_bytes(int(tier.used[rank]))
    if tier.capacity is None or tier.headroom is None or tier.headroom_share is None:
        return f"{used} of weights on rank {rank}, the fullest"
    of = f"{used} of {of_bytes(int(tier.capacity[rank]))} on rank {rank}, the fullest"
    if tier.headroom < 0:
        return f"{of}: {of_bytes(-tier.headroom)} too much"
    return f"{of}: {of_bytes(tier.headroom)} ({of_share(tier.headroom_share)}) free"


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
        figure = of_milliseconds(float(compute[rank] + comms[rank]))
        yield f"  {'r' + str(rank):<{wide}} {figure:>10} {bar}"
    if len(shown) < analysis.ranks:
        least = int(order[-1])
        figures = f"mean {of_milliseconds(costs.mean)}, "
        figures += f"least {of_milliseconds(float(costs.total[least]))} on r{least}"
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
        title = f"tables that pin rank {worst}, those most above their mean over ranks first"
        yield style.name(title, style.width)
    columns = [*_TABLE_COLUMNS[:4], Column("there", right=True), Column("of it", right=True)]
    rows = []
    for index in shown:
        table = analysis.tables[index]
        there = table.on_worst or 0.0
        cells = [*_cells(table, analysis.ranks)[:4], of_milliseconds(there)]
        rows.append([*cells, of_share(there / total)])
    yield from table_lines(columns, rows, style)
    rest = analysis.pinning[_FEW_TABLES:]
    if rest:
        other = sum(analysis.tables[i].on_worst or 0.0 for i in rest)
        text = f"  and {of_count(len(rest), 'more table')}: {of_share(other / total)}"
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
        "?" if table.bytes is None else of_bytes(table.bytes),
        "?" if table.shape is None else f"{table.shape[0]:,} x {table.shape[1]}",
        "" if table.cost_share is None else of_share(table.cost_share),
    ]


def _all_tables(analysis: Analysis, style: Style, most: int | None = None) -> Iterator[str]:
    """Tables by cost share where it is known, else by size."""
    order = sorted(
        analysis.tables, key=lambda table: (-(table.cost_share or 0.0), -(table.bytes or 0))
    )
    columns = _TABLE_COLUMNS if analysis.costs is not None else _TABLE_COLUMNS[:5]
    rows = [_cells(table, analysis.ranks)[: len(columns)] for table in order[:most]]
    yield ""
    yield "tables" if len(rows) == len(order) else f"largest of {len(order):,} tables"
    yield from table_lines(columns, rows, style)


def inspect_json(plan: Plan) -> dict[str, Any]:
    """The same figures for scripts. Milliseconds and bytes; null is what is not known.

    Keys: `name`, `fingerprint`, `notes`, `ranks`, `ranks_per_host`; `rating`, `lower_bound`, `gap`,
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
        "lower_bound": analysis.lower_bound,
        "gap": analysis.gap,
        "imbalance": costs.imbalance if costs is not None else None,
        "worst_rank": costs.worst_rank if costs is not None else None,
        "fits": analysis.fits,
        "costs": costs_json(costs),
        "memory": {tier.tier: _memory_json(tier) for tier in analysis.memory},
        "tables": [_table_json(table) for table in analysis.tables],
        "assumptions": list(analysis.assumptions),
    }


def costs_json(costs: Costs | None) -> dict[str, list[float]] | None:
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
