"""Bytes that ranks must fetch to hold other shards than they do, counted by rectangles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Shards

Ints = NDArray[np.int64]

_NOBODY = -1


class Transfers(NamedTuple):
    """What is sent for one table: number of the new shard, ranks from and to, bytes."""

    shard: Ints
    source: Ints
    target: Ints
    bytes: Ints


class Flows:
    """Sums over tables, by rank: received from its own host and from others, sent, created.

    `transfers` gets what is sent of each table that is added, if it is a list.
    """

    def __init__(
        self, ranks: int, ranks_per_host: int | None, transfers: list[Transfers] | None = None
    ) -> None:
        self.transfers = transfers
        self.near = np.zeros(ranks, np.int64)
        self.far = np.zeros(ranks, np.int64)
        self.sent = np.zeros(ranks, np.int64)
        self.created = np.zeros(ranks, np.int64)
        self._host = np.arange(ranks) // (ranks_per_host or 1)

    def add(
        self,
        held: Shards,
        needed: Shards,
        *,
        held_copies: bool,
        needed_copies: bool,
        element_size: int,
        state: float,
    ) -> int:
        """Adds one table: what ranks hold of it, and what they need.

        Either side may be copies of the whole table. `state` is the size of the optimizer's
        state, relative to the weights. Returns the bytes that ranks need and do not hold.
        """

        def size(cells: Any) -> Ints:
            weights: Ints = np.asarray(cells, np.int64) * element_size
            optimizer: Ints = np.rint(weights * state).astype(np.int64)
            return weights + optimizer

        if not len(needed):
            return 0
        if needed_copies:
            needed = needed[np.unique(needed[:, RANK], return_index=True)[1]]
        if held_copies and len(held):
            return self._from_copies(held, needed, size)
        if needed_copies:
            return self._to_copies(held, needed, size)
        return self._from_shards(held, needed, size)

    def _from_shards(self, held: Shards, needed: Shards, size: Any) -> int:
        """Cell by cell of the grid that all shard borders make."""
        rows, columns = (_edges(held, needed, at) for at in ((ROW, ROWS), (COLUMN, COLUMNS)))
        cells = np.outer(np.diff(rows), np.diff(columns)).ravel()
        holder, shard = _owners(held, rows, columns), _owners(needed, rows, columns)
        source = np.append(held[:, RANK], _NOBODY)[holder]
        target = np.append(needed[:, RANK], _NOBODY)[shard]
        missing = (target != _NOBODY) & (target != source)
        return self._receive(source[missing], target[missing], size(cells[missing]), shard[missing])

    def _from_copies(self, held: Shards, needed: Shards, size: Any) -> int:
        """Every holder has all of the table, so a rank fetches what it needs from one of them."""
        holders = np.unique(held[:, RANK])
        target = needed[:, RANK]
        cells = needed[:, ROWS] * needed[:, COLUMNS]
        there = _inside(needed, held[0, ROWS], held[0, COLUMNS])
        lacking = ~np.isin(target, holders)
        count = self._create(target, size(cells - there))
        source = self._nearest(holders, target[lacking])
        shard = np.flatnonzero(lacking)
        return count + self._receive(source, target[lacking], size(there[lacking]), shard)

    def _to_copies(self, held: Shards, needed: Shards, size: Any) -> int:
        """Every rank of `needed` fetches all of the table, but for what it has."""
        targets = needed[:, RANK]
        shape = needed[0, ROWS], needed[0, COLUMNS]
        cells = _inside(held, *shape)
        own = np.zeros(len(self.near), np.int64)
        np.add.at(own, held[:, RANK], size(cells))
        by_host = np.zeros(len(self.near), np.int64)
        np.add.at(by_host, self._host, own)
        near = by_host[self._host[targets]] - own[targets]
        far = own.sum() - own[targets] - near
        self.near[targets] += near
        self.far[targets] += far
        self.sent += own * len(targets)
        self.sent[targets] -= own[targets]
        if self.transfers is not None:
            copy, source = (each.ravel() for each in np.indices((len(targets), len(own))))
            sent = (source != targets[copy]) & (own[source] > 0)
            copy, source = copy[sent], source[sent]
            self.transfers.append(Transfers(copy, source, targets[copy], own[source]))
        created = np.full(len(targets), size(shape[0] * shape[1] - cells.sum()))
        return int(near.sum() + far.sum()) + self._create(targets, created)

    def _receive(self, source: Ints, target: Ints, amount: Ints, shard: Ints) -> int:
        nowhere = source == _NOBODY
        self._create(target[nowhere], amount[nowhere])
        here = ~nowhere
        is_near = here & (self._host[source] == self._host[target])
        is_far = here & ~is_near
        np.add.at(self.near, target[is_near], amount[is_near])
        np.add.at(self.far, target[is_far], amount[is_far])
        np.add.at(self.sent, source[here], amount[here])
        if self.transfers is not None:
            self.transfers.append(
                Transfers(*(each[here] for each in (shard, source, target, amount)))
            )
        return int(amount.sum())

    def _create(self, target: Ints, amount: Ints) -> int:
        np.add.at(self.created, target, amount)
        return int(amount.sum())

    def _nearest(self, holders: Ints, targets: Ints) -> Ints:
        """A holder for each target, on its own host if there is one, taken in turn."""
        hosts = self._host[holders]
        begin = np.searchsorted(hosts, self._host[targets], "left")
        count = np.searchsorted(hosts, self._host[targets], "right") - begin
        alone = count == 0
        begin[alone], count[alone] = 0, len(holders)
        found: Ints = holders[begin + targets % count]
        return found


def _edges(held: Shards, needed: Shards, at: tuple[int, int]) -> Ints:
    """Where shards begin and end, each place once."""
    start, length = at
    starts = [side[:, start] for side in (held, needed)]
    ends = [side[:, start] + side[:, length] for side in (held, needed)]
    edges = np.concatenate(starts + ends)
    edges.sort(kind="stable")  # mostly a merge
    first: Ints = edges[np.append(True, edges[1:] != edges[:-1])]
    return first


def _owners(shards: Shards, rows: Ints, columns: Ints) -> Ints:
    """The shard that has each cell of a grid, row by row."""
    top = np.searchsorted(rows, shards[:, ROW])
    left = np.searchsorted(columns, shards[:, COLUMN])
    height = np.searchsorted(rows, shards[:, ROW] + shards[:, ROWS]) - top
    width = np.searchsorted(columns, shards[:, COLUMN] + shards[:, COLUMNS]) - left
    covered = height * width
    shard = np.repeat(np.arange(len(shards)), covered)
    number = np.arange(len(shard)) - np.repeat(np.cumsum(covered) - covered, covered)
    across = width[shard]
    row = top[shard] + number // across
    column = left[shard] + number % across
    owners = np.full((len(rows) - 1) * (len(columns) - 1), _NOBODY, np.int64)
    owners[row * (len(columns) - 1) + column] = shard
    return owners


def _inside(shards: Shards, rows: int, columns: int) -> Ints:
    """The cells of each shard that are in a table of this shape."""
    height = np.minimum(shards[:, ROW] + shards[:, ROWS], rows) - shards[:, ROW]
    width = np.minimum(shards[:, COLUMN] + shards[:, COLUMNS], columns) - shards[:, COLUMN]
    cells: Ints = np.maximum(height, 0) * np.maximum(width, 0)
    return cells
