"""Weights and optimizer states of old and new modules: what ranks tell each other, and copying it.

Row-wise states have a number for each row of a shard, so that column shards of a table have one
such vector each. Their second dimension is counted in bands: the different column ranges of the old
shards. A new shard that lies in one band takes over its vector. A new shard over several bands gets
their vector if they agree. If they don't, the move fails, or the shard gets their mean, weighted by
the columns it has of each: what row-wise Adagrad would have had for the same gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from fastplan.model.plan import Shards
from fastplan.planning.exchange import Piece, Tensor, find_pieces, plan_rounds, sent_bytes
from fastplan.torchrec.live.agreement import Ranks, lost_contact
from fastplan.torchrec.table_state import Shard, State, Table

Key = tuple[str, str]  # of a table in state_dict(), and name of the state or "weight"
Rectangle = tuple[int, int, int, int]  # row, column, rows, columns
Band = tuple[int, int]  # first column, and the one after the last


class Description(NamedTuple):
    """What other ranks must know of a rank's shards of a tensor."""

    kind: str
    dtype: str
    element_size: int
    shards: tuple[Rectangle, ...]


class Canvas(NamedTuple):
    """A local shard as a matrix, and the place of its first element in the tensor."""

    cells: torch.Tensor
    row: int
    column: int

    def part(self, piece: Piece) -> torch.Tensor:
        """Returns the view of a piece."""
        top, left = piece.row - self.row, piece.column - self.column
        return self.cells[top : top + piece.rows, left : left + piece.columns]


def states_of(tables: Mapping[str, Table]) -> dict[Key, State]:
    """Returns the weights and states of tables that have shards here, except for scalars."""
    found = {}
    for key, table in tables.items():
        for state in (table.weight, *table.states.values()):
            if state.kind != "scalar" and state.shards:
                found[key, state.name] = state
    return found


def describe(states: Mapping[Key, State]) -> dict[Key, Description]:
    """Returns what other ranks must know of them."""
    return {
        key: Description(
            state.kind,
            str(state.shards[0].tensor.dtype),
            state.shards[0].tensor.element_size(),
            tuple((*shard.offsets, *shard.sizes) for shard in state.shards),
        )
        for key, state in states.items()
    }


def why_not_copied(
    held: Sequence[Mapping[Key, Description]], needed: Sequence[Mapping[Key, Description]]
) -> dict[str, str]:
    """Returns, by table, why its weights and states can't be copied.

    Args:
        held: what each rank has.
        needed: what each rank is to have.
    """
    reasons: dict[str, str] = {}
    old, new = _facts(held), _facts(needed)
    for key in dict.fromkeys((*old, *new)):
        table, state = key
        if key not in new:
            reasons[table] = f"its optimizer state `{state}` has no place after the move"
        elif key not in old and any(other == table and name != "weight" for other, name in old):
            reasons[table] = f"its optimizer has no state `{state}` before the move"
        elif key in old and old[key] != new[key]:
            what, to = (" ".join(facts[key]) for facts in (old, new))
            reasons[table] = f"`{state}` is {what} before the move and {to} after it"
    return reasons


def _facts(described: Sequence[Mapping[Key, Description]]) -> dict[Key, tuple[str, str]]:
    return {key: (own.kind, own.dtype) for of_rank in described for key, own in of_rank.items()}


