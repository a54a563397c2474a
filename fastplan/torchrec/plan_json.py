"""Converts tables of a plan file to TorchRec's ParameterShardings and back."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.distributed import _remote_device
from torchrec.distributed.types import (
    CacheParams,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingPlan,
    ShardMetadata,
)

from fastplan.model.cuts import Cut, Runs, cut_of
from fastplan.model.plan import Layout, TableColumns
from fastplan.plans import checks
from fastplan.plans.checks import (
    LARGEST,
    BadValue,
    Device,
    PlacementRule,
    as_list,
    as_text,
    as_wholes,
    below,
    refuse,
)
from fastplan.plans.entries import SETTINGS, ListedShard, TableEntry, rank_runs
from fastplan.torchrec.plan_values import decode, encode, field_types
from fastplan.torchrec.write.plan import SpecBuilder

_SETTINGS = {
    name: declared for name, declared in field_types(ParameterSharding).items() if name in SETTINGS
}


# Far beyond any table or rank, and small enough for sums of cells.
_FAR = 2**40


def encode_table(
    path: str,
    name: str,
    sharding: Any,
    placements: Placements | None,
    *,
    drop_statistics: bool,
) -> TableEntry:
    """Returns the table as JSON. Raises BadValue if a file can't represent it."""
    place = below(below("modules", path), name)
    if type(sharding) is not ParameterSharding:
        raise BadValue(place, f"a {type(sharding).__name__} can't be written")
    entry = TableEntry(
        path,
        name,
        as_text(sharding.sharding_type, below(place, "sharding_type")),
        as_text(sharding.compute_kernel, below(place, "compute_kernel")),
        ranks=None,
        cut=None,
        listed=None,
        settings={},
    )
    ranks, spec = sharding.ranks, sharding.sharding_spec
    if ranks is not None:
        entry = entry._replace(ranks=rank_runs(_checked_ranks(ranks, below(place, "ranks"))))
    if spec is not None:
        if type(spec) is not EnumerableShardingSpec:
            raise BadValue(
                below(place, "sharding_spec"), f"a {type(spec).__name__} can't be written"
            )
        cut = _as_blocks(spec.shards, ranks, placements)
        listed = None if cut else _listed(spec.shards, below(place, "shards"))
        entry = entry._replace(cut=cut, listed=listed)
    return entry._replace(
        settings=encode_settings(sharding, place, drop_statistics=drop_statistics)
    )


def encode_settings(
    sharding: ParameterSharding, place: str, *, drop_statistics: bool
) -> dict[str, Any]:
    """Returns a table's settings as JSON. Raises BadValue if a file can't represent them."""
    settings = {}
    for name, declared in _SETTINGS.items():
        value = getattr(sharding, name)
        if drop_statistics and isinstance(value, CacheParams):
            value = dataclasses.replace(value, stats=None)
        if value is not None:
            settings[name] = encode(value, declared, below(place, name))
    return settings


def _checked_ranks(ranks: Any, place: str) -> list[int]:
    # A check of each rank takes ten times as long.
    if {*map(type, as_list(ranks, place))} == {int} and 0 <= min(ranks) <= max(ranks) <= LARGEST:
        return list(ranks)
    return as_wholes(ranks, place)


def _as_blocks(
    shards: list[ShardMetadata], ranks: list[int] | None, placements: Placements | None
) -> Cut | None:
    """Returns the shards as blocks; None if they are not blocks in the places of the rule."""
    if placements is None or ranks is None or len(ranks) != len(shards):
        return None
    offsets = [shard.shard_offsets for shard in shards]
    sizes = [shard.shard_sizes for shard in shards]
    numbers = [*chain.from_iterable(offsets), *chain.from_iterable(sizes)]
    if {*map(len, offsets), *map(len, sizes)} != {2} or {*map(type, numbers)} != {int}:
        return None
    if max(numbers) > LARGEST >> 1 or min(numbers) < 0:
        return None
    found = np.zeros((len(shards), 5), np.int64)
    found[:, :4] = np.array(numbers, np.int64).reshape(2, -1, 2).swapaxes(0, 1).reshape(-1, 4)
    return cut_of(found) if placement_keys(shards) == placements.keys(ranks) else None


