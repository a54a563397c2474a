"""What the ids of a table look like: how often they repeat, and how often a cache misses them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

MOST_ZIPF = 100.0  # an exponent or error beyond any that a fit returns
_LIMITS = (("zipf", 0.0, MOST_ZIPF), ("zipf_error", 0.0, MOST_ZIPF), ("followed", 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Curve:
    """A function by its points, linear in log(x) between them and constant outside.

    Raises:
        ValueError: there are no points, `x` does not grow from above 0, or a value is not finite.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.x or len(self.x) != len(self.y):
            raise ValueError("`x` and `y` must have the same number of points, at least one")
        if not all(map(math.isfinite, (*self.x, *self.y))):
            raise ValueError("`x` and `y` must be finite")
        if self.x[0] <= 0 or any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError("`x` must be positive and grow")

    def at(self, x: float) -> float:
        """Returns the value at `x`."""
        if x <= self.x[0]:
            return self.y[0]
        if x >= self.x[-1]:
            return self.y[-1]
        right = bisect_left(self.x, x)
        left = right - 1
        span = math.log(self.x[right] / self.x[left])
        share = math.log(x / self.x[left]) / span
        return self.y[left] + share * (self.y[right] - self.y[left])

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Curve:
        """Returns the curve through points (x, y)."""
        return cls(tuple(x for x, _ in points), tuple(y for _, y in points))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdStatistics:
    """The ids of one table, as a stream of batches had them.

    Attributes:
        ids: how many were seen.
        samples: how many samples they belong to.
        unique: the share of distinct ids among n consecutive ones, by n. A batch of all ranks has
            n = samples x pooling ids. Below the first n the share is that of the first.
        misses: the share of ids that an LRU cache of r rows misses, by r. Ids of one batch that
            repeat are hits, so that misses per batch = n x misses(r) do not depend on the batch
            size as long as a batch fits into the cache.
        hottest: the share of ids that belong to the r most frequent rows, by r.
        pooling_quantiles: the ids of a sample, by quantile: at 0.5 the median, at 1 the most. Ids
            of all features of the table count.
        zipf: the exponent s of the frequency ~ rank^-s that fits best.
        zipf_error: the root mean square of ln(frequency / fitted frequency). Frequencies follow
            the law to about this share; above 0.5 they follow another one.
        followed: the share of distinct ids whose reuse was recorded. Below 1, the curves are
            estimates from a sample.
    """

    ids: int
    samples: int
    unique: Curve
    misses: Curve
    hottest: Curve | None = None
    pooling_quantiles: Curve | None = None
    zipf: float | None = None
    zipf_error: float | None = None
    followed: float | None = None

    def __post_init__(self) -> None:
        for name in ("ids", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, not {getattr(self, name)}")
        for name in ("unique", "misses", "hottest"):
            curve = getattr(self, name)
            if curve is not None and any(not 0 <= y <= 1 for y in curve.y):
                raise ValueError(f"`{name}` must be shares between 0 and 1")
        quantiles = self.pooling_quantiles
        if quantiles is not None and (quantiles.x[-1] > 1 or min(quantiles.y) < 0):
            raise ValueError("`pooling_quantiles` must be numbers of ids by shares up to 1")
        for name, least, most in _LIMITS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"`{name}` must be from {least:g} to {most:g}, not {value}")

    @property
    def pooling(self) -> float:
        """Ids per sample."""
        return self.ids / self.samples

    def distinct(self, ids: float) -> float:
        """Returns how many of `ids` consecutive ids are distinct, on average."""
        return ids * self.unique.at(ids)

    def missed(self, ids: float, rows: float) -> float:
        """Returns how many of `ids` consecutive ids a cache of `rows` rows misses, on average.

        A cache holds every distinct id of a batch at least once, so no more than those are missed.
        """
        share = 1.0 if rows <= 0 else self.misses.at(rows)
        return min(ids * share, self.distinct(ids))
