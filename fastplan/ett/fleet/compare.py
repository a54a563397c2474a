"""Compares a figure of two groups of jobs: a test that outliers don't decide, and the size of it.

The test is Mann and Whitney's: it ranks all jobs and asks whether those of the second group are
later in the order than chance explains, one-sided. The change is Hodges and Lehmann's: the median
of all ratios of a job after to a job before, with the interval that the same test gives. A slow job
or two change neither much, and times need no particular distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.fleet.select import label

LEVEL = 0.002  # the chance of a false alarm of one figure
START, RECOVER = "time_to_start", "time_to_recover"
_MOST_PAIRS = 1000  # values of a group that ratios are formed of
_MOST_EXACT = 20_000  # orders of few jobs that are counted one by one
_TINY = 1e-9  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A figure before and after. Times are in seconds.

    Attributes:
        name: The figure: a phase, `time_to_start` or `time_to_recover`.
        n: The number of values before and after.
        median: The medians.
        change: The estimated relative change; 0.05 is 5 % slower.
        interval: The change is within it with a confidence of 1 - 2 LEVEL.
        p: The chance of an order like this if nothing has changed; None with too few jobs.
        regressed: Whether it is slower by the test, and `allowed` or more is not ruled out.
        decided: Whether there are enough jobs to find any regression.
    """

    name: str
    n: tuple[int, int]
    median: tuple[float, float]
    change: float
    interval: tuple[float, float]
    p: float | None
    regressed: bool
    decided: bool


def compare_figure(
    name: str, before: Sequence[float], after: Sequence[float], *, allowed: float, figures: int = 1
) -> Comparison:
    """Compares the values of two groups of jobs.

    Args:
        name: The figure, for the result.
        before: Its values before, at least one.
        after: Its values after, at least one.
        allowed: The relative regression that is accepted, such as 0.05.
        figures: How many figures are tested together; the level is divided by it.
    """
    old, new = (np.maximum(np.sort(np.asarray(v, dtype=float)), _TINY) for v in (before, after))
    level = LEVEL / figures
    p, least = _p_value(old, new)
    change, low, high = _ratio(old, new, level)
    decided = least <= level
    return Comparison(
        name=name,
        n=(len(old), len(new)),
        median=(float(np.median(old)), float(np.median(new))),
        change=change,
        interval=(low, high),
        p=p if decided else None,
        regressed=decided and p <= level and high >= allowed and change > 0,
        decided=decided,
    )


def compare_jobs(
    before: Sequence[FleetJob],
    after: Sequence[FleetJob],
    names: Sequence[str],
    *,
    allowed: float,
    within: str | None = None,
) -> list[Comparison]:
    """Compares figures of two groups of jobs; those that only one group has are left out.

    Args:
        before: Jobs before.
        after: Jobs after.
        names: The figures: phases, `time_to_start` or `time_to_recover`.
        allowed: The relative regression that is accepted.
        within: A label. Each job is compared with those of the same value, so that another mix of
            models does not count as a change.
    """
    found = []
    for name in names:
        old, new = _values(before, name), _values(after, name)
        if old and new:
            left, right = _scaled(old, new, within) if within else _plain(old, new)
            if left and right:
                found.append(compare_figure(name, left, right, allowed=allowed, figures=len(names)))
    return found


def phases_of_start(jobs: Sequence[FleetJob]) -> list[str]:
    """Returns the phases of starts, the longest first."""
    total: dict[str, float] = {}
    for job in jobs:
        for name, took in job.start.items():
            total[name] = total.get(name, 0.0) + took
    return sorted(total, key=lambda name: -total[name])


_Values = list[tuple[FleetJob, float]]


def _values(jobs: Sequence[FleetJob], name: str) -> _Values:
    """The values of a figure. A phase counts in the first start, or else in the whole job."""
    if name == RECOVER:
        return [(job, took) for job in jobs for took in job.times_to_recover_s]
    if name == START:
        return [(job, job.time_to_start_s) for job in jobs if job.time_to_start_s is not None]
    starts = [(job, job.start[name]) for job in jobs if name in job.start]
    return starts or [(job, job.phases[name]) for job in jobs if name in job.phases]


def _plain(old: _Values, new: _Values) -> tuple[list[float], list[float]]:
    return [value for _, value in old], [value for _, value in new]


def _scaled(old: _Values, new: _Values, within: str) -> tuple[list[float], list[float]]:
    """Values relative to the common median of their label; labels that one side lacks are left out.

    They are scaled back to the median of all, so that they are still seconds.
    """
    kept = {label(job, within) for job, _ in old} & {label(job, within) for job, _ in new}
    both: dict[str, list[float]] = {}
    for job, value in (*old, *new):
        both.setdefault(label(job, within), []).append(value)
    middle = {name: float(np.median(values)) or 1.0 for name, values in both.items()}
    whole = float(np.median([value for name in kept for value in both[name]])) if kept else 1.0
    sides = []
    for values in (old, new):
        named = [(label(job, within), value) for job, value in values]
        sides.append([whole * value / middle[name] for name, value in named if name in kept])
    return sides[0], sides[1]


def _p_value(old: Any, new: Any) -> tuple[float, float]:
    """The one-sided chance that `new` is this late in the order, and the least there can be."""
    n, m = len(old), len(new)
    pooled = np.concatenate([old, new])
    ranks, ties = _ranks(pooled)
    u = float(ranks[n:].sum()) - m * (m + 1) / 2
    orders = math.comb(n + m, m)
    if orders <= _MOST_EXACT:
        sums = [sum(chosen) for chosen in combinations(ranks.tolist(), m)]
        own = float(ranks[n:].sum())
        return sum(total >= own - 1e-9 for total in sums) / orders, 1 / orders
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1))))
    if spread == 0:
        return 1.0, 0.0
    z = (u - n * m / 2 - 0.5) / spread  # 0.5: the step from one order to the next
    return 0.5 * math.erfc(z / math.sqrt(2)), 0.0


def _ranks(values: Any) -> tuple[Any, float]:
    """Ranks from 1, the mean of them for equal values; and the sum of t^3 - t over ties."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = ends - (counts - 1) / 2
    ties = counts.astype(float)
    return means[inverse], float((ties**3 - ties).sum())


def _ratio(old: Any, new: Any, level: float) -> tuple[float, float, float]:
    """The median ratio minus 1, and its interval."""
    old, new = (_thinned(values) for values in (old, new))
    n, m = len(old), len(new)
    ratios = np.sort((new[:, None] / old[None, :]).ravel())
    z = _normal_quantile(1 - level)
    reach = z * math.sqrt(n * m * (n + m + 1) / 12)
    low = max(0, math.floor(n * m / 2 - reach))
    high = min(n * m - 1, math.ceil(n * m / 2 + reach) - 1)
    return float(np.median(ratios)) - 1, float(ratios[low]) - 1, float(ratios[high]) - 1


def _thinned(ordered: Any) -> Any:
    """At most _MOST_PAIRS of the sorted values, evenly spaced."""
    if len(ordered) <= _MOST_PAIRS:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, _MOST_PAIRS).round().astype(int)]


def _normal_quantile(part: float) -> float:
    """The quantile of the normal distribution."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(part)
