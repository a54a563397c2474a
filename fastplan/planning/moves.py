"""The list of moves from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastplan.model.plan import RANK, Plan
from fastplan.model.units import format_count, format_size
from fastplan.planning.difference import table_name
from fastplan.planning.held import Key, by_key
from fastplan.planning.movement import Movement, Transfers, movement


class Move(NamedTuple):
    """Bytes of a new shard and the rank that holds them; None if that rank is lost."""

    path: str
    table: str
    shard: int  # number among the new shards of the table
    source: int | None
    target: int
    bytes: int  # weights and optimizer state


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """All moves, largest first. Ranks have the new numbers."""

    moves: tuple[Move, ...]
    movement: Movement  # the change of each table, and sums by rank
    removed: tuple[str, ...]  # removed tables
    # steps after which the better rating has saved the time of the moves, compared with only
    # the unavoidable moves; None if the moves do not improve the rating
    pays_back_after: float | None = None

    def __iter__(self) -> Iterator[Move]:
        return iter(self.moves)

    def __len__(self) -> int:
        return len(self.moves)

    def __repr__(self) -> str:
        """The sums. The moves themselves are what it iterates over."""
        text = f"{format_count(len(self), 'move')}, {format_size(self.bytes)}"
        if self.from_storage:
            text += f" ({format_size(self.from_storage)} from storage)"
        if self.seconds is not None:
            text += f", about {self.seconds:.3g} s"
        if self.removed:
            text += f", {format_count(len(self.removed), 'table')} removed"
        return f"Moves({text})"

    @property
    def bytes(self) -> int:
        """All bytes that ranks must fetch."""
        return self.movement.bytes

    @property
    def from_storage(self) -> int:
        """The bytes that no rank holds any longer, so that they come from storage."""
        return sum(move.bytes for move in self.moves if move.source is None)

    @property
    def seconds(self) -> float | None:
        """Estimated time of the rank that takes longest; None without known bandwidths."""
        return self.movement.seconds


def list_moves(before: Plan, after: Plan) -> Moves:
    """Lists the moves and the removed tables. `before` uses the rank numbers of `after`."""
    transfers: dict[Key, Transfers] = {}
    moved = movement(before, after, transfers)
    layouts = by_key(after)
    found: list[Move] = []
    for (path, name), sent in transfers.items():
        shards, ranks = layouts[path, name].shards, after.ranks
        # The copies are sorted by rank.
        copies = layouts[path, name].sharding_type == "data_parallel"
        order = np.unique(shards[:, RANK], return_index=True)[1] if copies else None
        sums: dict[tuple[int, int | None, int], int] = {}
        for shard, source, target, size in zip(*(each.tolist() for each in sent), strict=True):
            number = shard if order is None else int(order[shard])
            # Bytes of several lost ranks come from storage as one piece.
            key = number, source if source < ranks else None, target
            sums[key] = sums.get(key, 0) + size
        found += [
            Move(path, name, number, source, target, size)
            for (number, source, target), size in sums.items()
        ]
    return Moves(
        moves=tuple(sorted(found, key=_largest_first)),
        movement=moved,
        removed=tuple(
            table_name(table.path, table.name) for table in moved.tables if table.after is None
        ),
    )


def _largest_first(move: Move) -> tuple[int, Move]:
    return -move.bytes, move._replace(source=-1) if move.source is None else move
