"""Why a table has its option, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.report.explain import TableWhy
from fastplan.report.options import is_same
from fastplan.report.outcomes import Cut, Outcome
from fastplan.report.terminal import Column, Style, table_lines, table_name
from fastplan.report.units import (
    format_bytes,
    format_change,
    format_milliseconds,
    format_ranks,
)

_LABEL = 10
_CUTS = {"lookup": "lookup cost", "exchange": "exchange cost", "cost": "cost"}
_TITLES = {
    "fwd_compute": "lookup",
    "bwd_compute": "backward",
    "fwd_comms": "fwd comms",
    "bwd_comms": "bwd comms",
    "prefetch": "prefetch",
}
ALONE = "only this table changed and placed as well as possible, all others as they are"


def table_text(why: TableWhy, style: Style | None = None) -> str:
    """Returns the explanation of a table as text.

    Args:
        why: The explanation.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    table, planned = why.table, why.planned
    name = table_name(table.path, table.name)
    size = f"{table.rows:,} x {table.dim}, {format_bytes(table.bytes)}"
    lines = [style.paint(style.name(name, style.width), "bold"), style.name(size, style.width)]
    where = format_ranks(sorted({*why.planned_ranks}), why.ranks)
    lines += style.labelled("has", _LABEL, f"{named(planned)} on {where}", "bold")
    lines += style.labelled("limits", _LABEL, limits_text(why))
    if why.elsewhere is not None:
        lines += style.labelled("elsewhere", _LABEL, _elsewhere(why))
    lines += ["", *style.labelled("", 0, f"options: {why.measure} with {ALONE}")]
    lines += _options(why, style)
    lines += ["", "cost of the largest shard, est. ms", *_costs(why, style)]
    lines += ["", "what would have to change for another one to win"]
    for outcome in why.outcomes[1:]:
        lines += _reason(why, outcome, style)
    lines += _not_offered(why, style)
    if planned.replanned is not None:
        lines += ["", "all tables planned again by TorchRec's search, with only this option here"]
        lines += _replans(why, style)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def named(outcome: Outcome) -> str:
    """Returns an option's name."""
    return f"{outcome.pair.sharding_type} {outcome.pair.kernel}"


def limits_text(why: TableWhy) -> str:
    """Returns whether the plan would be better without the cost of the table."""
    value = format_milliseconds(why.value)
    if not why.limits:
        return f"nothing: without its cost, the {why.measure} would still be {value}"
    without = format_milliseconds(why.without)
    change = format_change(why.value, why.without)
    return f"the {why.measure} of {value}: without its cost it would be {without} ({change})"


def _elsewhere(why: TableWhy) -> str:
    changed = why.elsewhere
    assert changed is not None
    where = format_ranks(sorted({*changed.place.ranks.tolist()}), why.ranks)
    return f"on {where} the {why.measure} would be {changed_text(why, changed.value)}"


def changed_text(why: TableWhy, value: float) -> str:
    """Returns a rating or step, and how far it is from the plan's."""
    return f"{format_milliseconds(value)} ({_change(why, value)})"


def _options(why: TableWhy, style: Style) -> Iterator[str]:
    shown = [outcome for outcome in why.outcomes if outcome.parts]
    tiers = [tier for tier in ("hbm", "ddr", "ssd") if any(own.memory[tier] for own in shown)]
    columns = [Column("option"), Column("shards", right=True), Column("ranks")]
    columns += [Column(f"{tier.upper()} each", right=True) for tier in tiers]
    columns += [Column(why.measure, right=True), Column("change", right=True)]
    rows = []
    for own in shown:
        row = [f"{_MARKS[own.status]} {named(own)}", f"{own.shards:,}"]
        row += ["-" if own.ranks is None else shown_ranks(why, own.ranks)]
        row += [format_bytes(own.memory[tier]) if own.memory[tier] else "-" for tier in tiers]
        value = why.value_of(own)
        if value is None:
            row += ["no plan" if own.complaint else "too large", ""]
        else:
            row += [format_milliseconds(value), _verdict(why, own, value)]
        rows.append(row)
    yield from table_lines(columns, rows, style)
    used = dict.fromkeys(own.status for own in shown)
    yield style.paint("  " + ", ".join(f"{_MARKS[own]} {_WORDS[own]}" for own in used), "dim")


_MARKS = {
    "planned": "*",
    "better": "+",
    "tie": "=",
    "slower": "-",
    "does not fit": "!",
    "not allowed": "x",
}
_WORDS = {**{status: status for status in _MARKS}, "planned": "in the plan"}


def _verdict(why: TableWhy, outcome: Outcome, value: float) -> str:
    if outcome.status == "planned":
        return ""
    return "tie" if is_same(value, why.value) else _change(why, value)


