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
HOST_KERNELS = ("fused_uvm", "fused_uvm_caching")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The ids of one table, step by step.

    Attributes:
        ids: of all steps; each has `per_step`.
        train: the first so many steps warm caches and are not counted.
    """

    ids: Ids
    per_step: int
    rows: int
    train: int

    @property
    def steps(self) -> int:
        return len(self.ids) // self.per_step


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
    ids: Ids, per_step: int, first: int, rows: int, capacity: int, skip: int
) -> tuple[int, int, int]:
    """Misses, evictions and distinct ids by step of a cache of some rows, after `skip` steps.

    The list of cached rows is linked in two directions; `rows` is its end and its beginning.
    """
    after = np.full(rows + 1, -1, np.int32)
    before = np.full(rows + 1, -1, np.int32)
    seen = np.full(rows, -1, np.int32)
    after[rows] = before[rows] = rows
    held = misses = evictions = distinct = 0
    for i in range(len(ids)):
        row = ids[i] - first
        if row < 0 or row >= rows:
            continue
        step = i // per_step
        if seen[row] == step:
            continue
        seen[row] = step
        counts = step >= skip
        distinct += counts
        if after[row] >= 0:
            after[before[row]] = after[row]
            before[after[row]] = before[row]
        else:
            misses += counts
            if capacity == 0:
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
    misses, evictions, distinct = _lru(
        stream.ids, stream.per_step, shard.first, shard.rows, cached, stream.train
    )
    steps = stream.steps - stream.train
    states = 2 * distinct * state_bytes
    if shard.kernel == "fused_uvm":
        # Read by the forward pass, read and written by the backward pass.
        return (3 * distinct * shard.row_bytes + states) / steps
    return ((misses + evictions) * shard.row_bytes + states) / steps


def miss_curve(stream: Stream, sizes: NDArray[np.int64]) -> tuple[NDArray[Any], float]:
    """Misses per step of caches of some sizes, and distinct ids per step, on the training part.

    Its first half warms the caches, its second half counts.
    """
    ids = stream.ids[: stream.train * stream.per_step]
    warm = stream.train // 2
    found = [_lru(ids, stream.per_step, 0, stream.rows, int(size), warm) for size in sizes]
    steps = stream.train - warm
    return np.array([misses for misses, _, _ in found]) / steps, found[0][2] / steps
