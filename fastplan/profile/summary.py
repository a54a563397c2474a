"""What a stream of ids comes down to: sums that can be added to those of other streams.

All sums are known at the lower edges of the core's bins. With positions t of N ids, the position
p(t) of the last use of the same id (-1 for a first use), and weights w of sampled uses:

    distinct ids in all windows of n ids = sum of w min(t - p(t), n) - distinct ids in cut windows
    misses of a cache of r rows          = sum of w over first uses and reuse distances >= r

The first sum counts a use once for each window in which it is the first of its id. It includes the
windows that the end of the stream cuts, the last k < n ids: the last uses of all ids give those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.id_stream import HOT, RETIRED, bin_edges, id_hashes

Floats = NDArray[np.float64]

EDGES: NDArray[np.uint64] = bin_edges()
_EDGES: Floats = EDGES.astype(np.float64)
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequencies:
    """How often ids were used.

    Attributes:
        id: The ids.
        count: Their uses.
        is_head: Whether an id is known because it is frequent. The others are a sample.
        threshold: The largest hash of the sample.
    """

    id: NDArray[np.int64]
    count: NDArray[np.uint64]
    is_head: NDArray[np.bool_]
    threshold: int

    @property
    def rate(self) -> float:
        """The share of ids in the sample."""
        return 1.0 if self.threshold == _ALL else self.threshold / 2.0**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The sums of one stream, or of several.

    Attributes:
        ids: How many were seen.
        samples: How many samples they belong to.
        lengths: Samples by their number of ids, in the core's bins.
        windows: How many windows of n ids there are, for n at the edges of the bins. Windows of
            more than half of the ids don't count.
        distinct: The sum of their distinct ids.
        missed: How many ids a cache of r rows misses, for r at the edges.
        frequencies: How often ids were used.
    """

    ids: int
    samples: int
    lengths: Floats
    windows: Floats
    distinct: Floats
    missed: Floats
    frequencies: Frequencies


def summarize(columns: Mapping[str, Any], samples: int, lengths: Floats) -> Summary:
    """Returns the sums of a stream.

    Args:
        columns: The state of an `IdStream`.
        samples: How many samples its ids belong to.
        lengths: Samples by their number of ids, in the core's bins.
    """
    ids, cold_ids, threshold = map(int, columns["counts"])
    cold_weight, first_weight = map(float, columns["weights"])
    # The sample's uses are as many as there were: ids of the sample may be used more often.
    scale = cold_ids / cold_weight if cold_weight else 1.0
    weight, total = (
        columns[f"hot_times{part}"] + scale * columns[f"cold_times{part}"] for part in ("", "_sum")
    )
    distances = columns["hot_distances"] + scale * columns["cold_distances"]
    windows = np.where(max(1, ids // 2) >= _EDGES, np.maximum(ids - _EDGES + 1, 0.0), 0.0)
    windows[0] = 0.0
    shorter = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    in_windows = shorter + _EDGES * _from(weight) - _cut_windows(columns, ids)
    return Summary(
        ids=ids,
        samples=samples,
        lengths=lengths,
        windows=windows,
        distinct=np.where(windows > 0, np.maximum(in_windows, 0.0), 0.0),
        missed=np.minimum(first_weight * scale + _from(distances), float(ids)),
        frequencies=_frequencies(columns, threshold),
    )


def _frequencies(columns: Mapping[str, Any], threshold: int) -> Frequencies:
    """Returns the ids that are or were hot, and the sample, without those that may become hot."""
    is_head = columns["was_hot"].astype(bool)
    keep = is_head | (columns["state"] != RETIRED)
    return Frequencies(
        id=columns["id"][keep],
        count=columns["count"][keep],
        is_head=is_head[keep],
        threshold=threshold,
    )


def _from(weight: Floats) -> Floats:
    """Returns the sums over each bin and those after it."""
    return np.cumsum(weight[::-1])[::-1]


def _cut_windows(columns: Mapping[str, Any], ids: int) -> Floats:
    """Returns the distinct ids among the last k, summed over k < n, for n at the edges."""
    followed = columns["state"] != RETIRED
    ago = (ids - columns["last"][followed].astype(np.float64))[::-1]  # it grows
    threshold = int(columns["counts"][2])
    rate = 1.0 if threshold == _ALL else threshold / 2.0**64
    weight = np.where(columns["state"][followed] == HOT, 1.0, 1.0 / rate)[::-1]
    weights = np.concatenate([[0.0], np.cumsum(weight)])
    sums = np.concatenate([[0.0], np.cumsum(weight * ago)])
    count = np.searchsorted(ago, _EDGES)
    found: Floats = _EDGES * weights[count] - sums[count]
    return found


def merge(parts: Sequence[Summary]) -> Summary:
    """Adds the sums of streams that are independent of each other.

    Windows and caches don't reach from one stream into another. Counts of the same id are added.

    Args:
        parts: The streams, at least one.
    """
    if len(parts) == 1:
        return parts[0]
    return Summary(
        ids=sum(part.ids for part in parts),
        samples=sum(part.samples for part in parts),
        lengths=np.sum([part.lengths for part in parts], axis=0),
        windows=np.sum([part.windows for part in parts], axis=0),
        distinct=np.sum([part.distinct for part in parts], axis=0),
        missed=np.sum([part.missed for part in parts], axis=0),
        frequencies=_merge_frequencies([part.frequencies for part in parts]),
    )


def ids_outside(summary: Summary, rows: int) -> int:
    """Returns how many ids are below 0 or not below `rows`; an estimate if ids were sampled."""
    found = summary.frequencies
    uses = found.count.astype(np.float64)
    if found.rate > 0:  # else somebody made it up
        uses = np.where(found.is_head, uses, uses / found.rate)
    outside = float(uses[(found.id < 0) | (found.id >= rows)].sum())
    # A sample has not quite as many ids as it stands for. Its shares are right.
    return round(summary.ids * (outside / float(uses.sum()))) if outside else 0


def _merge_frequencies(parts: Sequence[Frequencies]) -> Frequencies:
    threshold = min(part.threshold for part in parts)
    ids, place = np.unique(np.concatenate([part.id for part in parts]), return_inverse=True)
    counts = np.zeros(len(ids), np.uint64)
    is_head = np.zeros(len(ids), bool)
    np.add.at(counts, place, np.concatenate([part.count for part in parts]))
    np.logical_or.at(is_head, place, np.concatenate([part.is_head for part in parts]))
    keep = is_head | (id_hashes(ids) <= np.uint64(threshold))
    return Frequencies(id=ids[keep], count=counts[keep], is_head=is_head[keep], threshold=threshold)
