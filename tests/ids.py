"""Random id statistics."""

from __future__ import annotations

import random

from fastplan.model.ids import Curve, IdStatistics
from fastplan.model.request import IdCurves


def drawn_statistics(rng: random.Random, rows: int) -> IdStatistics:
    """Statistics of a table: shares fall with the number of ids and with the cached rows."""
    unique, misses = (_falling(rng, most) for most in (10.0 * rows, float(rows)))
    return IdStatistics(ids=10 * rows, samples=rows, unique=unique, misses=misses)


def curves_of(ids: IdStatistics) -> IdCurves:
    return IdCurves(ids.unique, ids.misses)


def _falling(rng: random.Random, most: float) -> Curve:
    points = rng.randint(1, 8)
    x = sorted({max(most ** rng.random(), 1e-3) for _ in range(points)})
    y = sorted((rng.random() for _ in x), reverse=True)
    return Curve(tuple(x), tuple(y))


def skewed_statistics(rows: int, hot: float = 0.01) -> IdStatistics:
    """Statistics of ids of which 9 in 10 belong to a small part of the rows."""
    misses = Curve((1.0, hot * rows, float(rows)), (0.99, 0.1, 0.01))
    unique = Curve((1e2, 1e4, 1e6), (0.9, 0.5, 0.2))
    return IdStatistics(ids=10 * rows, samples=rows, unique=unique, misses=misses)
