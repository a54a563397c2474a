"""The assignment problem: who goes where so that the sum of gains is largest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assign(gain: NDArray[np.float64]) -> list[int]:
    """The column of each row of a square matrix, each column once, with the largest sum.

    The Hungarian method: rows enter one by one, each along the cheapest way to a free column.
    """
    size = len(gain)
    cost = gain.max(initial=0.0) - gain
    of_row, of_column = np.zeros(size), np.zeros(size + 1)
    row_at = np.full(size + 1, -1)  # of each column; the last column is where a new row waits
    for row in range(size):
        row_at[size], at = row, size
        least, came_from = np.full(size, np.inf), np.full(size, size)
        done = np.zeros(size + 1, bool)
        while row_at[at] >= 0:
            done[at] = True
            here = row_at[at]
            reduced = cost[here] - of_row[here] - of_column[:size]
            better = ~done[:size] & (reduced < least)
            least[better], came_from[better] = reduced[better], at
            at = int(np.where(done[:size], np.inf, least).argmin())
            step = least[at]
            of_row[row_at[done]] += step
            of_column[done] -= step
            least[~done[:size]] -= step
        while at != size:
            row_at[at] = row_at[came_from[at]]
            at = int(came_from[at])
        row_at[size] = -1
    columns = [0] * size
    for column in range(size):
        columns[int(row_at[column])] = column
    return columns
