"""One table of a plan file: reads, checks and writes its JSON object.

Shards that split a table into row and column blocks are written as those blocks and their ranks:

    {"sharding_type": "row_wise", "compute_kernel": "fused", "shape": [1000000, 64],
     "row_blocks": ["1023 x 977", 529], "ranks": ["0-1023"]}

Blocks that are omitted are one block. Shards are in column-major order, and each is where TorchRec
places its rank. Any other shards are listed one by one under `shards`, which is null for a table
without a sharding spec.

Annotations are not strings here, because msgspec would have to evaluate those.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, ValidationError, convert
from msgspec.structs import asdict

from fastplan.files.kinds import plain_whole, with_problem
from fastplan.model.cuts import MOST_SHARDS, Cut, Runs, blocks_in
from fastplan.model.plan import Shards
from fastplan.plans.checks import (
    LARGEST,
    BadValue,
    as_struct,
    as_whole,
    below,
    read_placement,
    refuse,
)

# Settings of a table in a plan, in addition to its layout. Only TorchRec interprets them.
SETTINGS = (
    "cache_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
    "key_value_params",
)

# Limits beyond any real cluster and memory; below them, sums of bytes fit into 64 bits.
MOST_RANKS = 2**20
MOST_CELLS = 2**56
RankRuns = tuple[tuple[int, int], ...]  # (first, last)

_settings_of, _NO_SETTINGS = attrgetter(*SETTINGS), (UNSET,) * len(SETTINGS)
_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)
_BLOCKS = re.compile(r"(\d{1,9}) x (\d{1,19})", re.ASCII)
_BLOCK_FIELDS = ("shape", "row_blocks", "column_blocks")

Whole = Annotated[int, plain_whole()]


class ListedShard(Struct, frozen=True, forbid_unknown_fields=True):
    """A shard in the list `shards`."""

    offset: list[Whole]
    size: list[Whole]
    placement: str | None

    def json(self) -> dict[str, Any]:
        """Returns the JSON object of the shard."""
        return asdict(self)


class TableFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON object of a table."""

    sharding_type: str
    compute_kernel: str
    shape: (
        Annotated[tuple[Whole, Whole], with_problem("must be two numbers, rows and columns")]
        | UnsetType
    ) = UNSET
    row_blocks: list[Any] | UnsetType = UNSET
    column_blocks: list[Any] | UnsetType = UNSET
    ranks: list[Any] | None
    shards: list[ListedShard] | UnsetType | None = UNSET
    cache_params: Any = UNSET
    enforce_hbm: Any = UNSET
    stochastic_rounding: Any = UNSET
    bounds_check_mode: Any = UNSET
    output_dtype: Any = UNSET
    key_value_params: Any = UNSET


class TableEntry(NamedTuple):
    """A table in a plan file: with blocks, with listed shards, or without shards."""

    path: str
    name: str
    sharding_type: str
    kernel: str
    ranks: RankRuns | None
    cut: Cut | None
    listed: tuple[ListedShard, ...] | None
    settings: dict[str, Any]

    @property
    def place(self) -> str:
        """The place in the file."""
        return below(below("modules", self.path), self.name)

    def all_ranks(self) -> list[int]:
        """Returns all ranks; an empty list if they are unknown."""
        return list(chain.from_iterable(range(first, last + 1) for first, last in self.ranks or ()))

    def json(self) -> dict[str, Any]:
        """Returns the JSON object of the table."""
        entry: dict[str, Any] = {
            "sharding_type": self.sharding_type,
            "compute_kernel": self.kernel,
        }
        if self.cut is not None:
            entry["shape"] = list(self.cut.shape)
            for name, runs in zip(_BLOCK_FIELDS[1:], self.cut, strict=True):
                if blocks_in(runs) > 1:
                    entry[name] = [f"{n} x {size}" if n > 1 else size for n, size in runs]
        entry["ranks"] = None if self.ranks is None else _rank_items(self.ranks)
        if self.cut is None:
            entry["shards"] = self.listed and [shard.json() for shard in self.listed]
        return entry | self.settings


def rank_runs(ranks: Any) -> RankRuns:
    """Returns ranks as runs of consecutive ranks."""
    numbers = np.asarray(ranks, np.int64)
    if not len(numbers):
        return ()
    ends = np.flatnonzero(np.diff(numbers) != 1)
    first = numbers[[0, *(ends + 1)]].tolist()
    last = numbers[[*ends, -1]].tolist()
    return tuple(zip(first, last, strict=True))


def _rank_items(runs: RankRuns) -> list[int | str]:
    items: list[int | str] = []
    for first, last in runs:
        items += [f"{first}-{last}"] if last > first + 1 else range(first, last + 1)
    return items


