"""Copies a state from a checkpoint into a part of a table, exactly or not at all.

A state is a number for each weight. A row-wise state has the same number for all columns of a
shard, so that a part of the table with other columns can have it exactly only if all shards that it
takes columns from agree. Cutting a shard always works: each part keeps the numbers of its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import Entry
from fastplan.checkpoint.sources import Piece, Region, Source
from fastplan.checkpoint.storage import Checkpoint


def overlap(a: Region, b: Region) -> Region | None:
    """Returns the common part of two regions of a table."""
    row, column = max(a.row, b.row), max(a.column, b.column)
    rows = min(a.row + a.rows, b.row + b.rows) - row
    columns = min(a.column + a.columns, b.column + b.columns) - column
    return Region(row, column, rows, columns) if rows > 0 and columns > 0 else None


def parts(source: Source, region: Region) -> list[tuple[Piece, Region]]:
    """Returns the pieces that a region of a table needs, each with the part that it gives.

    Raises:
        CheckpointError: the checkpoint does not cover the region.
    """
    found = [(p, common) for p in source.pieces if (common := overlap(p.region, region))]
    covered = sum(common.rows * common.columns for _, common in found)
    if source.kind != "scalar" and covered != region.rows * region.columns:
        raise CheckpointError(
            f"{source.entry.key}: the checkpoint covers {covered:,} of {region.rows:,} x "
            f"{region.columns:,} numbers at row {region.row}, column {region.column}"
        )
    return found


def merges(source: Source, region: Region) -> bool:
    """Whether a region takes a row-wise state from shards of different columns."""
    if source.kind != "rowwise":
        return False
    return len({(p.region.column, p.region.columns) for p, _ in parts(source, region)}) > 1


def copy_region(
    checkpoint: Checkpoint, source: Source, region: Region, target: torch.Tensor
) -> None:
    """Writes a region of a table into a tensor: (rows, columns), or a number for each row."""
    is_rowwise = source.kind == "rowwise"
    flat = target.view(-1) if is_rowwise else target
    for piece, common in parts(source, region):
        begin = common.row - piece.region.row
        left = common.column - piece.region.column
        for first, data in checkpoint.rows(source.entry, piece.chunk, begin, begin + common.rows):
            at = piece.region.row + first - region.row
            if is_rowwise:
                flat[at : at + data.shape[0]].copy_(data.view(-1))
            else:
                columns = slice(common.column - region.column,
                                common.column - region.column + common.columns)  # fmt: skip
                flat[at : at + data.shape[0], columns].copy_(data[:, left : left + common.columns])


def find_disagreement(checkpoint: Checkpoint, source: Source, region: Region) -> int | None:
    """Returns the first row whose row-wise state differs between shards that a region merges."""
    rows = torch.zeros(region.rows, dtype=source.entry.dtype)
    first = None
    for piece, common in parts(source, region):
        begin = common.row - piece.region.row
        for at, data in checkpoint.rows(source.entry, piece.chunk, begin, begin + common.rows):
            own = piece.region.row + at - region.row
            seen = rows[own : own + data.shape[0]]
            if common.column == region.column:
                seen.copy_(data.view(-1))
            elif len(unequal := torch.nonzero(_bits(seen) != _bits(data.view(-1)))):
                row = region.row + own + int(unequal[0])
                first = row if first is None else min(first, row)
    return first


def check_merge(merge: str) -> None:
    """Raises ValueError unless `merge` is a way to merge row-wise states."""
    if merge not in ("exact", "mean"):
        raise ValueError(f"`merge` must be 'exact' or 'mean', not {merge!r}")


def merge_mean(
    checkpoint: Checkpoint, source: Source, region: Region, target: torch.Tensor
) -> None:
    """Writes the mean over a region's columns of a row-wise state, computed in float64."""
    total = torch.zeros(region.rows, dtype=torch.float64)
    for piece, common in parts(source, region):
        begin = common.row - piece.region.row
        for at, data in checkpoint.rows(source.entry, piece.chunk, begin, begin + common.rows):
            own = piece.region.row + at - region.row
            total[own : own + data.shape[0]] += data.view(-1).double() * common.columns
    target.view(-1).copy_(total / region.columns)


def read_scalar(checkpoint: Checkpoint, source: Source) -> float:
    """Returns the number that a state holds.

    Raises:
        CheckpointError: shards of the table have different numbers.
    """
    values = {
        float(number)
        for piece in source.pieces
        for _, data in checkpoint.rows(
            source.entry, piece.chunk, 0, piece.chunk.sizes[0] if piece.chunk.sizes else 1
        )
        for number in data.view(-1)
    }
    if len(values) != 1:
        raise CheckpointError(
            f"{source.entry.key}: ranks have different values, {sorted(values)[:4]}"
        )
    return values.pop()


def copy_block(
    checkpoint: Checkpoint, entry: Entry, offsets: tuple[int, ...], target: torch.Tensor
) -> None:
    """Writes a part of a tensor of any shape, at these offsets, into a tensor.

    Raises:
        CheckpointError: the checkpoint does not cover the part.
    """
    if not entry.size:
        for _, data in checkpoint.rows(entry, entry.chunks[0], 0, 1):
            target.copy_(data.view(target.shape))
        return
    for chunk in entry.chunks:
        lows = [max(a, b) for a, b in zip(offsets, chunk.offsets, strict=True)]
        highs = [
            min(a + n, b + m)
            for a, n, b, m in zip(offsets, target.shape, chunk.offsets, chunk.sizes, strict=True)
        ]
        if any(low >= high for low, high in zip(lows, highs, strict=True)):
            continue
        inner = _slices(lows, highs, chunk.offsets)
        outer = _slices(lows, highs, offsets)
        for first, data in checkpoint.rows(entry, chunk, inner[0].start, inner[0].stop):
            at = outer[0].start + first - inner[0].start
            into = (slice(at, at + data.shape[0]), *outer[1:])
            picked = (slice(None), *inner[1:])
            target[into].copy_(data[picked])


def _slices(lows: list[int], highs: list[int], base: tuple[int, ...]) -> list[slice]:
    return [slice(a - c, b - c) for a, b, c in zip(lows, highs, base, strict=True)]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Returns numbers as integers with the same bits, so that NaN equals itself."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def cut_rows(rows: int, row_bytes: int, most: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into parts of at most `most` bytes: first row and number of rows of each."""
    step = max(1, most // max(1, row_bytes))
    for first in itertools.count(0, step):
        if first >= rows:
            return
        yield first, min(step, rows - first)
