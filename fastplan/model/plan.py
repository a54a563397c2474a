"""Plans: as a few kB of plain data, and as layouts. Without torch."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fastplan.model.request import Cluster, Request
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES

if TYPE_CHECKING:
    from fastplan.engine.problem import SearchSpace


_VERSION = 1
_HEAD = struct.Struct("<BIId")
# Per table: request table, sharding type, kernel, load factor.
_ROW_BYTES = 4 + 1 + 1 + 8
# More than any plan has. They bound the memory that a few bytes can claim.
_MOST_TABLES = 1 << 20
_MOST_SHARDS = 1 << 22

AS_REQUESTED = math.nan  # the table has the request's cache load factor
NO_LOAD_FACTOR = -1.0  # it has none, but the request has one


class BadRecord(ValueError):
    """Bytes are not a packed plan, or a plan is not legal here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """An option per table in plan order, and the ranks of the shards that are not uniform."""

    table: NDArray[np.int32]  # plan position -> table of the request
    sharding_type: NDArray[np.uint8]  # index into vocabulary.SHARDING_TYPES
    kernel: NDArray[np.uint8]  # index into vocabulary.KERNELS
    load_factor: NDArray[np.float64]  # or AS_REQUESTED, NO_LOAD_FACTOR
    ranks: NDArray[np.int32]
    rating: float

    @staticmethod
    def of(space: SearchSpace, options: Any, ranks: Any, rating: float) -> PlanRecord:
        """Returns the record of a solution, given by the numbers of its options."""
        numbers = np.asarray(options, np.int64)
        tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
        return PlanRecord(
            table=tables[numbers].astype(np.int32),
            sharding_type=space.option_type[numbers],
            kernel=space.option_kernel[numbers],
            load_factor=np.full(len(numbers), AS_REQUESTED),
            ranks=np.asarray(ranks, np.int32),
            rating=float(rating),
        )

    def pack(self) -> bytes:
        """Returns the record as bytes. Equal records give equal bytes."""
        body = b"".join(
            (
                self.table.astype("<i4").tobytes(),
                self.sharding_type.astype("u1").tobytes(),
                self.kernel.astype("u1").tobytes(),
                self.load_factor.astype("<f8").tobytes(),
                self.ranks.astype("<i4").tobytes(),
            )
        )
        head = _HEAD.pack(_VERSION, len(self.table), len(self.ranks), self.rating)
        return head + zlib.compress(body, 6)

    @staticmethod
    def unpack(data: bytes) -> PlanRecord:
        """Returns the packed record. Raises BadRecord for any other bytes."""
        if len(data) < _HEAD.size:
            raise BadRecord("too short for a plan")
        version, tables, shards, rating = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise BadRecord(f"plan record version {version} is not {_VERSION}")
        if tables > _MOST_TABLES or shards > _MOST_SHARDS:
            raise BadRecord(f"{tables} tables and {shards} shards are too many")
        body = _inflate(data[_HEAD.size :], tables * _ROW_BYTES + shards * 4)
        kernels, factors, ranks = 5 * tables, 6 * tables, _ROW_BYTES * tables
        record = PlanRecord(
            table=np.frombuffer(body[: 4 * tables], "<i4").astype(np.int32),
            sharding_type=np.frombuffer(body[4 * tables : kernels], "u1").astype(np.uint8),
            kernel=np.frombuffer(body[kernels:factors], "u1").astype(np.uint8),
            load_factor=np.frombuffer(body[factors:ranks], "<f8").astype(np.float64),
            ranks=np.frombuffer(body[ranks:], "<i4").astype(np.int32),
            rating=rating,
        )
        record._check()
        return record

    def _check(self) -> None:
        count = len(self.table)
        if not count or (np.sort(self.table) != np.arange(count)).any():
            raise BadRecord("a plan must have every table once")
        if self.sharding_type.max() >= len(SHARDING_TYPES) or self.kernel.max() >= len(KERNELS):
            raise BadRecord("a sharding type or kernel is unknown")
        if self.ranks.min(initial=0) < 0:
            raise BadRecord("a rank is negative")
        factor = self.load_factor
        as_requested = np.isnan(factor)
        if not (
            as_requested.all()
            or (as_requested | (factor == NO_LOAD_FACTOR) | ((factor > 0) & (factor <= 1))).all()
        ):
            raise BadRecord("a cache load factor is not above 0 and at most 1")
        if not math.isfinite(self.rating) or self.rating < 0:
            raise BadRecord(f"the rating {self.rating} is not a cost")