def _change(why: TableWhy, value: float) -> str:
    """Returns a relative change; one by a factor of ten or more as the factor."""
    if why.value > 0 and value >= 10 * why.value:
        return f"x {value / why.value:,.0f}"
    return format_change(why.value, value)


def _costs(why: TableWhy, style: Style) -> Iterator[str]:
    shown = [outcome for outcome in why.outcomes if outcome.parts]
    parts = [part for part in _TITLES if any(own.parts[part] > 0 for own in shown)]
    columns = [Column("option"), *(Column(_TITLES[part], right=True) for part in parts)]
    rows = [
        [f"{_MARKS[own.status]} {named(own)}"]
        + [_ms(value) for value in (*(own.parts[part] for part in parts), own.shard_ms)]
        for own in shown
    ]
    yield from table_lines([*columns, Column("total", right=True)], rows, style)


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 0.01 else format_milliseconds(value).removesuffix(" ms")


def _reason(why: TableWhy, outcome: Outcome, style: Style) -> list[str]:
    """Returns an option beside what would have to change. The table above has its figures."""
    sentences = advice(why, outcome)
    if outcome.status == "not allowed" and not outcome.complaint:
        if not _would_help(why, outcome):
            return []
        sentences = sentences[1:]
    room = 4 + max(len(named(own)) for own in why.outcomes) + 1
    lines = []
    for number, sentence in enumerate(sentences):
        title = f"  {_MARKS[outcome.status]} {named(outcome)}" if not number else ""
        lines += style.labelled(style.name(title, room), room, sentence)
    return lines


def advice(why: TableWhy, outcome: Outcome) -> list[str]:
    """Returns what would have to change for an option to win: reasons without the rating."""
    sentences = reasons(why, outcome)
    if outcome.status in ("slower", "tie") and len(sentences) > 1:
        return sentences[1:]
    if outcome.status == "tie":
        return [f"tie; without this table, the {why.measure} is the same"]
    return sentences


def _would_help(why: TableWhy, outcome: Outcome) -> bool:
    """Whether the plan would be better with an option, if memory were enough."""
    value = why.value_of(outcome)
    if value is None:
        return outcome.roomy is not None and why.wins(outcome.roomy.value)
    return why.wins(value)


def reasons(why: TableWhy, outcome: Outcome) -> list[str]:
    """Returns sentences about why an option is not in the plan, and what would change that."""
    status = outcome.status
    if status == "planned":
        return ["in the plan"]
    if status == "not allowed":
        return _not_allowed(why, outcome)
    if status == "does not fit":
        return _does_not_fit(why, outcome)
    value = why.value_of(outcome)
    assert value is not None
    where = "" if outcome.ranks is None else f", on {shown_ranks(why, outcome.ranks)}"
    best = "" if outcome.exact else "; the best placement found"
    if status == "better":
        found = f"better: the {why.measure} would be {changed_text(why, value)}{where}{best}"
        return [f"{found}; the search did not try it with the others as they are"]
    if status == "tie":
        found = f"tie: the same {why.measure}{where}{best}"
    else:
        rise = format_milliseconds(outcome.rise or 0.0)
        found = (
            f"slower by {rise}: the {why.measure} would be {changed_text(why, value)}{where}{best}"
        )
    return [found, *(_cut(outcome.cut, tied=status == "tie"))]


def _cut(cut: Cut | None, *, tied: bool) -> list[str]:
    if cut is None:
        if tied:
            return []
        return ["would not win, whatever its own cost"]
    gets = "tie" if cut.ties else "win"
    if cut.share < 5e-4:
        return [f"would {gets} if its {_CUTS[cut.part]} fell at all"]
    if cut.share > 0.9995:
        return [f"would {gets} only at no {_CUTS[cut.part]}"]
    share = math.ceil(1000 * cut.share) / 10
    return [f"would {gets} if its {_CUTS[cut.part]} fell by {share:.1f} %"]


def _not_allowed(why: TableWhy, outcome: Outcome) -> list[str]:
    if outcome.complaint:
        return [f"not allowed: {outcome.complaint}"]
    found = [f"not allowed: {_constraint(why, outcome)}"]
    value = why.value_of(outcome)
    if value is not None:
        outlook = "the same" if is_same(value, why.value) else changed_text(why, value)
        found.append(f"if it were allowed, the {why.measure} would be {outlook}")
    elif outcome.roomy is not None:
        found += ["if it were allowed, it would not fit", *_memory(why, outcome)]
    return found


