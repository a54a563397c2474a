"""Statistics from sums: curves with few points, and the fit of Zipf's law."""

from __future__ import annotations

import math

import numpy as np

from fastplan.model.ids import MOST_ZIPF, Curve, IdStatistics
from fastplan.profile.summary import EDGES, Floats, Frequencies, Summary

_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_DIGITS = 6  # significant ones of a value
_LEAST_COUNT = 10  # of an id in the fit; smaller counts are mostly chance
_LEAST_RANKS = 8  # that a fit needs
_RANKS_PER_OCTAVE = 4


def statistics_of(summary: Summary) -> IdStatistics:
    """Returns the statistics of a table.

    Args:
        summary: Its sums, of at least one id.
    """
    weights, counts = _ranked(summary.frequencies, summary.ids)
    zipf, error = _zipf(weights, counts)
    distinct = min(float(weights.sum()), float(summary.ids))
    return IdStatistics(
        ids=summary.ids,
        samples=summary.samples,
        unique=_unique(summary, distinct),
        misses=_misses(summary, distinct),
        hottest=_hottest(weights, counts, summary.ids),
        pooling_quantiles=_pooling(summary),
        zipf=zipf,
        zipf_error=error,
        followed=_rounded(summary.frequencies.rate),
    )


def _unique(summary: Summary, distinct: float) -> Curve:
    known = summary.windows > 0
    n = EDGES[known].astype(np.float64)
    share = summary.distinct[known] / summary.windows[known] / n
    if not known.any() or n[-1] < summary.ids:
        n = np.append(n, float(summary.ids))
        share = np.append(share, distinct / summary.ids)
    # The share can only fall: a sample may say otherwise by its error.
    return _curve(n, np.minimum.accumulate(np.minimum(share, 1.0)), relative=0.002)


def _misses(summary: Summary, distinct: float) -> Curve:
    last = int(np.searchsorted(EDGES, np.uint64(math.ceil(distinct)))) + 1
    rows = EDGES[1 : max(last, 2)].astype(np.float64)
    share = summary.missed[1 : max(last, 2)] / summary.ids
    return _curve(rows, np.minimum.accumulate(np.minimum(share, 1.0)), absolute=0.0005)


def _pooling(summary: Summary) -> Curve:
    below = np.cumsum(summary.lengths)
    wanted = np.array(_QUANTILES) * below[-1]
    bins = np.searchsorted(below, wanted * (1 - 1e-12))
    return Curve(_QUANTILES, tuple(EDGES[bins].astype(np.float64).tolist()))


def _ranked(frequencies: Frequencies, ids: int) -> tuple[Floats, Floats]:
    """Returns how many ids each known one stands for and its uses, the most frequent first.

    Uses of sampled ids are scaled to those that ids of the head leave over.
    """
    counts = frequencies.count.astype(np.float64)
    weights = np.where(frequencies.is_head, 1.0, 1.0 / frequencies.rate)
    sampled = float((weights * counts)[~frequencies.is_head].sum())
    left = max(0.0, ids - float(counts[frequencies.is_head].sum()))
    if sampled > 0 and frequencies.rate < 1:
        counts = np.where(frequencies.is_head, counts, counts * (left / sampled))
    order = np.argsort(-counts, kind="stable")
    return weights[order], counts[order]


def _hottest(weights: Floats, counts: Floats, ids: int) -> Curve:
    ranks, shares = np.cumsum(weights), np.cumsum(weights * counts) / ids
    wanted = np.append(_log_spaced(ranks[-1]), ranks[-1])
    wanted = np.unique(wanted[wanted <= ranks[-1]])
    found = np.interp(wanted, np.concatenate([[0.0], ranks]), np.concatenate([[0.0], shares]))
    return _curve(wanted, np.minimum(found, 1.0), absolute=0.0005)


def _zipf(weights: Floats, counts: Floats) -> tuple[float | None, float | None]:
    """Fits ln(count) = a - s ln(rank) at ranks that are equally far apart in ln(rank).

    Returns:
        s and the root mean square of the residuals; None if too few ids were used often.
    """
    # The middle of the ranks that a known id stands for.
    middle = np.cumsum(weights) - weights / 2 + 0.5
    often = counts >= _LEAST_COUNT
    if not often.any():
        return None, None
    ranks = _log_spaced(middle[often][-1])
    found = np.interp(np.log(ranks), np.log(middle[often]), np.log(counts[often]))
    if len(ranks) < _LEAST_RANKS:
        return None, None
    slope, offset = np.polyfit(np.log(ranks), found, 1)
    residuals = found - (offset + slope * np.log(ranks))
    error = math.sqrt(float(np.mean(residuals**2)))
    return _rounded(min(max(-slope, 0.0), MOST_ZIPF)), _rounded(min(error, MOST_ZIPF))


def _log_spaced(last: float) -> Floats:
    """Returns whole numbers from 1 to `last`, about equally far apart in their logarithm."""
    octaves = max(0.0, math.log2(max(last, 1.0)))
    steps = np.arange(math.floor(octaves * _RANKS_PER_OCTAVE) + 1) / _RANKS_PER_OCTAVE
    found: Floats = np.unique(np.floor(2.0**steps))
    return found


def _curve(x: Floats, y: Floats, *, relative: float = 0.0, absolute: float = 0.0) -> Curve:
    """Returns a curve through some of the points, with no other one far from it.

    Args:
        x: Growing.
        y: By x.
        relative: How far a point may be from the curve, as a part of y.
        absolute: The same, in the unit of y.
    """
    logs, kept, start = np.log(x), [0], 0
    for end in range(2, len(x)):
        inner = slice(start + 1, end)
        line = np.interp(logs[inner], logs[[start, end]], y[[start, end]])
        if np.any(np.abs(line - y[inner]) > relative * y[inner] + absolute):
            start = end - 1
            kept.append(start)
    if len(x) > 1:
        kept.append(len(x) - 1)
    return Curve(tuple(x[kept].tolist()), tuple(_rounded(each) for each in y[kept].tolist()))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
