"""Medians, spreads, the agreement of two orders, and robust fits of time over bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FEWEST_POINTS = 6
SMALLEST_SPAN = 8.0  # the largest size over the smallest
WIDEST = 3.0  # the upper end of the bandwidth's interval over the lower one

_DRAWS = 1000
_FIT_DRAWS = 200
_FOLDS = 3
_SEED = 20240607


class MedianSpread(NamedTuple):
    """A median and the distance between the quartiles."""

    median: float
    spread: float
    n: int

    @staticmethod
    def of(values: Sequence[float] | Floats) -> MedianSpread:
        """Returns the median and spread of values."""
        low, middle, high = np.percentile(values, [25, 50, 75])
        return MedianSpread(float(middle), float(high - low), len(values))


class Interval(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns Kendall's tau-b: 1 for equal orders, -1 for reversed ones.

    It is NaN if all values of one side are equal, because there is no order.
    """
    a = np.asarray(first, np.float64)
    b = np.asarray(second, np.float64)
    upper = np.triu_indices(len(a), 1)
    signs_a = np.sign(a[:, None] - a[None, :])[upper]
    signs_b = np.sign(b[:, None] - b[None, :])[upper]
    pairs = np.sqrt(float(np.count_nonzero(signs_a)) * float(np.count_nonzero(signs_b)))
    return float((signs_a * signs_b).sum() / pairs) if pairs else float("nan")


def tau_interval(estimated: Sequence[float], samples: Sequence[Sequence[Floats]]) -> Interval:
    """Returns Kendall's tau of estimates and medians, with an interval for the noise.

    Args:
        estimated: The estimate of each plan.
        samples: Seconds of each plan, by round; rounds and the steps within them are resampled.
    """
    random = np.random.default_rng(_SEED)
    medians = [float(np.median(np.concatenate(rounds))) for rounds in samples]
    value = kendall_tau(estimated, medians)
    drawn = []
    for _ in range(_DRAWS):
        again = [float(np.median(_resampled(random, rounds))) for rounds in samples]
        drawn.append(kendall_tau(estimated, again))
    found = np.asarray(drawn)[~np.isnan(drawn)]
    if not len(found) or np.isnan(value):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def _resampled(random: np.random.Generator, rounds: Sequence[Floats]) -> Floats:
    chosen = random.integers(0, len(rounds), len(rounds))
    return np.concatenate([random.choice(rounds[i], len(rounds[i])) for i in chosen])


def drift(samples: Sequence[Sequence[Floats]]) -> float:
    """Returns how much the machine changed between rounds, as a fraction; 0 is no change.

    This is the slowest round over the fastest one, minus 1, by the geometric mean over all plans.
    Every plan has a turn in every round, so drift affects all of them.
    """
    rounds = min(len(plan) for plan in samples)
    if rounds < 2:
        return 0.0
    medians = np.array([[float(np.median(plan[i])) for i in range(rounds)] for plan in samples])
    by_round = np.exp(np.log(medians / np.median(medians, axis=1, keepdims=True)).mean(axis=0))
    return float(by_round.max() / by_round.min() - 1)


class Fit(NamedTuple):
    """A bandwidth, and how well it predicts times. Errors are medians of relative errors.

    Attributes:
        bandwidth: Bytes per second of TorchRec's form, time = bytes / bandwidth.
        low: The lower end of its 95 % interval.
        high: The upper end.
        error: The error for times that were not part of the fit.
        latency: Seconds, of time = latency + slope * bytes.
        slope: Seconds per byte.
        slope_low: The lower end of its 95 % interval.
        error_with_latency: The error of the form with latency, for times that were not part of it.
        points: The number of measurements.
    """

    bandwidth: float
    low: float
    high: float
    error: float
    latency: float
    slope: float
    slope_low: float
    error_with_latency: float
    points: int

    @property
    def problem(self) -> str | None:
        """Why the data don't determine a bandwidth; None if they do.

        Times must certainly grow with bytes: otherwise they are latency or noise.
        """
        if not self.slope_low > 0:
            return "it is not certain that times grow with bytes"
        if self.high > WIDEST * self.low:
            least, most = self.low / 1e9, self.high / 1e9
            return f"times are too noisy: it is between {least:.3g} and {most:.3g} GB/s"
        return None


def fit(counted: ArrayLike, seconds: ArrayLike) -> Fit | str:
    """Returns the fit of times over bytes, or why there is none."""
    x, y = np.asarray(counted, np.float64), np.asarray(seconds, np.float64)
    if len(x) < FEWEST_POINTS:
        return f"{len(x)} measurements are too few, {FEWEST_POINTS} are needed"
    if x.max() < SMALLEST_SPAN * x.min():
        return f"sizes span a factor of {x.max() / x.min():.2g}, {SMALLEST_SPAN:g} is needed"
    random = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_FIT_DRAWS):
        again = random.integers(0, len(x), len(x))
        if np.ptp(x[again]) > 0:
            drawn.append((proportional(x[again], y[again]), theil_sen(x[again], y[again])[1]))
    (low, slope_low), (high, _) = np.percentile(drawn, [2.5, 97.5], axis=0)
    latency, slope = theil_sen(x, y)
    return Fit(
        bandwidth=1 / proportional(x, y),
        low=float(1 / high),
        high=float(1 / low),
        error=_held_out(x, y, with_latency=False),
        latency=latency,
        slope=slope,
        slope_low=float(slope_low),
        error_with_latency=_held_out(x, y, with_latency=True),
        points=len(x),
    )


def proportional(x: Floats, y: Floats) -> float:
    """Returns the median of the points' seconds per byte.

    It minimizes the sum of errors on a logarithmic scale: outliers hardly change it, and small
    sizes count as much as large ones.
    """
    return float(np.exp(np.median(np.log(y / x))))


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """Returns latency, at least 0, and seconds per byte: the median slope of all pairs."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    first, second = first[apart], second[apart]
    slope = float(np.median((y[second] - y[first]) / (x[second] - x[first])))
    return max(0.0, float(np.median(y - slope * x))), slope


def _held_out(x: Floats, y: Floats, *, with_latency: bool) -> float:
    """Returns the median relative error of points that were not part of the fit."""
    order = np.argsort(x, kind="stable")
    fold = np.empty(len(x), np.int64)
    fold[order] = np.arange(len(x)) % _FOLDS
    errors = []
    for number in range(_FOLDS):
        seen, unseen = fold != number, fold == number
        latency, slope = 0.0, 0.0
        if with_latency:
            latency, slope = theil_sen(x[seen], y[seen])
        else:
            slope = proportional(x[seen], y[seen])
        errors.append(np.abs(latency + slope * x[unseen] - y[unseen]) / y[unseen])
    return float(np.median(np.concatenate(errors)))
