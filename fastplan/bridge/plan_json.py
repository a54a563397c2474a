"""One table of a plan file: a ParameterSharding as a JSON object and back.

Shards that cut a table into row and column blocks are written as those blocks and their ranks:

    {"sharding_type": "row_wise", "compute_kernel": "fused", "shape": [1000000, 64],
     "row_blocks": ["1023 x 977", 529], "ranks": ["0-1023"]}

Blocks that are left out are one block. Shards go down the rows first, and each lies where
TorchRec places its rank. Any other shards are listed one by one under `shards`, which is null
for a table without a sharding spec.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from itertools import chain, groupby
from typing import Any

from torch.distributed import _remote_device
from torchrec.distributed.types import (
    CacheParams,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardMetadata,
)

from fastplan.bridge.plan_placement import PlacementRule, Placements, cut
from fastplan.bridge.plan_values import (
    BadValue,
    as_list,
    as_object,
    as_text,
    as_whole,
    below,
    check_fields,
    decode,
    encode,
    field_types,
    refuse,
)

# More shards than any plan has, and few enough to hold in memory.
MOST_SHARDS = 2**24

_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)
_BLOCKS = re.compile(r"(\d{1,9}) x (\d{1,19})", re.ASCII)
_LAYOUT = ("sharding_type", "compute_kernel", "ranks", "sharding_spec")
_SETTINGS = {
    name: declared
    for name, declared in field_types(ParameterSharding).items()
    if name not in _LAYOUT
}
_BLOCK_FIELDS = ("shape", "row_blocks", "column_blocks")
_FIELDS = ("sharding_type", "compute_kernel", *_BLOCK_FIELDS, "ranks", "shards", *_SETTINGS)
_SHARD_FIELDS = ("offset", "size", "placement")


def encode_table(
    sharding: Any, place: str, placements: Placements | None, *, drop_statistics: bool
) -> dict[str, Any]:
    """The table's object; BadValue for what a file can't hold."""
    if type(sharding) is not ParameterSharding:
        raise BadValue(place, f"a {type(sharding).__name__} can't be written")
    entry: dict[str, Any] = {
        "sharding_type": as_text(sharding.sharding_type, below(place, "sharding_type")),
        "compute_kernel": as_text(sharding.compute_kernel, below(place, "compute_kernel")),
    }
    ranks = _encode_ranks(sharding.ranks, below(place, "ranks"))
    spec = sharding.sharding_spec
    blocks = None
    if spec is not None:
        if type(spec) is not EnumerableShardingSpec:
            raise BadValue(
                below(place, "sharding_spec"), f"a {type(spec).__name__} can't be written"
            )
        blocks = _encode_blocks(spec.shards, sharding.ranks, placements)
    entry |= blocks or {}
    entry["ranks"] = ranks
    if blocks is None:
        entry["shards"] = spec and _encode_shards(spec.shards, below(place, "shards"))
    for name, declared in _SETTINGS.items():
        value = getattr(sharding, name)
        if drop_statistics and isinstance(value, CacheParams):
            value = dataclasses.replace(value, stats=None)
        if value is not None:
            entry[name] = encode(value, declared, below(place, name))
    return entry


def _encode_ranks(ranks: Any, place: str) -> list[int | str] | None:
    if ranks is None:
        return None
    runs: list[list[int]] = []
    for i, rank in enumerate(as_list(ranks, place)):
        as_whole(rank, f"{place}[{i}]")
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return list(
        chain.from_iterable([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run for run in runs)
    )


def _encode_blocks(
    shards: list[ShardMetadata], ranks: list[int] | None, placements: Placements | None
) -> dict[str, Any] | None:
    """The shards as blocks, or None if they are not blocks that lie where the rule says."""
    if placements is None or ranks is None or len(ranks) != len(shards):
        return None
    offsets = [shard.shard_offsets for shard in shards]
    sizes = [shard.shard_sizes for shard in shards]
    numbers = chain.from_iterable(offsets + sizes)
    if {*map(len, offsets), *map(len, sizes)} != {2} or {*map(type, numbers)} != {int}:
        return None
    per_column = next((i for i, offset in enumerate(offsets) if offset[1]), len(shards))
    rows = [size[0] for size in sizes[:per_column]]
    columns = [size[1] for size in sizes[::per_column]]
    expected_offsets, expected_sizes = cut(rows, columns)
    if offsets != expected_offsets or sizes != [[*size] for size in expected_sizes]:
        return None
    if any(
        shard.placement != placements.placement(rank)
        for shard, rank in zip(shards, ranks, strict=True)
    ):
        return None
    entry: dict[str, Any] = {"shape": [sum(rows), sum(columns)]}
    if len(rows) > 1:
        entry["row_blocks"] = _encode_runs(rows)
    if len(columns) > 1:
        entry["column_blocks"] = _encode_runs(columns)
    return entry


def _encode_runs(sizes: list[int]) -> list[int | str]:
    runs = [(size, len([*group])) for size, group in groupby(sizes)]
    return [f"{count} x {size}" if count > 1 else size for size, count in runs]


def _encode_shards(shards: list[ShardMetadata], place: str) -> list[dict[str, Any]]:
    entries = []
    for i, shard in enumerate(shards):
        own = f"{place}[{i}]"
        placement = shard.placement
        if placement is not None and type(placement) is not _remote_device:
            refuse(below(own, "placement"), "a _remote_device", placement)
        entries.append(
            {
                "offset": _wholes(shard.shard_offsets, below(own, "offset")),
                "size": _wholes(shard.shard_sizes, below(own, "size")),
                "placement": None if placement is None else str(placement),
            }
        )
    return entries


def _wholes(value: Any, place: str) -> list[int]:
    return [as_whole(item, f"{place}[{i}]") for i, item in enumerate(as_list(value, place))]


class TableReader:
    """Reads the tables of one file. With a topology, ranks and devices must be its own."""

    def __init__(self, rule: PlacementRule | None, topology: Any = None) -> None:
        self._placements = None if rule is None else Placements(rule)
        self._topology = topology
        self._own = None if topology is None else Placements(PlacementRule.of(topology))
        self._listed: dict[str, Any] = {}
        self._checked: set[int] = set()
        self._shards = 0

    def read(self, value: Any, place: str) -> ParameterSharding:
        """The table of a JSON object; BadValue if it is not one."""
        entry = as_object(value, place)
        check_fields(entry, _FIELDS, place)
        for name in ("sharding_type", "compute_kernel", "ranks"):
            if name not in entry:
                raise BadValue(below(place, name), "is missing")
        if ("shape" in entry) == ("shards" in entry):
            raise BadValue(place, "must have either `shape` or `shards`")
        ranks = self._ranks(entry["ranks"], below(place, "ranks"))
        spec: EnumerableShardingSpec | None = None
        if "shape" in entry:
            spec = self._blocks(entry, ranks, place)
        elif "row_blocks" in entry or "column_blocks" in entry:
            raise BadValue(place, "must have `shape` beside `row_blocks` and `column_blocks`")
        elif entry["shards"] is not None:
            spec = self._spec(entry["shards"], below(place, "shards"))
        return ParameterSharding(
            sharding_type=sys.intern(
                as_text(entry["sharding_type"], below(place, "sharding_type"))
            ),
            compute_kernel=sys.intern(
                as_text(entry["compute_kernel"], below(place, "compute_kernel"))
            ),
            ranks=ranks,
            sharding_spec=spec,
            **{
                name: decode(entry[name], declared, below(place, name))
                for name, declared in _SETTINGS.items()
                if name in entry
            },
        )

    def _ranks(self, value: Any, place: str) -> list[int] | None:
        if value is None:
            return None
        ranks: list[int] = []
        for i, item in enumerate(as_list(value, place)):
            found = _RANGE.fullmatch(item) if type(item) is str else None
            if found:
                first, last = int(found[1]), int(found[2])
                if first > last:
                    refuse(f"{place}[{i}]", "a rank or a rising range of ranks", item)
            elif type(item) is int and item >= 0:
                first = last = item
            else:
                refuse(f"{place}[{i}]", "a rank or a range such as `0-7`", item)
            self._within(last, f"{place}[{i}]")
            self._count(last - first + 1, f"{place}[{i}]")
            ranks.extend(range(first, last + 1))
        return ranks

    def _within(self, rank: int, place: str) -> None:
        if self._topology is not None and rank >= self._topology.world_size:
            refuse(place, f"below the topology's {self._topology.world_size} ranks", rank)

    def _count(self, more: int, place: str) -> None:
        self._shards += more
        if self._shards > MOST_SHARDS:
            raise BadValue(place, f"makes more than {MOST_SHARDS} shards, the most a file can have")

    def _blocks(
        self, entry: dict[str, Any], ranks: list[int] | None, place: str
    ) -> EnumerableShardingSpec:
        shape = _wholes(entry["shape"], below(place, "shape"))
        if len(shape) != 2:
            refuse(below(place, "shape"), "two numbers, rows and columns", shape)
        if self._placements is None:
            raise BadValue("device", f"must be known, since {place} has blocks")
        if not ranks:
            raise BadValue(below(place, "ranks"), "must have a rank for every block")
        rows, columns = (
            _read_runs(entry.get(name, [total]), total, below(place, name))
            for name, total in zip(_BLOCK_FIELDS[1:], shape, strict=True)
        )
        count = _blocks_in(rows) * _blocks_in(columns)
        if count != len(ranks):
            raise BadValue(
                below(place, "ranks"), f"must be one per block: {len(ranks)} for {count}"
            )
        self._check_devices(ranks, place)
        return self._placements.blocks(_expand(rows), _expand(columns), ranks)

    def _check_devices(self, ranks: list[int], place: str) -> None:
        if self._own is None or self._placements is None:
            return
        for rank in ranks:
            if rank not in self._checked:
                here, there = self._placements.placement(rank), self._own.placement(rank)
                if here != there:
                    raise BadValue(
                        below(place, "ranks"),
                        f"has {here} by `device` and `ranks_per_host`; the topology has {there}",
                    )
                self._checked.add(rank)

    def _spec(self, value: Any, place: str) -> EnumerableShardingSpec:
        entries = as_list(value, place)
        self._count(len(entries), place)
        shards = [self._shard(entry, f"{place}[{i}]") for i, entry in enumerate(entries)]
        try:
            return EnumerableShardingSpec(shards)
        except ValueError as error:
            raise BadValue(place, f"must be shards of one table: {error}") from error

    def _shard(self, value: Any, place: str) -> ShardMetadata:
        entry = as_object(value, place)
        check_fields(entry, _SHARD_FIELDS, place)
        for name in _SHARD_FIELDS:
            if name not in entry:
                raise BadValue(below(place, name), "is missing")
        offset = _wholes(entry["offset"], below(place, "offset"))
        size = _wholes(entry["size"], below(place, "size"))
        if len(offset) != len(size):
            raise BadValue(place, "must have as many offsets as sizes")
        return ShardMetadata(offset, size, self._placement(entry["placement"], place))

    def _placement(self, value: Any, shard: str) -> Any:
        place = below(shard, "placement")
        if value is None:
            return None
        text = as_text(value, place)
        if text not in self._listed:
            try:
                self._listed[text] = _remote_device(text)
            except (ValueError, RuntimeError) as error:
                raise BadValue(
                    place, f"must be a placement such as rank:0/cuda:0, not {text!r:.60}"
                ) from error
        found = self._listed[text]
        if found.rank() is not None:
            self._within(found.rank(), place)
        return found


def _read_runs(value: Any, total: int, place: str) -> list[tuple[int, int]]:
    """Block sizes as (count, size), which must add up to the table's."""
    runs = []
    for i, item in enumerate(as_list(value, place)):
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
    return runs


def _blocks_in(runs: list[tuple[int, int]]) -> int:
    return sum(count for count, _ in runs)


def _expand(runs: list[tuple[int, int]]) -> list[int]:
    return [size for count, size in runs for _ in range(count)]


def table_shape(spec: EnumerableShardingSpec | None) -> tuple[int, ...] | None:
    """The shape of the table that the shards make up; None without a spec."""
    if spec is None:
        return None
    ends = (map(sum, zip(s.shard_offsets, s.shard_sizes, strict=True)) for s in spec.shards)
    return tuple(max(axis) for axis in zip(*ends, strict=True))
