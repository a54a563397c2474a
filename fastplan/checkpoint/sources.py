"""The tables of a checkpoint: which entries are weights and states, and what they cover.

A table's weights are the entry whose key ends with the table's key in `state_dict()`. Its states
are the entries below that key, in any nesting: `...KEY.NAME` as torch's and TorchRec's keyed
optimizers write them, or `...KEY.TABLE.NAME` as TorchRec's fused optimizers do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Literal, NamedTuple

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import Chunk, Entry

Kind = Literal["pointwise", "rowwise", "scalar"]

STEP = "step"
MOMENTUM1 = "momentum1"
# TorchRec's state dicts call the first state of a fused optimizer momentum1.
MOMENTUM_BUFFER = "momentum_buffer"
FIRST_STATES = ("sum", "exp_avg", MOMENTUM_BUFFER)
_STEP_NAMES = (STEP, "iter")


class Region(NamedTuple):
    """A part of a table: first row and column, rows and columns."""

    row: int
    column: int
    rows: int
    columns: int


class Piece(NamedTuple):
    """A part of a table in a checkpoint. A row-wise chunk covers all columns of its region."""

    region: Region
    chunk: Chunk


class Source(NamedTuple):
    """The weights or a state of a table in a checkpoint."""

    name: str  # as the checkpoint has it, without the table's name
    prefix: str  # of its key, before the table's
    entry: Entry
    kind: Kind
    pieces: tuple[Piece, ...]


class SourceTable(NamedTuple):
    """A table of a checkpoint."""

    key: str
    name: str
    rows: int
    columns: int
    weight: Source
    states: Mapping[str, Source]  # the step counter is always `step`

    def state(self, name: str) -> Source | None:
        """Returns a state by the name that torch's optimizers have for it."""
        found = self.states.get(name)
        if found is None and name in FIRST_STATES:
            return self.states.get(MOMENTUM1)
        return found


def table_name(key: str) -> str:
    """Returns the name of a table from its key in `state_dict()`."""
    return key.removesuffix(".weight").rpartition(".")[2]


def find_entry(entries: Mapping[str, Entry], key: str, under: str | None = None) -> Entry | None:
    """Returns the entry of a key of `state_dict()`, in any nesting.

    Args:
        entries: the checkpoint's entries.
        key: the key.
        under: the nesting to look in, such as `model`, if there are several.

    Raises:
        CheckpointError: there are several.
    """
    if under is not None:
        return entries.get(f"{under}.{key}" if under else key)
    found = [e for name, e in entries.items() if name == key or name.endswith(f".{key}")]
    if len(found) > 1:
        names = ", ".join(sorted(e.key for e in found))
        way_out = "give the part before it: `--under`, in Python the argument `under`"
        raise CheckpointError(
            f"{key}: the checkpoint has it {len(found)} times ({names}); {way_out}"
        )
    return found[0] if found else None


def nesting_of(entries: Mapping[str, Entry], keys: Collection[str]) -> str | None:
    """Returns the part of a checkpoint that has all of these keys of `state_dict()`, if it is one.

    The key of one module may end with that of another, so a key alone does not tell.
    """
    first = next(iter(keys), None)
    if first is None:
        return None
    ends = [name.removesuffix(first) for name in entries if name.endswith(first)]
    starts = [start for start in ends if not start or start.endswith(".")]
    whole = [start for start in starts if all(start + key in entries for key in keys)]
    return whole[0].removesuffix(".") if len(whole) == 1 else None


class StateIndex:
    """Finds the states below a key without a look at every entry for each of them.

    Args:
        entries: the checkpoint's entries.
        keys: the keys that may have states.
        weights: entries that are no states: a weight `gate` must not take those of `net.gate`.
    """

    def __init__(
        self, entries: Mapping[str, Entry], keys: Iterable[str], weights: Container[str] = ()
    ) -> None:
        self._found: dict[str, list[tuple[str, str, Entry]]] = {}
        known = set(keys)
        for entry in entries.values():
            if entry.key in weights:
                continue
            words = entry.key.split(".")
            # The longest key wins, and the last of these: a weight may have the name of a nesting.
            cuts = (
                (i, i + count)
                for count in range(len(words) - 1, 0, -1)
                for i in reversed(range(len(words) - count))
            )
            cut = next((cut for cut in cuts if ".".join(words[slice(*cut)]) in known), None)
            if cut is not None:
                prefix, key, rest = words[: cut[0]], words[slice(*cut)], words[cut[1] :]
                at = ".".join(prefix), ".".join(rest), entry
                self._found.setdefault(".".join(key), []).append(at)

    def states(self, key: str) -> dict[str, tuple[str, Entry]]:
        """Returns the states below a key by name: the prefix of their key, and their entry."""
        inner = f"{table_name(key)}."
        found: dict[str, tuple[str, Entry]] = {}
        for prefix, rest, entry in self._found.get(key, ()):
            name = rest.removeprefix(inner)
            name = STEP if name in _STEP_NAMES else name
            if name in found:
                raise CheckpointError(
                    f"{key}: the checkpoint has its state {name} twice: "
                    f"{found[name][1].key} and {entry.key}; save only one of them"
                )
            found[name] = prefix, entry
        return found


