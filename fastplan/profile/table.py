"""The ids of one table while batches arrive, and as data that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastplan.engine.id_stream import IdStream
from fastplan.model.ids import IdStatistics
from fastplan.profile.curves import statistics_of
from fastplan.profile.summary import EDGES, Summary, summarize

# Ids that one table follows at most, and those of all tables together: some 200 bytes each.
MOST_FOLLOWED = 1 << 17
LEAST_FOLLOWED = 1 << 12
_MOST_IN_ALL = 1 << 21


def default_limit(tables: int) -> int:
    """Returns how many ids each of so many tables may follow, so that all take about 400 MB."""
    share = _MOST_IN_ALL // max(1, tables)
    return min(MOST_FOLLOWED, max(LEAST_FOLLOWED, 1 << (max(1, share).bit_length() - 1)))


class TableProfile:
    """Follows the ids of a table.

    Args:
        limit: The most ids to follow; a power of two. Streams with no more distinct ids are exact.
    """

    def __init__(self, limit: int = MOST_FOLLOWED) -> None:
        self._stream = IdStream(limit)
        self._lengths = np.zeros(len(EDGES))
        self._samples = 0

    @property
    def ids(self) -> int:
        """The number of ids so far."""
        return self._stream.ids

    def add(self, ids: ArrayLike, lengths: ArrayLike) -> None:
        """Adds a batch.

        Args:
            ids: The ids in the order of a batch, of all features of the table.
            lengths: How many of them each sample has.

        Raises:
            ValueError: They are not whole numbers, or the lengths don't add up to the ids.
        """
        values, counts = whole_bags(ids, lengths)
        self._stream.add(values)
        bins = np.searchsorted(EDGES, counts.astype(np.uint64), side="right") - 1
        self._lengths += np.bincount(bins, minlength=len(EDGES))
        self._samples += len(counts)

    def summary(self) -> Summary:
        """Returns the sums over everything so far."""
        return summarize(self._stream.columns(), self._samples, self._lengths.copy())

    def statistics(self) -> IdStatistics | None:
        """Returns the statistics of everything so far; None without any id."""
        return statistics_of(self.summary()) if self.ids else None

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the state, to be stored."""
        own = {"samples": np.array([self._samples], np.int64), "lengths": self._lengths.copy()}
        return {**self._stream.columns(), **own}

    def restore(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Continues where another profile with the same limit ended.

        Raises:
            TypeError: The state can't be that of a profile. The message says what is wrong.
        """
        lengths, samples = columns.get("lengths"), columns.get("samples")
        if lengths is None or lengths.shape != self._lengths.shape or lengths.dtype != np.float64:
            raise TypeError(f"`lengths` must be {len(EDGES)} numbers")
        if samples is None or samples.shape != (1,) or samples.dtype != np.int64:
            raise TypeError("`samples` must be a whole number")
        if not np.all((lengths >= 0) & (lengths <= 2.0**62)) or samples[0] != lengths.sum():
            raise TypeError("`lengths` must be as many as `samples`")
        stream = IdStream(self._stream.limit)
        stream.restore(dict(columns))
        self._stream = stream
        self._lengths, self._samples = lengths.copy(), int(samples[0])


def whole_bags(ids: ArrayLike, lengths: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns ids and the lengths of their samples as `TableProfile.add` has them.

    Raises:
        ValueError: They are not whole numbers, or the lengths don't add up to the ids.
    """
    values, counts = _whole("ids", ids), _whole("lengths", lengths)
    if len(counts) and counts.min() < 0:
        raise ValueError("`lengths` must not be negative")
    if int(counts.sum()) != len(values):
        raise ValueError(
            f"`lengths` must add up to the {len(values)} ids, not to {int(counts.sum())}"
        )
    return values, counts


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    found = np.asarray(values)
    if found.ndim != 1:
        raise ValueError(f"`{name}` must be one-dimensional")
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"`{name}` must be whole numbers, not {found.dtype}")
    return np.ascontiguousarray(found, np.int64)
