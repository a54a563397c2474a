"""A plan's headline: is it balanced, what limits it, does it fit."""

from __future__ import annotations

from typing import NamedTuple

from fastplan.report.analysis import Analysis, Costs, Memory
from fastplan.report.estimates import RATED
from fastplan.report.units import of_bytes, of_milliseconds, of_share

# Below these a plan is called even, and its memory tight.
_EVEN = 0.05
_TIGHT = 0.05


class Tile(NamedTuple):
    """One headline figure. `tone` is good, warn or bad, and colours the verdict."""

    title: str
    value: str
    note: str
    verdict: str = ""
    tone: str = ""
    split: tuple[tuple[str, float], ...] = ()  # parts of a whole, drawn as a bar


def sentence(analysis: Analysis) -> str:
    """The plan in a sentence or two."""
    parts = []
    costs = analysis.costs
    if costs is not None:
        comms = _comms_share(costs)
        what = "communication" if comms >= 0.5 else "compute"
        share = of_share(max(comms, 1 - comms))
        if costs.balanced:
            parts.append(f"Every rank costs the same, and {share} of it is {what}.")
        else:
            above = of_share(costs.imbalance)
            parts.append(
                f"Rank {costs.worst_rank} sets the pace, {above} above the mean; "
                f"{share} of its time is {what}."
            )
    tight = _tightest(analysis)
    if tight is not None and tight.headroom is not None and tight.headroom_share is not None:
        tier = tight.tier.upper()
        if tight.headroom < 0:
            lacking = of_bytes(-tight.headroom)
            parts.append(f"It does not fit: rank {tight.fullest_rank} lacks {lacking} of {tier}.")
        else:
            free = of_share(tight.headroom_share)
            parts.append(f"Memory fits, with {free} of {tier} free on the fullest rank.")
    if not parts:
        parts.append("Only the layout of this plan is known: what lies where, not what it costs.")
    return " ".join(parts)


def tiles(analysis: Analysis) -> list[Tile]:
    """The headline figures that are known."""
    found = []
    costs = analysis.costs
    if costs is not None:
        found += [_rating(analysis, costs), _balance(costs), _limit(costs)]
    elif analysis.rating is not None:
        found.append(Tile("Rating", of_milliseconds(analysis.rating), "estimated per step"))
    tight = _tightest(analysis)
    if tight is not None:
        found.append(_memory(tight))
    if costs is None:
        weights = f"in {len(analysis.tables):,} tables"
        found.append(Tile("Weights", of_bytes(analysis.bytes), weights))
    return found


def _comms_share(costs: Costs) -> float:
    total = float(costs.total[costs.worst_rank])
    return float(costs.comms[costs.worst_rank]) / total if total > 0 else 0.0


def _tightest(analysis: Analysis) -> Memory | None:
    """The tier that is nearest to full."""
    tiers = analysis.memory
    return min(tiers, key=lambda tier: tier.headroom_share or 0.0, default=None)


def _rating(analysis: Analysis, costs: Costs) -> Tile:
    note = "estimated per step"
    if analysis.gap is not None and analysis.lower_bound is not None:
        bound = of_milliseconds(analysis.lower_bound)
        note += f"; no plan is below {bound}, so at most {of_share(analysis.gap)} is left"
    return Tile("Rating", of_milliseconds(costs.rating), note)


def _balance(costs: Costs) -> Tile:
    if costs.balanced:
        return Tile("Balance", "0 %", "all ranks cost the same", "Even:", "good")
    even = costs.imbalance <= _EVEN
    note = f"rank {costs.worst_rank} against the mean of {of_milliseconds(costs.mean)}"
    verdict, tone = ("Even:", "good") if even else ("Uneven:", "warn")
    return Tile("Imbalance", f"+{of_share(costs.imbalance)}", note, verdict, tone)


def _limit(costs: Costs) -> Tile:
    worst = costs.worst_rank
    total = float(costs.total[worst]) or 1.0
    comms = _comms_share(costs)
    name, share = ("comms", comms) if comms >= 0.5 else ("compute", 1 - comms)
    where = "on every rank" if costs.balanced else f"on rank {worst}, which sets the rating"
    split = tuple((part, float(costs.parts[part][worst]) / total) for part in RATED)
    return Tile("Limited by", f"{name} {of_share(share)}", where, split=split)


def _memory(tier: Memory) -> Tile:
    rank = tier.fullest_rank
    name = tier.tier.upper()
    used = of_bytes(int(tier.used[rank]))
    if tier.capacity is None or tier.headroom is None or tier.headroom_share is None:
        return Tile(f"{name} by weights", used, f"on rank {rank}, the fullest")
    note = f"{used} of {of_bytes(int(tier.capacity[rank]))} used on rank {rank}, the fullest"
    title = f"{name} headroom"
    if tier.headroom < 0:
        return Tile(title, f"-{of_bytes(-tier.headroom)}", note, "Does not fit:", "bad")
    verdict, tone = ("Fits:", "good") if tier.headroom_share >= _TIGHT else ("Tight:", "warn")
    return Tile(title, of_share(tier.headroom_share), note, verdict, tone)
