"""Replays id streams through LRU caches, and counts the bytes that cross the host link.

It knows plans only as shards with a kernel and a cache size, and nothing of cost models. A batch
looks up each distinct id once. An id that its cache misses is fetched, and the row that has to go
for it is written back, since training has changed it. Caches are exact LRU for each shard.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]
HOST_KERNELS = ("fused_uvm", "fused_uvm_caching")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The ids of one table, step by step, for a random sample of its rows.

    Attributes:
        ids: numbers of the followed rows, in the order of the table; a step has each at most once.
        begin: where the ids of each step begin, and the end.
        per_step: ids of a step, of all rows and with repeated ones.
        rows: of the table.
        followed: how many rows are followed, chosen at random.
        warm: the first so many steps are history: they only warm caches.
        train: the steps from there to this one are for statistics, the others are counted.
    """

    ids: Ids
    begin: Offsets
    per_step: int
    rows: int
    followed: int
    warm: int
    train: int

    @property
    def steps(self) -> int:
        return len(self.begin) - 1

    @property
    def rate(self) -> float:
        """The share of rows that are followed."""
        return self.followed / self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of a table on a rank: rows from `first` on, of `row_bytes` each."""

    kernel: str
    first: int
    rows: int
    row_bytes: float
    cache_rows: int


@njit(cache=False)
def _lru(
    ids: Ids, begin: Offsets, first: int, rows: int, capacity: int, skip: int
) -> tuple[int, int, int]:
    """Misses, evictions and ids of a cache of some rows, after `skip` steps.

    The list of cached rows is linked in two directions; `rows` is its end and its beginning.
    """
    after = np.full(rows + 1, -1, np.int32)
    before = np.full(rows + 1, -1, np.int32)
    after[rows] = before[rows] = rows
    held = misses = evictions = distinct = 0
    for step in range(len(begin) - 1):
        counts = step >= skip
        for i in range(begin[step], begin[step + 1]):
            row = ids[i] - first
            if row < 0 or row >= rows:
                continue
            distinct += counts
            if after[row] >= 0:
                after[before[row]] = after[row]
                before[after[row]] = before[row]
            else:
                misses += counts
                if capacity == 0:
                    evictions += counts
                    continue
                if held == capacity:
                    last = before[rows]
                    before[rows] = before[last]
                    after[before[last]] = rows
                    after[last] = before[last] = -1
                    evictions += counts
                else:
                    held += 1
            top = after[rows]
            after[row], before[row] = top, rows
            before[top] = row
            after[rows] = row
    return misses, evictions, distinct


def host_bytes(stream: Stream, shard: Shard, state_bytes: float) -> float:
    """The bytes of a step that cross the host link for one shard, on average.

    Args:
        stream: the ids of the shard's table.
        shard: the shard.
        state_bytes: of the optimizer, for each row; they stay on the host.
    """
    if shard.kernel not in HOST_KERNELS:
        return 0.0
    cached = shard.cache_rows if shard.kernel == "fused_uvm_caching" else 0
    rate = stream.rate
    first, end = round(shard.first * rate), round((shard.first + shard.rows) * rate)
    misses, evictions, distinct = _lru(
        stream.ids, stream.begin, first, end - first, round(cached * rate), stream.train
    )
    steps = (stream.steps - stream.train) * rate
    states = 2 * distinct * state_bytes
    if shard.kernel == "fused_uvm":
        # Read by the forward pass, read and written by the backward pass.
        return (3 * distinct * shard.row_bytes + states) / steps
    return ((misses + evictions) * shard.row_bytes + states) / steps


@njit(cache=False)
def _reuse_distances(ids: Ids, begin: Offsets, rows: int, warm: int) -> Offsets:
    """How many ids after `warm` steps have how many other rows since their last use.

    The last entry counts first uses. A binary indexed tree has a 1 at the last use of each row.
    """
    total = begin[-1]
    tree = np.zeros(total + 1, np.int32)
    last = np.full(rows, -1, np.int64)
    found = np.zeros(rows + 1, np.int64)
    seen = 0
    for step in range(len(begin) - 1):
        for i in range(begin[step], begin[step + 1]):
            row = ids[i]
            before = last[row]
            distance = rows
            if before < 0:
                seen += 1
            else:
                at, older = before + 1, 0
                while at > 0:
                    older += tree[at]
                    at -= at & -at
                distance = seen - older
                at = before + 1
                while at <= total:
                    tree[at] -= 1
                    at += at & -at
            at = i + 1
            while at <= total:
                tree[at] += 1
                at += at & -at
            last[row] = i
            if step >= warm:
                found[distance] += 1
    return found


def miss_curve(stream: Stream, sizes: Offsets) -> tuple[NDArray[Any], float]:
    """Misses per step of caches of some sizes, and distinct ids per step, on the training part."""
    distances = _reuse_distances(
        stream.ids, stream.begin[: stream.train + 1], stream.followed, stream.warm
    )
    used = np.cumsum(distances[::-1])[::-1]  # with at least so many rows in between
    steps = (stream.train - stream.warm) * stream.rate
    cached = np.minimum(np.rint(sizes * stream.rate).astype(np.int64), stream.followed)
    return used[cached] / steps, float(used[0]) / steps
