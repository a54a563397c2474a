"""Robust fits of time over bytes: with a latency, and without one as TorchRec has it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FEWEST_POINTS = 6
SMALLEST_SPAN = 8.0  # the largest size over the smallest
WIDEST = 3.0  # the upper end of the bandwidth's interval over the lower one

_DRAWS = 200
_FOLDS = 3
_SEED = 20240607


class Fit(NamedTuple):
    """A bandwidth, and how well times follow from it. Errors are medians of relative ones."""

    bandwidth: float  # bytes per second that TorchRec's form, time = bytes / bandwidth, fits best
    low: float  # where it lies 19 times out of 20
    high: float
    error: float  # of times that the fit has not seen
    latency: float  # seconds, of time = latency + slope * bytes
    slope: float  # seconds per byte
    slope_low: float  # the lower end of where it lies 19 times out of 20
    error_with_latency: float  # of times that this fit has not seen
    points: int

    @property
    def problem(self) -> str | None:
        """Why the data don't determine a bandwidth; None if they do.

        That times grow with bytes must be beyond doubt: else they are latency or noise.
        """
        if not self.slope_low > 0:
            return "that times grow with bytes is not beyond doubt"
        if self.high > WIDEST * self.low:
            least, most = self.low / 1e9, self.high / 1e9
            return f"times are too noisy: it may be anything from {least:.3g} to {most:.3g} GB/s"
        return None


def fit(counted: ArrayLike, seconds: ArrayLike) -> Fit | str:
    """The fit of times over bytes; or why there is none, in words."""
    x, y = np.asarray(counted, np.float64), np.asarray(seconds, np.float64)
    if len(x) < FEWEST_POINTS:
        return f"{len(x)} measurements are too few, {FEWEST_POINTS} are needed"
    if x.max() < SMALLEST_SPAN * x.min():
        return f"sizes span a factor of {x.max() / x.min():.2g}, {SMALLEST_SPAN:g} is needed"
    random = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_DRAWS):
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
    """Seconds per byte that half of the points are above, and half below.

    It has the least sum of errors where those are factors, so that outliers hardly move it, and
    small sizes count as much as large ones.
    """
    return float(np.exp(np.median(np.log(y / x))))


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """Latency and seconds per byte: the median of all pairs' slopes. A latency is at least 0."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    first, second = first[apart], second[apart]
    slope = float(np.median((y[second] - y[first]) / (x[second] - x[first])))
    return max(0.0, float(np.median(y - slope * x))), slope


def _held_out(x: Floats, y: Floats, *, with_latency: bool) -> float:
    """The median relative error of points that the fit was made without."""
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
