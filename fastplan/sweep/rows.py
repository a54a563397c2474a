"""The results of a sweep: a row per cell, and the results file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, BinaryIO, get_type_hints

from fastplan.sweep.sweep import Cell, SweepError

_LONGEST_LINE = 1 << 16
_BEGINNING = b'{"id": "'  # of every row


class RowError(ValueError):
    """A line that is not a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one cell. Memory is that for tables, after the reservation."""

    id: str
    model: str
    sku: str
    world_size: int
    hosts: int
    batch: int
    batch_size: int
    precision: str
    fits: bool | None = None  # None: no answer, see `error`
    rating: float | None = None  # milliseconds, as the costs of the spec estimate them
    step: float | None = None  # predicted milliseconds; None with TorchRec's costs
    lower_bound: float | None = None  # of optimized plans: no plan has a lower rating
    tier: str | None = None  # the memory that `headroom` is of
    # On the rank with the least free memory, in bytes and as a share of its memory. Below 0: the
    # approximate memory that every rank lacks; None if more would not help.
    headroom_bytes: int | None = None
    headroom: float | None = None
    hbm_bytes: int | None = None  # used on all ranks together
    ddr_bytes: int | None = None
    ssd_bytes: int | None = None
    shortage: str | None = None  # why it does not fit
    key: str | None = None  # in the cache
    cache: str = "off"  # hit, miss (and stored since), off or failed
    seconds: float = 0.0
    error: str | None = None
    warning: str | None = None  # why the cache failed

    @property
    def time(self) -> float | None:
        """The milliseconds to compare clusters by: the predicted step, or else the rating."""
        return self.rating if self.step is None else self.step

    def answer(self) -> dict[str, Any]:
        """Returns the fields that are not part of the cell."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _OF_CELL}

    def same_answer(self, other: Row) -> bool:
        """Returns whether both have the same result for the same cell."""
        one, two = asdict(self), asdict(other)
        return all(one[name] == two[name] for name in one if name not in _OF_RUN)


_OF_CELL = ("id", "model", "sku", "world_size", "hosts", "batch", "batch_size", "precision")
_OF_RUN = ("cache", "seconds", "warning")


def row_of(cell: Cell, **answer: Any) -> Row:
    """Returns the row of a cell."""
    return Row(**{name: getattr(cell, name) for name in _OF_CELL}, **answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """All rows, in the order of the cells."""

    rows: tuple[Row, ...]
    known: int = 0  # rows that were in the results file before
    seconds: float = 0.0
    global_batch: bool = False
    prices: Mapping[str, float] = field(default_factory=dict)  # per rank and hour, by SKU

    @property
    def fitting(self) -> tuple[Row, ...]:
        """The rows of cells with a plan."""
        return tuple(row for row in self.rows if row.fits)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows of cells without an answer; `error` says why."""
        return tuple(row for row in self.rows if row.fits is None)

    @property
    def unstored(self) -> tuple[Row, ...]:
        """The rows whose plan could not be looked up or stored."""
        return tuple(row for row in self.rows if row.cache == "failed")


class ResultsFile:
    """A file of rows as JSON lines. New rows are appended.

    Reading skips incomplete lines of a killed process and lines that are not rows. Files can be
    concatenated. The last row of a cell counts.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def read(self) -> dict[str, Row]:
        """Returns the rows by id; none if the file does not exist.

        Raises:
            OSError: The file can't be read.
            SweepError: It is not a results file, so rows must not be appended.
        """
        found = {}
        foreign = False
        try:
            with open(self.path, "rb") as stream:
                for line in _lines(stream):
                    try:
                        row = _parsed(line)
                        found[row.id] = row
                    except RowError:
                        foreign = foreign or not line.startswith(_BEGINNING[: len(line)])
        except FileNotFoundError:
            return {}
        if foreign and not found:
            raise SweepError(f"{self.path} is not a results file: choose another file")
        return found

    def append(self, rows: Iterable[Row]) -> None:
        """Appends rows, in one write unless the disk is full.

        Raises:
            OSError: The rows can't be written.
        """
        text = "".join(f"{json.dumps(asdict(row), allow_nan=False)}\n" for row in rows)
        with open(self.path, "a+b", buffering=0) as stream:
            if text and stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    text = f"\n{text}"
            rest = text.encode()
            try:
                while rest:
                    rest = rest[stream.write(rest) :]
            except OSError as error:  # without the name of the file
                raise OSError(error.errno, error.strerror, self.path) from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yields lines that are not empty; only the beginning of a line too long to be a row."""
    while line := stream.readline(_LONGEST_LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(_LONGEST_LINE)
        if line.strip():
            yield line


def _parsed(line: bytes) -> Row:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowError(str(error)) from error
    if not isinstance(values, dict):
        raise RowError("not an object")
    types = _types()
    for name, value in values.items():
        if name not in types:
            raise RowError(f"unknown field {name}")
        if isinstance(value, float) and not math.isfinite(value):
            raise RowError(f"{name} is not finite")
        if not isinstance(value, types[name]):
            raise RowError(f"{name} has the wrong type")
    try:
        return Row(**values)
    except TypeError as error:
        raise RowError(str(error)) from error


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Row)
