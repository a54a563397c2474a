"""Medians, spreads, and how far two orders agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = 1000
_SEED = 20240607


class Center(NamedTuple):
    """A median and the distance between the quartiles."""

    median: float
    spread: float
    n: int

    @staticmethod
    def of(values: Sequence[float] | Floats) -> Center:
        low, middle, high = np.percentile(values, [25, 50, 75])
        return Center(float(middle), float(high - low), len(values))

    def same_as(self, other: Center) -> bool:
        """Whether the two differ by no more than they spread."""
        return abs(self.median - other.median) <= max(self.spread, other.spread)


class Interval(NamedTuple):
    """A value and where it lies 19 times out of 20."""

    value: float
    low: float
    high: float


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b: 1 where both order alike, -1 where one is the other reversed.

    NaN where all of one side are equal, so that there is no order.
    """
    a = np.asarray(first, np.float64)
    b = np.asarray(second, np.float64)
    upper = np.triu_indices(len(a), 1)
    signs_a = np.sign(a[:, None] - a[None, :])[upper]
    signs_b = np.sign(b[:, None] - b[None, :])[upper]
    pairs = np.sqrt(float(np.count_nonzero(signs_a)) * float(np.count_nonzero(signs_b)))
    return float((signs_a * signs_b).sum() / pairs) if pairs else float("nan")


def tau_interval(estimated: Sequence[float], samples: Sequence[Sequence[Floats]]) -> Interval:
    """Kendall's tau of estimates and medians, and what noise makes of it.

    Args:
        samples: seconds of each plan, by round; rounds are drawn anew, and steps within them.
    """
    random = np.random.default_rng(_SEED)
    medians = [float(np.median(np.concatenate(rounds))) for rounds in samples]
    value = kendall_tau(estimated, medians)
    drawn = []
    for _ in range(_DRAWS):
        again = [float(np.median(_redrawn(random, rounds))) for rounds in samples]
        drawn.append(kendall_tau(estimated, again))
    found = np.asarray(drawn)[~np.isnan(drawn)]
    if not len(found) or np.isnan(value):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def _redrawn(random: np.random.Generator, rounds: Sequence[Floats]) -> Floats:
    chosen = random.integers(0, len(rounds), len(rounds))
    return np.concatenate([random.choice(rounds[i], len(rounds[i])) for i in chosen])


def drift(samples: Sequence[Sequence[Floats]]) -> float:
    """How much the machine changed between rounds, as a part: 0 is not at all.

    The slowest round over the fastest, by the mean over all plans of what a plan took there. Plans
    have their turn in every round, so that it hits all of them.
    """
    rounds = min(len(plan) for plan in samples)
    if rounds < 2:
        return 0.0
    medians = np.array([[float(np.median(plan[i])) for i in range(rounds)] for plan in samples])
    by_round = np.exp(np.log(medians / np.median(medians, axis=1, keepdims=True)).mean(axis=0))
    return float(by_round.max() / by_round.min() - 1)
