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
