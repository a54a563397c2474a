"""Expected miss rates of caches, from TorchRec's statistics."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import numpy as np
import torch
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats

from fastplan.torchrec import compat

_LARGEST_SIZE = 2.0**63  # float32 holds it, and no table has as many rows


class MissRates:
    """Miss rates of many cache sizes, with the histogram of each table summed up once.

    The scale-up proposer tries a dozen sizes for each table, and TorchRec's own method sums the
    histogram up for each of them. The statistics must not change meanwhile.
    """

    def __init__(self) -> None:
        self._curves: dict[int, tuple[Any, _Curve | None]] = {}

    def of(self, statistics: Any, factor: float) -> float | None:
        """Returns what `statistics.expected_miss_rate(factor)` returns."""
        known = self._curves.get(id(statistics))
        if known is None:
            # The entry keeps the object, so that no other one gets its id.
            known = self._curves[id(statistics)] = statistics, _curve_of(statistics)
        curve = known[1]
        rate = None if curve is None else curve.at(factor)
        return statistics.expected_miss_rate(factor) if rate is None else rate


class _Curve:
    """Miss rates between the bins of a histogram."""

    def __init__(self, height: int, bins: list[float], rates: list[float]) -> None:
        self._height = height
        self._bins = bins
        self._rates = rates

    def at(self, factor: float) -> float | None:
        """Returns the miss rate of a load factor; None if only TorchRec's method can tell."""
        if type(factor) is not float or not 0 <= factor * self._height < _LARGEST_SIZE:
            return None
        # Sizes are tensors of one float32 in TorchRec.
        size = np.float32(factor * self._height) - np.float32(1)
        return self._rates[bisect_right(self._bins, float(size)) - 1]


def _curve_of(statistics: Any) -> _Curve | None:
    """Returns the curve of TorchRec's own statistics with usual tensors; None for others."""
    methods = ("expected_miss_rate", "estimate_cache_miss_rate")
    if compat.why_not_stock(statistics, EmbeddingOffloadStats, *methods):
        return None
    counts, bins, height = statistics.hist, statistics.bins, statistics.height
    if torch.get_default_dtype() != torch.float32 or type(height) is not int:
        return None
    if not all(map(_is_plain, (counts, bins))) or bins.dtype != torch.float32:
        return None
    borders = bins.tolist()
    if len(borders) != len(counts) + 1 or borders != sorted(borders):
        return None
    # The same operations as in EmbeddingOffloadStats.estimate_cache_miss_rate().
    hits = counts.cumsum(dim=0)
    if hits[-1] == 0:
        return None
    rates = torch.cat((1 - hits / hits[-1], torch.tensor([0.0, 1.0]))).tolist()
    return _Curve(height, borders, rates) if not any(map(math.isnan, rates)) else None


def _is_plain(tensor: Any) -> bool:
    return type(tensor) is torch.Tensor and tensor.dim() == 1 and tensor.device.type == "cpu"