def _constraint(why: TableWhy, outcome: Outcome) -> str:
    """Returns which rule leaves an option out, as far as a request tells."""
    if why.table.path in outcome.modules:
        return "other tables of its module may have it, so the table's own constraints leave it out"
    others = ", ".join(outcome.modules)
    return f"only tables of {others} may have it: the sharder of its module or the table's " + (
        "constraints leave it out"
    )


def _does_not_fit(why: TableWhy, outcome: Outcome) -> list[str]:
    lack = outcome.lack
    if lack is None:
        return ["does not fit: no ranks of the cluster can hold its shards"]
    tier = lack.tier.upper()
    first = "the rank that lacks most" if outcome.pair[0] in UNIFORM_TYPES else "where least lacks"
    found = (
        f"does not fit: rank {lack.rank}, {first}, lacks {format_bytes(lack.bytes)} of {tier} "
        f"({format_bytes(lack.capacity)} in all)"
    )
    return [found, *_memory(why, outcome)]


def _memory(why: TableWhy, outcome: Outcome) -> list[str]:
    roomy = outcome.roomy
    if roomy is None:
        return []
    tier = roomy.tier.upper()
    more = f"{format_bytes(roomy.more)} more {tier} (at least {format_bytes(roomy.capacity)})"
    if why.wins(roomy.value):
        return [f"would win with {more} on each rank: {changed_text(why, roomy.value)}"]
    if is_same(roomy.value, why.value):
        return [f"would tie with {more} on each rank"]
    return [f"would not win with more memory either: {changed_text(why, roomy.value)}"]


def shown_ranks(why: TableWhy, ranks: tuple[int, ...]) -> str:
    """Returns ranks as text."""
    return format_ranks(sorted({*ranks}), why.ranks)


def _not_offered(why: TableWhy, style: Style) -> list[str]:
    """Returns lines about the constraints that leave options out."""
    groups: dict[str, list[str]] = {}
    for outcome in why.outcomes:
        if outcome.status == "not allowed" and not outcome.complaint:
            groups.setdefault(_constraint(why, outcome), []).append(named(outcome))
    lines = []
    for sentence, names in groups.items():
        lines += ["", *style.labelled("", 0, f"not allowed: {sentence}")]
        lines += style.labelled("", 2, ", ".join(names))
    return lines


def _replans(why: TableWhy, style: Style) -> Iterator[str]:
    rows = []
    for own in why.outcomes:
        if own.replanned is None:
            continue
        if math.isinf(own.replanned):
            rows.append([named(own), "nothing fits", ""])
        else:
            rows.append(
                [named(own), format_milliseconds(own.replanned), _change(why, own.replanned)]
            )
    columns = [Column("option"), Column(why.measure, right=True), Column("change", right=True)]
    yield from table_lines(columns, rows, style)


def table_json(why: TableWhy) -> dict[str, Any]:
    """Returns the explanation of a table as JSON types, in milliseconds and bytes.

    Keys: `table`, `rows`, `dim`, `bytes`; `measure` (rating or step), `value` (the plan's),
    `without` (if the table cost nothing), `limits`; `elsewhere` (value and ranks of the same option
    on better ranks, or null); `options`, the planned one first: see `Outcome`, and `why` as
    sentences. All figures are for a plan with only this table changed, except `replanned`.
    """
    elsewhere = why.elsewhere
    return {
        "table": table_name(why.table.path, why.table.name),
        "rows": why.table.rows,
        "dim": why.table.dim,
        "bytes": why.table.bytes,
        "ranks": list(why.planned_ranks),
        "measure": why.measure,
        "value": why.value,
        "without": why.without,
        "limits": why.limits,
        "changed": "only this table",
        "elsewhere": None
        if elsewhere is None
        else {"value": elsewhere.value, "ranks": elsewhere.place.ranks.tolist()},
        "options": [_outcome_json(why, outcome) for outcome in why.outcomes],
    }


def _outcome_json(why: TableWhy, own: Outcome) -> dict[str, Any]:
    replanned = own.replanned
    return {
        "sharding_type": own.pair.sharding_type,
        "compute_kernel": own.pair.kernel,
        "status": own.status,
        "why": reasons(why, own),
        "shards": own.shards,
        "shard": {"parts": own.parts, "total": own.shard_ms, "memory": own.memory},
        "ranks": None if own.ranks is None else list(own.ranks),
        "rating": own.rating,
        "step": own.step,
        "rise": own.rise,
        "exact": own.exact,
        "lack": None if own.lack is None else own.lack._asdict(),
        "more_memory": None if own.roomy is None else own.roomy._asdict(),
        "cheaper": None if own.cut is None else own.cut._asdict(),
        "modules": list(own.modules),
        "replanned": None if replanned is None or math.isinf(replanned) else replanned,
        "replanned_fits": None if replanned is None else not math.isinf(replanned),
    }
