"""What binds a plan, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.report.analysis import Memory
from fastplan.report.binding import Help, ModelWhy
from fastplan.report.explain_text import changed_text, named, shown_ranks, table_json
from fastplan.report.plan_text import facts, memory_text, step_lines
from fastplan.report.terminal import Column, Style, table_lines, table_name
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
)

_LABEL = 10


def model_text(why: ModelWhy, style: Style | None = None) -> str:
    """Returns what binds a plan as text.

    Args:
        why: The explanation.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    analysis = why.analysis
    lines = [style.paint(style.name(analysis.plan.name, style.width), "bold")]
    lines.append(style.name(facts(analysis), style.width))
    lines += style.labelled("binds", _LABEL, binds_text(why), "bold")
    if analysis.step is not None:
        step = format_milliseconds(analysis.step.ms)
        lines += style.labelled("step", _LABEL, f"{step} predicted; each phase waits for one rank")
        for line in step_lines(analysis.step):
            lines += style.labelled("", _LABEL, line)
    lines += style.labelled("rank", _LABEL, rank_text(why))
    for tier in analysis.memory:
        lines += style.labelled("memory", _LABEL, f"{tier.tier.upper()} {memory_text(tier)}")
    lines += style.labelled("bound", _LABEL, bound_text(why))
    lines += ["", *_tables(why, style), "", *_helps(why, style)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def binds_text(why: ModelWhy) -> str:
    """Returns what binds the plan in a sentence."""
    measure = why.tables[0].measure if why.tables else "rating"
    costs = why.analysis.costs
    assert costs is not None
    where = "no rank more than another" if costs.balanced else f"rank {costs.worst_rank}"
    if why.binds == ("rank",):
        if measure == "step":
            return "the slowest rank of each phase"
        return f"{where}: its cost is the {measure}"
    words = {"memory": "memory", "constraint": "constraints of tables"}
    what = " and ".join(words[own] for own in why.binds)
    return f"{what}: see below what would lower the {measure}"


def rank_text(why: ModelWhy) -> str:
    """Returns the slowest rank, and what a perfect balance would save."""
    costs = why.analysis.costs
    assert costs is not None
    total = format_milliseconds(float(costs.total.max()))
    if costs.balanced:
        return f"every rank takes {total}"
    saved = format_percent(1 - costs.mean / float(costs.total.max()))
    return (
        f"rank {costs.worst_rank} is the slowest with {total}, est.; the mean is "
        f"{format_milliseconds(costs.mean)}, so a perfect balance would save {saved}"
    )


def bound_text(why: ModelWhy) -> str:
    """Returns the lower bound on ratings, if it is known."""
    analysis = why.analysis
    if analysis.lower_bound is None or analysis.gap is None:
        return "not known; `fastplan plan --optimize` proves one"
    bound = format_milliseconds(analysis.lower_bound)
    return f"no plan is rated below {bound}: at most {format_percent(analysis.gap)} is left"


def _tables(why: ModelWhy, style: Style) -> Iterator[str]:
    costs = why.analysis.costs
    assert costs is not None
    title = f"tables that cost most on rank {costs.worst_rank}"
    if not costs.balanced:
        title += ", beyond their mean over ranks"
    yield style.name(title, style.width)
    measure = why.tables[0].measure if why.tables else "rating"
    columns = [Column("table"), Column("option"), Column("ranks")]
    columns += [Column("there", right=True), Column(f"{measure} without it", right=True)]
    rows = []
    shown = zip(why.analysis.pinning, why.tables, strict=False)
    for index, table in shown:
        row = why.analysis.tables[index]
        there = format_milliseconds(row.on_worst or 0.0)
        ranks = row.where(why.analysis.ranks)
        without = changed_text(table, table.without) if table.limits else "the same"
        rows.append([table_name(row.path, row.name), named(table.planned), ranks, there, without])
    yield from table_lines(columns, rows, style)
    if why.others:
        yield style.paint(f"  and {format_count(why.others, 'more table')}", "dim")


def _helps(why: ModelWhy, style: Style) -> Iterator[str]:
    measure = why.tables[0].measure if why.tables else "rating"
    if not why.helps:
        count = format_count(len(why.tables), "table")
        text = f"no change of one of these {count} would lower the {measure}"
        yield from style.labelled("", 0, text)
        return
    yield f"what would lower the {measure}, if one of them changed and all others stayed"
    rows = [
        [
            table_name(own.table.table.path, own.table.table.name),
            help_text(own),
            format_milliseconds(own.value),
            format_change(own.table.value, own.value),
        ]
        for own in why.helps
    ]
    columns = [Column("table"), Column("with"), Column(measure, right=True)]
    yield from table_lines([*columns, Column("change", right=True)], rows, style)


def help_text(help: Help) -> str:
    """Returns a change that makes a plan better."""
    option = named(help.outcome)
    where = "" if help.ranks is None else f" on {shown_ranks(help.table, help.ranks)}"
    if help.by == "place":
        return f"the same option{where}"
    if help.by == "constraint":
        return f"{option}{where}, if allowed"
    roomy = help.outcome.roomy
    if help.by == "memory" and roomy is not None:
        tier = roomy.tier.upper()
        return f"{option}, with {format_bytes(roomy.capacity)} of {tier} on each rank"
    return f"{option}{where}"


def model_json(why: ModelWhy) -> dict[str, Any]:
    """Returns what binds a plan as JSON types, in milliseconds and bytes.

    Keys: `binds`, `measure`, `rating`, `step`, `worst_rank`, `mean`, `lower_bound`, `gap`; `memory`
    by tier; `tables` on the slowest rank, as `table_json` has them; `helps`.
    """
    analysis, costs = why.analysis, why.analysis.costs
    assert costs is not None
    return {
        "binds": list(why.binds),
        "measure": why.tables[0].measure if why.tables else "rating",
        "rating": analysis.rating,
        "step": None if analysis.step is None else analysis.step.describe(),
        "worst_rank": costs.worst_rank,
        "mean": costs.mean,
        "lower_bound": analysis.lower_bound,
        "gap": analysis.gap,
        "memory": {tier.tier: _memory_json(tier) for tier in analysis.memory},
        "tables": [table_json(table) for table in why.tables],
        "other_tables": why.others,
        "helps": [
            {
                "table": table_name(own.table.table.path, own.table.table.name),
                "sharding_type": own.outcome.pair.sharding_type,
                "compute_kernel": own.outcome.pair.kernel,
                "by": own.by,
                "ranks": None if own.ranks is None else list(own.ranks),
                "value": own.value,
            }
            for own in why.helps
        ],
    }


def _memory_json(tier: Memory) -> dict[str, Any]:
    return {
        "fullest_rank": tier.fullest_rank,
        "headroom": tier.headroom,
        "headroom_share": tier.headroom_share,
    }