def _listed(shards: list[ShardMetadata], place: str) -> tuple[ListedShard, ...]:
    listed = []
    for i, shard in enumerate(shards):
        own = f"{place}[{i}]"
        placement = shard.placement
        if placement is not None and type(placement) is not _remote_device:
            refuse(below(own, "placement"), "a _remote_device", placement)
        listed.append(
            ListedShard(
                as_wholes(shard.shard_offsets, below(own, "offset")),
                as_wholes(shard.shard_sizes, below(own, "size")),
                None if placement is None else str(placement),
            )
        )
    return tuple(listed)


class TableReader:
    """Builds the tables of one file. With a topology, ranks and devices must match it."""

    def __init__(self, rule: PlacementRule | None, topology: Any = None) -> None:
        self._placements = None if rule is None else Placements(rule)
        self._own = None if topology is None else Placements(PlacementRule.of(topology))
        self._listed: dict[str, Any] = {}
        self._checked: set[int] = set()

    def read(self, entry: TableEntry) -> ParameterSharding:
        """Returns TorchRec's object for an entry. Raises BadValue if the entry is invalid."""
        place = entry.place
        ranks = None if entry.ranks is None else entry.all_ranks()
        spec: EnumerableShardingSpec | None = None
        if entry.cut is not None:
            assert self._placements is not None
            assert ranks is not None
            self._check_devices(ranks, place)
            rows, columns = map(_expand, entry.cut)
            spec = self._placements.blocks(rows, columns, ranks)
        elif entry.listed is not None:
            spec = self._spec(entry.listed, below(place, "shards"))
        return ParameterSharding(
            sharding_type=sys.intern(entry.sharding_type),
            compute_kernel=sys.intern(entry.kernel),
            ranks=ranks,
            sharding_spec=spec,
            **{
                name: decode(entry.settings[name], declared, below(place, name))
                for name, declared in _SETTINGS.items()
                if name in entry.settings
            },
        )

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

    def _spec(self, listed: tuple[ListedShard, ...], place: str) -> EnumerableShardingSpec:
        shards = [
            ShardMetadata(
                shard.offset, shard.size, self._placement(shard.placement, f"{place}[{i}]")
            )
            for i, shard in enumerate(listed)
        ]
        try:
            return EnumerableShardingSpec(shards)
        except ValueError as error:
            raise BadValue(place, f"must be shards of one table: {error}") from error

    def _placement(self, text: str | None, shard: str) -> Any:
        if text is None:
            return None
        place = below(shard, "placement")
        if text not in self._listed:
            try:
                self._listed[text] = _remote_device(text)
            except (ValueError, RuntimeError) as error:
                raise BadValue(
                    place, f"must be a placement such as rank:0/cuda:0, not {text!r:.60}"
                ) from error
        return self._listed[text]


def _expand(runs: Runs) -> list[int]:
    return [size for count, size in runs for _ in range(count)]


__all__ = [
    "PlacementRule",
    "Placements",
    "check_rule",
    "infer_rule",
    "placement_keys",
    "table_shape",
]

_key = attrgetter("_worker_name", "_rank", "_device")


class Placements(SpecBuilder):
    """Builds specs whose placements follow a rule, as in new plans."""

    def __init__(self, rule: PlacementRule) -> None:
        super().__init__(rule.device, rule.ranks_per_host or LARGEST)
        self._keys: dict[int, Any] = {}

    def keys(self, ranks: list[int]) -> list[Any]:
        """Returns the `placement_keys` of the shards that the rule places on ranks."""
        for rank in {*ranks} - self._keys.keys():
            self._keys[rank] = _key(self.placement(rank))
        return [self._keys[rank] for rank in ranks]

    def blocks(
        self, rows: list[int], columns: list[int], ranks: list[int]
    ) -> EnumerableShardingSpec:
        """Returns the blocks of `rows` x `columns` on `ranks`, down the rows first."""
        shards, waiting = [], iter(ranks)
        column = 0
        for width in columns:
            row = 0
            for height in rows:
                shards.append((row, column, height, width, next(waiting)))
                row += height
            column += width
        (spec,) = self.specs(np.array(shards, np.int64), np.array([0, len(shards)], np.int64))
        return spec


def placement_keys(shards: Any) -> list[Any] | None:
    """Returns keys that are equal for equal placements; None if one is not torch's own class.

    A comparison of the placements takes ten times as long, and a plan has a million.
    """
    placements = [shard.placement for shard in shards]
    if {*map(type, placements)} != {_remote_device}:
        return None
    return list(map(_key, placements))


