"""Tables that are split into blocks, rows by columns; shards go down the rows first.

Blocks are stored as runs, count x size, because most have the same size.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Shards

# More shards than any plan has, and few enough for memory.
MOST_SHARDS = 2**24

Runs = tuple[tuple[int, int], ...]  # (count, size)


class Cut(NamedTuple):
    """A table that is split into blocks."""

    rows: Runs
    columns: Runs

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = (sum(count * size for count, size in runs) for runs in self)
        return rows, columns

    @property
    def blocks(self) -> int:
        return blocks_in(self.rows) * blocks_in(self.columns)


def blocks_in(runs: Runs) -> int:
    """Returns the number of blocks in runs."""
    return sum(count for count, _ in runs)


def runs_of(sizes: Iterable[int]) -> Runs:
    """Returns the runs of block sizes."""
    return tuple((len([*group]), size) for size, group in groupby(sizes))


def merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Returns the runs with neighbours of one size merged, as `runs_of` returns them."""
    merged: list[tuple[int, int]] = []
    for count, size in runs:
        if merged and merged[-1][1] == size:
            count += merged.pop()[0]
        if count:
            merged.append((count, size))
    return tuple(merged)


def block_shards(cut: Cut, ranks: Any) -> Shards:
    """Returns the blocks of a cut as shards; `ranks` has a rank for each block."""
    heights, widths = (_expanded(runs) for runs in cut)
    shards = np.empty((len(heights) * len(widths), 5), np.int64)
    by_column = shards.reshape(len(widths), len(heights), 5)
    by_column[:, :, ROW] = np.cumsum(heights) - heights
    by_column[:, :, COLUMN] = (np.cumsum(widths) - widths)[:, None]
    by_column[:, :, ROWS] = heights
    by_column[:, :, COLUMNS] = widths[:, None]
    shards[:, RANK] = ranks
    return shards


def copy_shards(shape: tuple[int, int] | None, ranks: Any) -> Shards:
    """Returns a copy of the whole table on each rank; only the ranks if the shape is unknown."""
    shards = np.zeros((len(ranks), 5), np.int64)
    shards[:, ROWS], shards[:, COLUMNS] = shape or (0, 0)
    shards[:, RANK] = ranks
    return shards


def cut_of(shards: Shards) -> Cut | None:
    """Returns the cut whose blocks the shards are; None if they are not the blocks of a table."""
    if not len(shards) or shards.min() < 0:
        return None
    further = np.flatnonzero(shards[:, COLUMN])
    per_column = int(further[0]) if len(further) else len(shards)
    if not per_column or len(shards) % per_column:
        return None
    cut = Cut(
        runs_of(shards[:per_column, ROWS].tolist()), runs_of(shards[::per_column, COLUMNS].tolist())
    )
    blocks = block_shards(cut, shards[:, RANK])
    return cut if np.array_equal(shards, blocks) else None


def _expanded(runs: Runs) -> NDArray[np.int64]:
    count, size = np.array(runs, np.int64).reshape(-1, 2).T
    return np.repeat(size, count)
