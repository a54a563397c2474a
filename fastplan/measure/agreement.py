"""Compares estimates with measurements: the order of plans, and the error of each part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fastplan.measure.paired import Paired, compare_rounds
from fastplan.measure.prepare import layout_key
from fastplan.measure.results import PlanRuns, Runs
from fastplan.measure.settings import ESTIMATED, PARTS
from fastplan.measure.statistics import Floats, Interval, MedianSpread, tau_interval
from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.comparison import Measured


class PlanAgreement(NamedTuple):
    """The estimates and measurements of one plan.

    Attributes:
        label: The plan's label.
        estimated: Its rating in milliseconds; None if unknown.
        measured: Seconds of a whole step.
        like_fastest: Whether it is not clearly slower than the fastest plan.
        versus_fastest: How it compares with the fastest plan; None for that plan.
        peak_memory: Bytes on the fullest rank.
        estimated_memory: The same as estimated; None if unknown.
    """

    label: str
    estimated: float | None
    measured: MedianSpread
    like_fastest: bool
    versus_fastest: Paired | None
    peak_memory: int
    estimated_memory: int | None


class PartAgreement(NamedTuple):
    """One part of a step over all plans, on the rank where it takes longest.

    Attributes:
        part: The part.
        factor: Measured over estimated, the median over plans that have both.
        error: The remaining error of a plan after this factor, the median.
        estimated: Milliseconds by plan.
        measured: Seconds by plan.
    """

    part: str
    factor: float | None
    error: float | None
    estimated: tuple[float | None, ...]
    measured: tuple[float, ...]


class Pairs(NamedTuple):
    """Numbers of pairs of plans.

    Attributes:
        clear: Plans that differ.
        agreeing: Plans that differ as estimated.
        noise: Plans that are equal within noise.
        unclear: Plans of which the machine is too noisy to tell.
    """

    clear: int
    agreeing: int
    noise: int
    unclear: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Estimates and measurements of plans.

    Attributes:
        plans: The plans, the fastest first.
        parts: The parts of a step.
        tau: Kendall's tau of ratings and steps; None with fewer than two estimates.
        tau_rated: The same for steps without the distribution of inputs, as in ratings.
        pairs: How pairs of plans compare.
    """

    plans: tuple[PlanAgreement, ...]
    parts: tuple[PartAgreement, ...]
    tau: Interval | None
    tau_rated: Interval | None
    pairs: Pairs | None


def measured_for(plans: Sequence[Plan], labels: Sequence[str], runs: Runs) -> dict[str, Measured]:
    """Returns the measurements of plans by label, without plans that were not measured."""
    found = {}
    for label, plan in zip(labels, plans, strict=True):
        own = _runs_of(plan, label, runs)
        if own is not None:
            step = own.step
            found[label] = Measured(dict(own.rank_parts), step.median, step.spread)
    return found


def agreement(plans: Sequence[Plan], labels: Sequence[str], runs: Runs) -> Agreement:
    """Compares the estimates of plans with their measurements.

    Args:
        plans: The plans.
        labels: Their labels.
        runs: The measurement. Plans that it does not contain are skipped.
    """
    both = [
        (label, analyse(plan), own)
        for label, plan in zip(labels, plans, strict=True)
        if (own := _runs_of(plan, label, runs)) is not None
    ]
    both.sort(key=lambda entry: entry[2].step.median)
    rated = [(a.rating, own) for _, a, own in both if a.rating is not None]
    return Agreement(
        plans=tuple(_plan(label, a, own, both[0][2]) for label, a, own in both),
        parts=tuple(_part(part, both) for part in PARTS) if both else (),
        tau=_tau(rated, [own.steps for _, own in rated]),
        tau_rated=_tau(rated, [own.rated for _, own in rated]),
        pairs=_pairs(rated) if len(rated) > 1 else None,
    )


def _runs_of(plan: Plan, label: str, runs: Runs) -> PlanRuns | None:
    """Returns the runs of the plan's layout; with its label if there are several."""
    key = layout_key(plan.layout)
    same = [own for own in runs.plans if own.layout == key]
    return next((own for own in same if own.label == label), same[0] if same else None)


def _plan(label: str, analysis: Analysis, own: PlanRuns, fastest: PlanRuns) -> PlanAgreement:
    memory = own.estimated_memory
    versus = None if own is fastest else compare_rounds(fastest.steps, own.steps)
    return PlanAgreement(
        label=label,
        estimated=analysis.rating,
        measured=own.step,
        like_fastest=versus is None or not versus.different,
        versus_fastest=versus,
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
    """Returns the milliseconds on the rank where the part takes longest."""
    if analysis.costs is None:
        return None
    parts = analysis.costs.parts
    return float(np.max(sum(parts[name] for name in ESTIMATED[part])))


def _tau(
    rated: Sequence[tuple[float, PlanRuns]], samples: Sequence[Sequence[Floats]]
) -> Interval | None:
    return tau_interval([rating for rating, _ in rated], samples) if len(rated) > 1 else None


def _pairs(rated: Sequence[tuple[float, PlanRuns]]) -> Pairs:
    clear = agreeing = noise = unclear = 0
    for (first, one), (second, other) in combinations(rated, 2):
        found = compare_rounds(one.steps, other.steps)
        if not found.different:
            noise += found.outcome == "same"
            unclear += found.outcome == "unclear"
            continue
        clear += 1
        agreeing += (second - first) * found.difference > 0
    return Pairs(clear, agreeing, noise, unclear)