def listed_shards(entry: TableEntry) -> Shards:
    """Returns listed shards for a layout. Placements take precedence over `ranks`.

    Raises:
        BadValue: A shard names no rank, or is not inside a table of valid size.
    """
    place = below(entry.place, "shards")
    listed = entry.listed or ()
    ranks = entry.all_ranks()
    lines = []
    for i, shard in enumerate(listed):
        offset, size, placement = shard.offset, shard.size, shard.placement
        if not 1 <= len(size) <= 2:
            refuse(below(f"{place}[{i}]", "size"), "rows and columns", size)
        device = None
        if placement is not None:
            device = read_placement(placement, below(f"{place}[{i}]", "placement"))
        if device is None and len(ranks) != len(listed):
            raise BadValue(f"{place}[{i}]", "names no rank, so its place is unknown")
        rank = ranks[i] if device is None else device.rank
        ends = [start + length for start, length in zip(offset, size, strict=True)]
        if max(ends) > MOST_CELLS:
            refuse(f"{place}[{i}]", f"inside a table of up to {MOST_CELLS} cells", ends)
        lines.append((*(*offset, 0)[:2], *(*size, 1)[:2], rank))
    return np.array(lines, np.int64).reshape(-1, 5)


class EntryReader:
    """Reads the tables of one file and limits the number of their shards."""

    def __init__(self, *, has_device: bool, ranks: int | None = None) -> None:
        self._has_device = has_device
        self._ranks = ranks  # of a topology, if any
        self._shards = 0
        self._ranges: dict[str, tuple[int, int]] = {}

    def read(
        self, path: str, name: str, value: Any, fields: TableFields | None = None
    ) -> TableEntry:
        """Reads a table.

        Args:
            path: The path of its module.
            name: Its name.
            value: Its JSON object.
            fields: The decoded object, if `decoded` has decoded it.

        Raises:
            BadValue: The object is invalid.
        """
        if fields is not None and (entry := self._whole(path, name, fields)) is not None:
            return entry
        try:
            fields = fields or as_struct(value, TableFields)
            ranks = None if fields.ranks is None else self._rank_runs(fields.ranks)
            cut, listed = self._shards_of(fields, ranks)
        except BadValue as error:
            raise error.inside(below(below("modules", path), name)) from error
        if cut is not None and not self._has_device:
            place = below(below("modules", path), name)
            raise BadValue("device", f"must be known, because {place} has blocks")
        return TableEntry(
            path,
            name,
            fields.sharding_type,
            fields.compute_kernel,
            ranks,
            cut,
            listed,
            _settings(fields),
        )

    def _whole(self, path: str, name: str, fields: TableFields) -> TableEntry | None:
        """Returns the entry of a table that is one block, as most are; None for any other."""
        shape, ranks = fields.shape, fields.ranks
        if shape is UNSET or fields.shards is not UNSET or ranks is None or len(ranks) != 1:
            return None
        if fields.row_blocks is not UNSET or fields.column_blocks is not UNSET:
            return None
        rank = ranks[0]
        most = LARGEST if self._ranks is None else self._ranks - 1
        if type(rank) is not int or not 0 <= rank <= most or not self._has_device:
            return None
        if self._shards >= MOST_SHARDS:
            return None
        self._shards += 1
        cut = Cut(((1, shape[0]),), ((1, shape[1]),))
        kind, kernel, settings = fields.sharding_type, fields.compute_kernel, _settings(fields)
        return TableEntry(path, name, kind, kernel, ((rank, rank),), cut, None, settings)

    def _shards_of(
        self, fields: TableFields, ranks: RankRuns | None
    ) -> tuple[Cut | None, tuple[ListedShard, ...] | None]:
        if (fields.shape is UNSET) == (fields.shards is UNSET):
            raise BadValue("", "must have either `shape` or `shards`")
        if fields.shape is not UNSET:
            return _cut(fields, fields.shape, ranks), None
        if fields.row_blocks is not UNSET or fields.column_blocks is not UNSET:
            raise BadValue("", "must have `shape` with `row_blocks` and `column_blocks`")
        if not isinstance(fields.shards, list):
            return None, None
        return None, self._listed(fields.shards)

    def _rank_runs(self, items: list[Any]) -> RankRuns:
        runs = []
        for i, item in enumerate(items):
            if type(item) is int and item >= 0:
                first = last = item
            else:
                first, last = self._range(item, f"ranks[{i}]")
            if last > LARGEST:
                as_whole(last, f"ranks[{i}]")
            if self._ranks is not None:
                self._check(last, f"ranks[{i}]")
            self._shards += last - first + 1
            if self._shards > MOST_SHARDS:
                self._count(0, f"ranks[{i}]")
            runs.append((first, last))
        return tuple(runs)

    def _range(self, item: Any, place: str) -> tuple[int, int]:
        """Returns the first and the last rank; many tables are on the same ranks."""
        if type(item) is str and item in self._ranges:
            return self._ranges[item]
        found = self._ranges[item] = _range(item, place)
        return found

    def _check(self, rank: int, place: str) -> None:
        if self._ranks is not None and rank >= self._ranks:
            refuse(place, f"below the topology's {self._ranks} ranks", rank)

    def _count(self, more: int, place: str) -> None:
        self._shards += more
        if self._shards > MOST_SHARDS:
            raise BadValue(place, f"makes more than {MOST_SHARDS} shards, the limit of a file")

    def _listed(self, shards: list[ListedShard]) -> tuple[ListedShard, ...]:
        self._count(len(shards), "shards")
        for i, shard in enumerate(shards):
            if len(shard.offset) != len(shard.size):
                raise BadValue(f"shards[{i}]", "must have as many offsets as sizes")
            if shard.placement is not None:
                device = read_placement(shard.placement, f"shards[{i}].placement")
                if device is not None:
                    self._check(device.rank, f"shards[{i}].placement")
        if problem := _why_not_one_table(shards):
            raise BadValue("shards", f"must be shards of one table: {problem}")
        return tuple(shards)