def _inflate(data: bytes, size: int) -> bytes:
    """Decompresses exactly `size` bytes; raises BadRecord for any other size."""
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise BadRecord(f"the plan can't be read: {error}") from error
    if len(body) != size or not inflater.eof or inflater.unused_data:
        raise BadRecord("the plan's size does not match its header")
    return body


Shards = NDArray[np.int64]
ROW, COLUMN, ROWS, COLUMNS, RANK = range(5)


class TableLayout(NamedTuple):
    """The shards of one table and their ranks."""

    path: str  # module that holds it
    name: str
    sharding_type: str
    kernel: str
    # None if the source has no shape, as for data-parallel tables; rows and columns are then 0
    shape: tuple[int, int] | None
    shards: Shards  # one line each: row, column, rows, columns, rank; in TorchRec's order
    settings: dict[str, Any]  # other settings in the plan file, as JSON


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableColumns(Sequence[TableLayout]):
    """The tables of a layout as columns, for plans that are followed but seldom shown.

    Each access makes a new TableLayout, which takes longer than to follow its table.
    """

    keys: list[tuple[str, str]]  # module path and name
    sharding_types: list[str]
    kernels: list[str]
    shapes: list[tuple[int, int] | None]
    begin: NDArray[np.int64]  # first shard of each table, and the number of all
    shards: Shards
    settings: list[dict[str, Any]] | None = None  # None: no table has any

    @classmethod
    def of(cls, tables: Sequence[TableLayout]) -> TableColumns:
        """Returns any tables as columns."""
        if isinstance(tables, TableColumns):
            return tables
        shards = [table.shards for table in tables]
        return cls(
            keys=[(table.path, table.name) for table in tables],
            sharding_types=[table.sharding_type for table in tables],
            kernels=[table.kernel for table in tables],
            shapes=[table.shape for table in tables],
            begin=np.cumsum([0, *map(len, shards)], dtype=np.int64),
            shards=np.concatenate([np.empty((0, 5), np.int64), *shards]),
            settings=[table.settings for table in tables],
        )

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> TableLayout: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[TableLayout, ...]: ...
    def __getitem__(self, at: int | slice) -> TableLayout | tuple[TableLayout, ...]:
        if isinstance(at, slice):
            return tuple(self[i] for i in range(len(self))[at])
        at = range(len(self))[at]
        return TableLayout(
            *self.keys[at],
            self.sharding_types[at],
            self.kernels[at],
            self.shapes[at],
            self.shards[self.begin[at] : self.begin[at + 1]],
            {} if self.settings is None else self.settings[at],
        )

    def __iter__(self) -> Iterator[TableLayout]:
        return map(self.__getitem__, range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layouts of all tables, in the plan's order."""

    tables: Sequence[TableLayout]
    device: str | None = None  # kind of device, such as cuda
    ranks_per_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The input of a plan: enough to estimate, verify and rate it again."""

    canonical: bytes  # the canonical request, whose hash is the fingerprint
    request: Request
    cluster: Cluster
    record: PlanRecord
    certificate: bytes = b""  # packed proof of a bound on all plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A layout, with its origin if known."""

    name: str  # of the model, or of the file
    layout: Layout
    fingerprint: str | None = None
    notes: dict[str, str] = field(default_factory=dict)  # provenance: model, sku, engine, created
    basis: Basis | None = None  # None if only the layout is known

    @property
    def ranks(self) -> int:
        """The number of ranks; without a basis, one more than the largest rank in use."""
        if self.basis is not None:
            return len(self.basis.cluster.rank_hbm)
        return int(TableColumns.of(self.layout.tables).shards[:, RANK].max(initial=-1)) + 1

    @property
    def lower_bound(self) -> float | None:
        """The proven lower bound noted in the file, if any."""
        try:
            bound = float(self.notes["lower_bound"])
        except (KeyError, ValueError):
            return None
        return bound if 0 <= bound < math.inf else None