def plan_layout(plan: ShardingPlan) -> Layout | None:
    """Returns the layout of a plan without its tables' settings, to follow it.

    None for a plan that is not as TorchRec makes them, which `describe_plan` reads or refuses.
    """
    keys: list[tuple[str, str]] = []
    shardings: list[ParameterSharding] = []
    for path, module_plan in plan.plan.items():
        if not (isinstance(path, str) and isinstance(module_plan, dict)):
            return None
        keys += [(path, name) for name in module_plan]
        shardings += module_plan.values()
    if {type(name) for _, name in keys} - {str} or {*map(type, shardings)} - {ParameterSharding}:
        return None
    rows: list[int] = []
    placements: list[Any] = []
    counts = []
    for sharding in shardings:
        count = _shard_numbers(sharding, rows, placements)
        if count is None:
            return None
        counts.append(count)
    if {*map(type, rows)} - {int}:
        return None
    if not 0 <= min(rows, default=0) <= max(rows, default=0) <= _FAR:
        return None
    shards = np.array(rows, np.int64).reshape(-1, 5)
    begin = np.cumsum([0, *counts], dtype=np.int64)
    ends = np.maximum.reduceat(shards[:, :2] + shards[:, 2:4], begin[:-1]) if keys else shards
    rule = _rule_of(Counter(map(_key, placements)))
    return Layout(
        tables=TableColumns(
            keys=keys,
            sharding_types=[str(sharding.sharding_type) for sharding in shardings],
            kernels=[str(sharding.compute_kernel) for sharding in shardings],
            shapes=[
                None if sharding.sharding_spec is None else (height, width)
                for sharding, (height, width) in zip(shardings, ends.tolist(), strict=True)
            ],
            begin=begin,
            shards=shards,
        ),
        device=rule and rule.device,
        ranks_per_host=rule and rule.ranks_per_host,
    )


def _shard_numbers(
    sharding: ParameterSharding, rows: list[int], placements: list[Any]
) -> int | None:
    """Adds row, column, rows, columns and rank of each shard, and its placement if it has one.

    Returns the number of shards; None for a sharding that TorchRec does not make.
    """
    ranks, spec = sharding.ranks, sharding.sharding_spec
    if type(ranks) is not list or not ranks:
        return None
    if spec is None:
        for rank in ranks:
            rows += (0, 0, 0, 0, rank)
        return len(ranks)
    if type(spec) is not EnumerableShardingSpec or len(spec.shards) != len(ranks):
        return None
    for shard, rank in zip(spec.shards, ranks, strict=True):
        place = shard.placement
        if type(place) is not _remote_device or place._rank != rank:
            return None
        offsets, sizes = shard.shard_offsets, shard.shard_sizes
        if len(offsets) != 2 or len(sizes) != 2:
            return None
        rows += (*offsets, *sizes, rank)
        placements.append(place)
    return len(ranks)


def infer_rule(plan: ShardingPlan) -> PlacementRule | None:
    """Returns the rule that most of a plan's placements follow; None if none names a rank."""
    counts: Counter[Any] = Counter()
    for module_plan in plan.plan.values():
        for sharding in module_plan.values() if isinstance(module_plan, dict) else ():
            shards = getattr(getattr(sharding, "sharding_spec", None), "shards", ())
            own = [shard for shard in shards if type(shard.placement) is _remote_device]
            counts.update(placement_keys(own) or ())
    return _rule_of(counts)


def _rule_of(counts: Counter[Any]) -> PlacementRule | None:
    """Returns the rule of placements, given by the number of each of their keys."""
    seen: Counter[Device] = Counter()
    for (_, rank, device), count in counts.items():
        if rank is not None:
            seen[Device(rank, device.type, device.index or 0)] += count
    return checks.infer_rule(seen)


def check_rule(rule: PlacementRule | None) -> None:
    """Raises BadValue if torch does not know the kind of device."""
    if rule is not None:
        try:
            torch.device(rule.device)
        except RuntimeError as error:
            raise BadValue(
                "device", f"must be a kind of device, not {rule.device!r:.60}"
            ) from error


def table_shape(spec: EnumerableShardingSpec | None) -> tuple[int, ...] | None:
    """Returns the shape of the table that the shards cover; None without a spec."""
    if spec is None:
        return None
    ends = (map(sum, zip(s.shard_offsets, s.shard_sizes, strict=True)) for s in spec.shards)
    return tuple(max(axis) for axis in zip(*ends, strict=True))