def _settings(fields: TableFields) -> dict[str, Any]:
    if _settings_of(fields) == _NO_SETTINGS:
        return {}
    return {name: own for name in SETTINGS if (own := getattr(fields, name)) is not UNSET}


def decoded(modules: dict[str, dict[str, Any]]) -> dict[str, dict[str, TableFields]] | None:
    """Returns the tables of all modules; None if one of them has an error, which `read` finds.

    To decode them together takes a tenth of the time.
    """
    try:
        return convert(modules, dict[str, dict[str, TableFields]])
    except (ValidationError, UnicodeEncodeError):
        return None


def _range(item: Any, place: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(item) if type(item) is str else None
    if found is None:
        refuse(place, "a rank or a range such as `0-7`", item)
    first, last = int(found[1]), int(found[2])
    if first > last:
        refuse(place, "a rank or a rising range of ranks", item)
    return first, last


def _cut(fields: TableFields, shape: tuple[int, int], ranks: RankRuns | None) -> Cut:
    if not ranks:
        raise BadValue("ranks", "must have a rank for every block")
    if fields.row_blocks is fields.column_blocks is UNSET and len(ranks) == 1:
        first, last = ranks[0]
        if first == last:  # most tables are not split
            return Cut(((1, shape[0]),), ((1, shape[1]),))
    runs = []
    for name, total in zip(_BLOCK_FIELDS[1:], shape, strict=True):
        given = getattr(fields, name)
        runs.append(_read_runs([total] if given is UNSET else given, total, name))
    cut = Cut(*runs)
    count = sum(last - first + 1 for first, last in ranks)
    if cut.blocks != count:
        raise BadValue("ranks", f"must be one per block: {count} for {cut.blocks}")
    return cut


def _read_runs(items: list[Any], total: int, place: str) -> Runs:
    """Reads block sizes, which must add up to the table's size."""
    runs = []
    for i, item in enumerate(items):
        found = _BLOCKS.fullmatch(item) if type(item) is str else None
        if found:
            runs.append((int(found[1]), int(found[2])))
        elif type(item) is int and item >= 0:
            runs.append((1, item))
        else:
            refuse(f"{place}[{i}]", "a size or `count x size`", item)
    covered = sum(count * size for count, size in runs)
    if covered != total:
        raise BadValue(place, f"must add up to {total}, not {covered}")
    return tuple(runs)


def _why_not_one_table(shards: Sequence[ListedShard]) -> str:
    """Returns why shards can't belong to one table; empty if they can."""
    if not shards:
        return "Empty shard list"
    dimensions = {len(shard.size) for shard in shards}
    if len(dimensions) != 1:
        return "they differ in their number of dimensions"
    if dimensions <= {1, 2} and (pair := _overlap(shards)):
        return f"shards {pair[0]} and {pair[1]} overlap"
    return ""


def _overlap(shards: Sequence[ListedShard]) -> tuple[int, int] | None:
    """Returns the numbers of two shards that overlap, if any.

    A sweep over the rows keeps the open column spans in order. As long as they don't overlap, a new
    span can only overlap its neighbours.
    """
    steps = []
    for i, shard in enumerate(shards):
        row, column, *_ = (*shard.offset, 0)
        rows, columns, *_ = (*shard.size, 1)
        if rows and columns:
            span = (column, column + columns, i)
            steps += [(row, 1, span), (row + rows, 0, span)]
    open_spans: list[tuple[int, int, int]] = []
    for _, begins, span in sorted(steps):
        at = bisect_left(open_spans, span)
        if not begins:
            open_spans.pop(at)
            continue
        for other in open_spans[max(0, at - 1) : at + 1]:
            if other[0] < span[1] and span[0] < other[1]:
                return min(other[2], span[2]), max(other[2], span[2])
        open_spans.insert(at, span)
    return None