class Transport:
    """Copies what this rank holds and exchanges what ranks lack, in bounded rounds.

    Attributes:
        bytes: bytes that ranks send each other, over all ranks.
        rounds: the pieces of each round.
    """

    def __init__(
        self,
        ranks: Ranks,
        held: Sequence[Mapping[Key, Description]],
        needed: Sequence[Mapping[Key, Description]],
        limit: int,
    ) -> None:
        """Works out who sends what; the same on all ranks.

        Raises:
            ValueError: the old shards of a tensor do not cover it. The message names it.
        """
        self._ranks = ranks
        # Without a state before, such as that of an optimizer that has made no step, none moves.
        self._keys = sorted({*_facts(held)} & {*_facts(needed)})
        self._bands = [_bands(held, key) for key in self._keys]
        self._tensors = [
            Tensor(f"{key[0]} {key[1]}", *_shards(held, needed, key, bands), _size(held, key))
            for key, bands in zip(self._keys, self._bands, strict=True)
        ]
        pieces = find_pieces(self._tensors, ranks.size)
        self.bytes = sent_bytes(pieces, self._tensors)
        self.rounds = plan_rounds(pieces, self._tensors, limit)
        self._local = [each for each in pieces if each.source == each.target == ranks.rank]

    def prepare(self, old: Mapping[Key, State], new: Mapping[Key, State], device: Any) -> None:
        """Copies what this rank has itself, and allocates what is needed for the exchange."""
        self._from, self._into = (
            [_canvases(states.get(key), bands) for key, bands in self._numbered()]
            for states in (old, new)
        )
        rank = self._ranks.rank
        self._first_held = [_first_of_rank(tensor.held, rank) for tensor in self._tensors]
        self._first_needed = [_first_of_rank(tensor.needed, rank) for tensor in self._tensors]
        self._targets = new
        for piece in self._local:
            self._target(piece).copy_(self._source(piece))
        outgoing, incoming = (
            max((sum(map(self._size, each)) for each in map(pick, self.rounds)), default=0)
            for pick in (self._outgoing, self._incoming)
        )
        self._send, self._receive = (
            torch.empty(size, dtype=torch.uint8, device=device) for size in (outgoing, incoming)
        )

    def exchange(self, number: int) -> Exception | None:
        """Exchanges a round. All ranks must call it.

        Returns:
            What failed on this rank. It has taken part in the round, so that no rank waits.

        Raises:
            ReshardError: another rank was lost.
        """
        outgoing, incoming = (
            pick(self.rounds[number]) for pick in (self._outgoing, self._incoming)
        )
        failed: Exception | None = None
        try:
            self._pack(outgoing)
        except Exception as error:
            failed = error
        sent, received = (
            self._by_peer(pieces, end)
            for pieces, end in ((outgoing, "target"), (incoming, "source"))
        )
        try:
            dist.all_to_all_single(
                self._receive[: sum(received)],
                self._send[: sum(sent)],
                output_split_sizes=received,
                input_split_sizes=sent,
                group=self._ranks.group,
            )
        except Exception as error:
            raise lost_contact("exchange shards", error) from error
        try:
            self._unpack(incoming)
        except Exception as error:
            failed = failed or error
        return failed

    def finish(self, merge: str) -> None:
        """Fills row-wise states that come from several bands.

        Raises:
            ValueError: the bands differ, and `merge` is not "mean".
        """
        for (key, bands), canvases in zip(self._numbered(), self._into, strict=True):
            state = self._targets.get(key)
            if state is None or state.kind != "rowwise":
                continue
            for shard, canvas in zip(state.shards, canvases, strict=True):
                if canvas.cells.shape[1] > 1:
                    _check_merge(key, canvas, merge)
                    shard.tensor.view(-1).copy_(_mean(canvas.cells, shard, bands))

    def _numbered(self) -> list[tuple[Key, tuple[Band, ...]]]:
        return list(zip(self._keys, self._bands, strict=True))

    def _source(self, piece: Piece) -> torch.Tensor:
        canvases = self._from[piece.tensor]
        return canvases[piece.held - self._first_held[piece.tensor]].part(piece)

    def _target(self, piece: Piece) -> torch.Tensor:
        canvases = self._into[piece.tensor]
        return canvases[piece.needed - self._first_needed[piece.tensor]].part(piece)

    def _outgoing(self, pieces: Sequence[Piece]) -> list[Piece]:
        mine = (piece for piece in pieces if piece.source == self._ranks.rank)
        return sorted(mine, key=lambda piece: piece.target)

    def _incoming(self, pieces: Sequence[Piece]) -> list[Piece]:
        mine = (piece for piece in pieces if piece.target == self._ranks.rank)
        return sorted(mine, key=lambda piece: piece.source)

    def _size(self, piece: Piece) -> int:
        return piece.cells * self._tensors[piece.tensor].element_size

    def _by_peer(self, pieces: Sequence[Piece], end: str) -> list[int]:
        sizes = [0] * self._ranks.size
        for piece in pieces:
            sizes[getattr(piece, end)] += self._size(piece)
        return sizes

    def _pack(self, pieces: Sequence[Piece]) -> None:
        at = 0
        for piece in pieces:
            size = self._size(piece)
            flat = self._source(piece).contiguous().view(-1).view(torch.uint8)
            self._send[at : at + size].copy_(flat)
            at += size

    def _unpack(self, pieces: Sequence[Piece]) -> None:
        at = 0
        for piece in pieces:
            size, target = self._size(piece), self._target(piece)
            data = self._receive[at : at + size]
            if at % target.element_size():
                data = data.clone()  # a view as larger elements must be aligned
            target.copy_(data.view(target.dtype).view(target.shape))
            at += size


