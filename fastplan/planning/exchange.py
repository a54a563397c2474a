"""What ranks lack of tensors whose shards change, who sends it, and in which round. Without torch.

A tensor is a table's weights or a state of its optimizer. Its shards are rectangles on ranks. Old
shards either differ, and then they don't overlap, or they are copies of each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Shards


class Piece(NamedTuple):
    """A rectangle that a rank takes from an old shard into a new one.

    `source` and `target` are ranks. If they are equal, the rank has the rectangle already.
    """

    tensor: int
    source: int
    target: int
    held: int  # number of the old shard
    needed: int  # number of the new shard
    row: int
    column: int
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns


class Tensor(NamedTuple):
    """The old and the new shards of a tensor, and the bytes of an element."""

    name: str
    held: Shards
    needed: Shards
    element_size: int


def find_pieces(tensors: Sequence[Tensor], ranks: int) -> list[Piece]:
    """Returns the pieces that fill all new shards, each cell of them once.

    A rank takes what it holds from itself. It gets everything else from the rank that holds it and
    has sent the fewest bytes so far. The result depends on the arguments only, so that all ranks
    compute the same.

    Args:
        tensors: the old and new shards of each tensor.
        ranks: the number of ranks.

    Raises:
        ValueError: nobody holds a part of a new shard, or old shards overlap.
    """
    sent = [0] * ranks
    pieces: list[Piece] = []
    for number, tensor in enumerate(tensors):
        holders = _Holders(tensor)
        for needed, shard in enumerate(tensor.needed.tolist()):
            target = shard[RANK]
            for held, rectangle in holders.overlaps(shard):
                held_by = holders.copies[held]
                source = _choose(held_by, target, sent)
                piece = Piece(number, source, target, held_by[source], needed, *rectangle)
                if source != target:
                    sent[source] += piece.cells * tensor.element_size
                pieces.append(piece)
    return pieces


class _Holders:
    """The different old shards of a tensor, and for each the ranks that have it."""

    def __init__(self, tensor: Tensor) -> None:
        self._name = tensor.name
        different: dict[tuple[int, ...], int] = {}
        self.copies: list[dict[int, int]] = []  # of each different shard: rank -> shard number
        for number, shard in enumerate(tensor.held.tolist()):
            at = different.setdefault((*shard[:RANK],), len(self.copies))
            if at == len(self.copies):
                self.copies.append({})
            self.copies[at].setdefault(shard[RANK], number)
        self._begin = np.array([[key[ROW], key[COLUMN]] for key in different], np.int64)
        sizes = np.array([[key[ROWS], key[COLUMNS]] for key in different], np.int64)
        self._begin, sizes = self._begin.reshape(-1, 2), sizes.reshape(-1, 2)
        self._end = self._begin + sizes

    def overlaps(self, shard: Sequence[int]) -> Iterable[tuple[int, tuple[int, int, int, int]]]:
        """Returns the old shards that fill a new one, each with its part: row, column, sizes."""
        corner = np.array([shard[ROW], shard[COLUMN]])
        size = np.array([shard[ROWS], shard[COLUMNS]])
        begin = np.maximum(self._begin, corner)
        extent = np.minimum(self._end, corner + size) - begin
        found = np.flatnonzero((extent > 0).all(axis=1))
        covered = int(extent[found].prod(axis=1).sum())
        if covered != size.prod():
            what = "more than once" if covered > size.prod() else "only in part"
            raise ValueError(
                f"{self._name}: ranks hold rows {shard[ROW]} to {shard[ROW] + shard[ROWS] - 1}, "
                f"columns {shard[COLUMN]} to {shard[COLUMN] + shard[COLUMNS] - 1} {what}; "
                "the old shards must cover the table without overlaps, or be copies of it"
            )
        rectangles = np.concatenate([begin[found], extent[found]], axis=1).tolist()
        return zip(found.tolist(), (tuple(each) for each in rectangles), strict=True)


def _choose(held_by: dict[int, int], target: int, sent: list[int]) -> int:
    if target in held_by:
        return target
    return min(held_by, key=lambda rank: (sent[rank], rank))


def sent_bytes(pieces: Iterable[Piece], tensors: Sequence[Tensor]) -> int:
    """Returns the bytes that go from one rank to another."""
    return sum(
        piece.cells * tensors[piece.tensor].element_size
        for piece in pieces
        if piece.source != piece.target
    )


def plan_rounds(
    pieces: Iterable[Piece], tensors: Sequence[Tensor], limit: int
) -> list[list[Piece]]:
    """Divides what ranks send each other into rounds.

    In a round no rank sends more than `limit` bytes, nor receives more. Pieces are cut between
    rows; only if a single row is larger than `limit`, a round has that row alone on its ranks.

    Returns:
        The pieces of each round. Those that a rank takes from itself are left out.
    """
    rounds: list[list[Piece]] = []
    used: list[defaultdict[tuple[str, int], int]] = []  # by round: ("out" or "in", rank) -> bytes
    first_open: defaultdict[tuple[str, int], int] = defaultdict(int)
    for piece in pieces:
        if piece.source == piece.target:
            continue
        ends = (("out", piece.source), ("in", piece.target))
        row_bytes = piece.columns * tensors[piece.tensor].element_size
        row, end = piece.row, piece.row + piece.rows
        at = max(first_open[key] for key in ends)
        while row < end:
            if at == len(rounds):
                rounds.append([])
                used.append(defaultdict(int))
            room = limit - max(used[at][key] for key in ends)
            rows = min(end - row, room // row_bytes)
            if rows == 0 and room == limit:
                rows = 1
            if rows > 0:
                rounds[at].append(piece._replace(row=row, rows=rows))
                for key in ends:
                    used[at][key] += rows * row_bytes
                row += rows
            else:
                at += 1
        for key in ends:
            while first_open[key] < len(used) and used[first_open[key]][key] >= limit:
                first_open[key] += 1
    return rounds