def read_table(
    entries: Mapping[str, Entry],
    index: StateIndex,
    key: str,
    under: str | None = None,
    *,
    states: bool = True,
) -> SourceTable:
    """Returns a table of a checkpoint, with its states or without.

    Raises:
        CheckpointError: the table is missing, or a state doesn't cover it.
    """
    entry = find_entry(entries, key, under)
    if entry is None:
        raise CheckpointError(f"table {key}: not in the checkpoint{_nearest(entries, key)}")
    if entry.dtype is None or len(entry.size) != 2:
        raise CheckpointError(f"table {key}: {entry.key} is not a matrix in the checkpoint")
    pieces = tuple(Piece(Region(*c.offsets, *c.sizes), c) for c in entry.chunks)
    prefix = entry.key.removesuffix(key).rstrip(".")
    weight = Source("weight", prefix, entry, "pointwise", pieces)
    found = {}
    for name, (at, own) in index.states(key).items() if states else ():
        if own.dtype is not None:  # other values are hyperparameters
            found[name] = _state(key, name, at, own, weight)
    return SourceTable(key, table_name(key), *entry.size, weight, found)


def _nearest(entries: Mapping[str, Entry], key: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, [e.key for e in entries.values() if len(e.size) == 2], 1, 0.6)
    return f"; the nearest key there is {close[0]}" if close else ""


def _state(key: str, name: str, prefix: str, entry: Entry, weight: Source) -> Source:
    rows, columns = weight.entry.size
    cuts = column_cuts(piece.region for piece in weight.pieces)
    if name == STEP:
        pieces = tuple(Piece(Region(0, 0, rows, columns), chunk) for chunk in entry.chunks)
        return Source(name, prefix, entry, "scalar", pieces)
    if entry.size == (rows, columns):
        pieces = tuple(Piece(Region(*c.offsets, *c.sizes), c) for c in entry.chunks)
        return Source(name, prefix, entry, "pointwise", pieces)
    if entry.size in ((rows,), (rows, 1)):
        pieces = tuple(Piece(Region(c.offsets[0], 0, c.sizes[0], columns), c) for c in entry.chunks)
        return Source(name, prefix, entry, "rowwise", pieces)
    if len(cuts) > 1 and entry.size == (rows * len(cuts),):
        return Source(name, prefix, entry, "rowwise", _stacked(key, entry, weight))
    if math.prod(entry.size) == 1:
        pieces = tuple(Piece(Region(0, 0, rows, columns), chunk) for chunk in entry.chunks)
        return Source(name, prefix, entry, "scalar", pieces)
    raise CheckpointError(
        f"table {key}: its state {name} has shape {entry.size} in the checkpoint, which does not "
        f"cover a table of {(rows, columns)}. Plain DCP keeps only one rank's part of the states "
        "of a sharded table with a dense kernel; save with fastplan.checkpoint, or load the "
        "weights alone with states=False"
    )


def column_cuts(regions: Iterable[Region]) -> list[tuple[int, int]]:
    """Returns the column ranges that a table is cut into, in order."""
    return sorted({(region.column, region.columns) for region in regions})


def stacked_offsets(regions: Iterable[Region]) -> dict[Region, int]:
    """Returns where TorchRec puts the row-wise states of shards: one below the other.

    The vectors of column shards follow each other in the order of columns, and within a column
    range in the order of rows.
    """
    found, at = {}, 0
    for region in sorted(set(regions), key=lambda region: (region.column, region.row)):
        found[region] = at
        at += region.rows
    return found


def _stacked(key: str, entry: Entry, weight: Source) -> tuple[Piece, ...]:
    """Returns the pieces of a row-wise state of a table that is cut by columns.

    Chunks of weights and states need not be alike: only the ranges of columns count.
    """
    rows = weight.entry.size[0]
    cuts = column_cuts(piece.region for piece in weight.pieces)
    ends = [first + width for first, width in cuts]
    if [first for first, _ in cuts] != [0, *ends[:-1]]:
        raise CheckpointError(f"table {key}: its weights are cut into columns that overlap")
    pieces = []
    for chunk in entry.chunks:
        part, row = divmod(chunk.offsets[0], rows)
        if row + chunk.sizes[0] > rows:
            raise CheckpointError(
                f"table {key}: a part of {entry.key} belongs to several column shards"
            )
        column, columns = cuts[part]
        pieces.append(Piece(Region(row, column, chunk.sizes[0], columns), chunk))
    return tuple(pieces)