def _bands(held: Sequence[Mapping[Key, Description]], key: Key) -> tuple[Band, ...]:
    """Returns the column ranges of the old shards of a row-wise state; none for other states."""
    owned = [of_rank[key] for of_rank in held if key in of_rank]
    if owned[0].kind != "rowwise":
        return ()
    found = {(column, column + width) for own in owned for _, column, _, width in own.shards}
    return tuple(sorted(found))


def _in_bands(rectangle: Rectangle, bands: Sequence[Band]) -> Rectangle:
    """Returns a rectangle with its columns counted in bands."""
    row, column, rows, columns = rectangle
    if not bands:
        return rectangle
    inside = [at for at, (a, b) in enumerate(bands) if a < column + columns and column < b]
    return row, inside[0], rows, len(inside)


def _shards(
    held: Sequence[Mapping[Key, Description]],
    needed: Sequence[Mapping[Key, Description]],
    key: Key,
    bands: Sequence[Band],
) -> tuple[Shards, Shards]:
    sides = (
        [
            (*_in_bands(rectangle, bands), rank)
            for rank, of_rank in enumerate(side)
            if key in of_rank
            for rectangle in of_rank[key].shards
        ]
        for side in (held, needed)
    )
    before, after = (np.array(side, np.int64).reshape(-1, 5) for side in sides)
    return before, after


def _size(held: Sequence[Mapping[Key, Description]], key: Key) -> int:
    return next(of_rank[key].element_size for of_rank in held if key in of_rank)


def _first_of_rank(shards: Shards, rank: int) -> int:
    return int(np.searchsorted(shards[:, 4], rank))


def _canvases(state: State | None, bands: Sequence[Band]) -> list[Canvas]:
    if state is None:
        return []
    if state.kind == "pointwise":
        return [Canvas(shard.tensor, *shard.offsets) for shard in state.shards]
    canvases = []
    for shard in state.shards:
        row, band, rows, count = _in_bands((*shard.offsets, *shard.sizes), bands)
        cells = shard.tensor.view(-1, 1) if count == 1 else shard.tensor.new_empty(rows, count)
        canvases.append(Canvas(cells, row, band))
    return canvases


def _check_merge(key: Key, canvas: Canvas, merge: str) -> None:
    differs = (canvas.cells != canvas.cells[:, :1]).any(dim=1).nonzero()
    if merge != "mean" and len(differs):
        raise ValueError(
            f"table {key[0]}: its state {key[1]} has a number per row and column shard, and "
            f"differs in row {canvas.row + int(differs[0])} between shards that one shard gets the "
            "columns of; keep the columns' cuts, or pass merge='mean'"
        )


def _mean(cells: torch.Tensor, shard: Shard, bands: Sequence[Band]) -> torch.Tensor:
    begin, end = shard.offsets[1], shard.offsets[1] + shard.sizes[1]
    widths = [max(0, min(b, end) - max(a, begin)) for a, b in bands]
    weights = torch.tensor([width for width in widths if width], dtype=torch.float64)
    mean = (cells.to(torch.float64) @ weights.to(cells.device) / (end - begin)).to(cells.dtype)
    agree = (cells == cells[:, :1]).all(dim=1)
    return torch.where(agree, cells[:, 0], mean)
