"""Estimates against measurements: do they order plans alike, and which part is off by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fastplan.measure.parts import ESTIMATED, PARTS
from fastplan.measure.prepare import layout_key
from fastplan.measure.results import PlanRuns, Runs
from fastplan.measure.statistics import Center, Floats, Interval, tau_interval
from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.comparison import Measured


class PlanAgreement(NamedTuple):
    """One plan. Estimates are milliseconds and None where they are not known."""

    label: str
    estimated: float | None  # its rating
    measured: Center  # seconds of a whole step
    like_fastest: bool  # no slower than the fastest beyond noise
    peak_memory: int  # bytes on the fullest rank
    estimated_memory: int | None


class PartAgreement(NamedTuple):
    """One part of a step over all plans, on the rank where it takes longest."""

    part: str
    factor: float | None  # measured over estimated, the median over plans that have both
    error: float | None  # what remains of a plan's error behind that factor, the median
    estimated: tuple[float | None, ...]  # milliseconds by plan
    measured: tuple[float, ...]  # seconds by plan


class Pairs(NamedTuple):
    """How pairs of plans compare."""

    clear: int  # that differ beyond noise
    agreeing: int  # of these, that the estimates order alike
    noise: int  # that don't


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Estimates and measurements of plans, the fastest first."""

    plans: tuple[PlanAgreement, ...]
    parts: tuple[PartAgreement, ...]
    tau: Interval | None  # of ratings and steps; None with fewer than two estimates
    tau_rated: Interval | None  # of ratings and what they count: steps but for distributing inputs
    pairs: Pairs | None


def measured_for(plans: Sequence[Plan], labels: Sequence[str], runs: Runs) -> dict[str, Measured]:
    """The measurements of plans by label, for a comparison; plans that were not measured lack."""
    found = {}
    for label, plan in zip(labels, plans, strict=True):
        own = _runs_of(plan, label, runs)
        if own is not None:
            step = own.step
            found[label] = Measured(dict(own.rank_parts), step.median, step.spread)
    return found


def agreement(plans: Sequence[Plan], labels: Sequence[str], runs: Runs) -> Agreement:
    """How the plans' estimates agree with what was measured, as far as it was."""
    both = [
        (label, analyse(plan), own)
        for label, plan in zip(labels, plans, strict=True)
        if (own := _runs_of(plan, label, runs)) is not None
    ]
    both.sort(key=lambda entry: entry[2].step.median)
    rated = [(a.rating, own) for _, a, own in both if a.rating is not None]
    return Agreement(
        plans=tuple(_plan(label, a, own, both[0][2].step) for label, a, own in both),
        parts=tuple(_part(part, both) for part in PARTS) if both else (),
        tau=_tau(rated, [own.steps for _, own in rated]),
        tau_rated=_tau(rated, [own.rated for _, own in rated]),
        pairs=_pairs(rated) if len(rated) > 1 else None,
    )


def _runs_of(plan: Plan, label: str, runs: Runs) -> PlanRuns | None:
    """The runs of the plan's layout; of several those with its label."""
    key = layout_key(plan.layout)
    same = [own for own in runs.plans if own.layout == key]
    return next((own for own in same if own.label == label), same[0] if same else None)


def _plan(label: str, analysis: Analysis, own: PlanRuns, fastest: Center) -> PlanAgreement:
    memory = own.estimated_memory
    return PlanAgreement(
        label=label,
        estimated=analysis.rating,
        measured=own.step,
        like_fastest=own.step.same_as(fastest),
        peak_memory=max(own.peak_memory),
        estimated_memory=None if memory is None else max(memory),
    )


def _part(part: str, both: Sequence[tuple[str, Analysis, PlanRuns]]) -> PartAgreement:
    estimated = [_estimated(analysis, part) for _, analysis, _ in both]
    measured = [own.part(part).median for _, _, own in both]
    logs = [
        math.log(1000 * seconds / milliseconds)
        for seconds, milliseconds in zip(measured, estimated, strict=True)
        if milliseconds and seconds > 0
    ]
    middle = float(np.median(logs)) if logs else None
    return PartAgreement(
        part=part,
        factor=None if middle is None else math.exp(middle),
        error=None
        if middle is None or len(logs) < 2
        else math.expm1(float(np.median([abs(log - middle) for log in logs]))),
        estimated=tuple(estimated),
        measured=tuple(measured),
    )


def _estimated(analysis: Analysis, part: str) -> float | None:
    """Milliseconds on the rank where the part takes longest."""
    if analysis.costs is None:
        return None
    parts = analysis.costs.parts
    return float(np.max(sum(parts[name] for name in ESTIMATED[part])))


def _tau(
    rated: Sequence[tuple[float, PlanRuns]], samples: Sequence[Sequence[Floats]]
) -> Interval | None:
    return tau_interval([rating for rating, _ in rated], samples) if len(rated) > 1 else None


def _pairs(rated: Sequence[tuple[float, PlanRuns]]) -> Pairs:
    clear = agreeing = noise = 0
    for (first, one), (second, other) in combinations(rated, 2):
        if one.step.same_as(other.step):
            noise += 1
            continue
        clear += 1
        agreeing += (first - second) * (one.step.median - other.step.median) > 0
    return Pairs(clear, agreeing, noise)
