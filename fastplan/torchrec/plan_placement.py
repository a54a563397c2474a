"""TorchRec's placements of a plan file's shards: blocks of a table on ranks that follow a rule."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any

import torch
from torch.distributed import _remote_device
from torchrec.distributed.types import EnumerableShardingSpec, ShardingPlan

from fastplan.plans import placement
from fastplan.plans.checks import LARGEST, BadValue
from fastplan.plans.placement import Device, PlacementRule
from fastplan.torchrec.write.specs import SpecBuilder

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
    """Specs whose placements follow a rule, as in plans made anew."""

    def __init__(self, rule: PlacementRule) -> None:
        super().__init__(rule.device, rule.ranks_per_host or LARGEST)
        self._keys: dict[int, Any] = {}

    def keys(self, ranks: list[int]) -> list[Any]:
        """`placement_keys` of the shards that the rule places on ranks."""
        for rank in {*ranks} - self._keys.keys():
            self._keys[rank] = _key(self.placement(rank))
        return [self._keys[rank] for rank in ranks]

    def blocks(
        self, rows: list[int], columns: list[int], ranks: list[int]
    ) -> EnumerableShardingSpec:
        """The blocks of `rows` x `columns` on `ranks`, down the rows first."""
        offsets, sizes = [], []
        column = 0
        for width in columns:
            row = 0
            for height in rows:
                offsets.append([row, column])
                sizes.append((height, width))
                row += height
            column += width
        return self.spec(offsets, sizes, ranks)


def placement_keys(shards: Any) -> list[Any] | None:
    """What the placements of shards are equal by; None if one is not torch's own.

    To compare the placements themselves takes ten times as long, and a plan has a million.
    """
    placements = [shard.placement for shard in shards]
    if {*map(type, placements)} != {_remote_device}:
        return None
    return list(map(_key, placements))


def infer_rule(plan: ShardingPlan) -> PlacementRule | None:
    """The rule that most of a plan's placements follow; None when none names a rank."""
    counts: Counter[Any] = Counter()
    for module_plan in plan.plan.values():
        for sharding in module_plan.values() if isinstance(module_plan, dict) else ():
            shards = getattr(getattr(sharding, "sharding_spec", None), "shards", ())
            own = [shard for shard in shards if type(shard.placement) is _remote_device]
            counts.update(placement_keys(own) or ())
    seen: Counter[Device] = Counter()
    for (_, rank, device), count in counts.items():
        if rank is not None:
            seen[Device(rank, device.type, device.index or 0)] += count
    return placement.infer_rule(seen)


def check_rule(rule: PlacementRule | None) -> None:
    """Raises BadValue for a kind of device that torch does not know."""
    if rule is not None:
        try:
            torch.device(rule.device)
        except RuntimeError as error:
            raise BadValue(
                "device", f"must be a kind of device, not {rule.device!r:.60}"
            ) from error


def table_shape(spec: EnumerableShardingSpec | None) -> tuple[int, ...] | None:
    """The shape of the table that the shards make up; None without a spec."""
    if spec is None:
        return None
    ends = (map(sum, zip(s.shard_offsets, s.shard_sizes, strict=True)) for s in spec.shards)
    return tuple(max(axis) for axis in zip(*ends, strict=True))
