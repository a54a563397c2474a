"""Where the shards of a plan file lie: blocks of a table on ranks that follow a rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.distributed import _remote_device
from torchrec.distributed.types import EnumerableShardingSpec, ShardingPlan

from fastplan.bridge import versions
from fastplan.bridge.plan_values import LARGEST, BadValue, as_text, as_whole, refuse
from fastplan.bridge.specs import SpecBuilder


class PlacementRule(NamedTuple):
    """Where TorchRec places a rank: a kind of device, and the ranks that share a host.

    Without `ranks_per_host` all ranks share one.
    """

    device: str
    ranks_per_host: int | None

    @classmethod
    def of(cls, topology: Any) -> PlacementRule:
        return cls(topology.compute_device, topology.local_world_size)


class Placements(SpecBuilder):
    """Specs whose placements follow a rule, as in plans made anew."""

    def __init__(self, rule: PlacementRule) -> None:
        super().__init__(rule.device, rule.ranks_per_host or LARGEST)

    def blocks(
        self, rows: list[int], columns: list[int], ranks: list[int]
    ) -> EnumerableShardingSpec:
        """The blocks of `rows` x `columns` on `ranks`."""
        return self.spec(*cut(rows, columns), ranks)


def infer_rule(plan: ShardingPlan) -> PlacementRule | None:
    """The rule that most of a plan's placements follow; None when none names a rank.

    Of the host sizes that explain the placements the largest is taken: a rank that is added by
    hand then gets the right device, or one that does not exist, but not another rank's.
    """
    seen = Counter(_ranks_and_devices(plan))
    kinds: Counter[str] = Counter()
    for (_, device), count in seen.items():
        kinds[device.type] += count
    if not kinds:
        return None
    kind = kinds.most_common(1)[0][0]
    if kind not in versions.INDEXED_DEVICES:
        return PlacementRule(kind, None)
    pairs = [(rank, device.index or 0) for rank, device in seen if device.type == kind]
    host = _host_size(pairs)
    return PlacementRule(kind, None if host == LARGEST else host)


def _host_size(pairs: list[tuple[int, int]]) -> int:
    """The ranks per host that explain most ranks and their devices."""
    common = math.gcd(*(rank - index for rank, index in pairs)) or LARGEST
    if all(rank % common == index for rank, index in pairs):
        return common
    candidates = {rank - index for rank, index in pairs if rank > index} | {LARGEST}
    return max(
        candidates, key=lambda host: (sum(rank % host == index for rank, index in pairs), host)
    )


def _ranks_and_devices(plan: ShardingPlan) -> Iterable[tuple[int, Any]]:
    """Where all shards lie whose placement names a rank."""
    for module_plan in plan.plan.values():
        for sharding in module_plan.values() if isinstance(module_plan, dict) else ():
            spec = getattr(sharding, "sharding_spec", None)
            for shard in getattr(spec, "shards", ()):
                found = shard.placement
                if isinstance(found, _remote_device) and found.rank() is not None:
                    yield found.rank(), found.device()


def cut(rows: list[int], columns: list[int]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Offsets and sizes of the blocks, down the rows first."""
    offsets, sizes = [], []
    column = 0
    for width in columns:
        row = 0
        for height in rows:
            offsets.append([row, column])
            sizes.append((height, width))
            row += height
        column += width
    return offsets, sizes


def table_shape(spec: EnumerableShardingSpec | None) -> tuple[int, ...] | None:
    """The shape of the table that the shards make up; None without a spec."""
    if spec is None:
        return None
    ends = (map(sum, zip(s.shard_offsets, s.shard_sizes, strict=True)) for s in spec.shards)
    return tuple(max(axis) for axis in zip(*ends, strict=True))


def read_rule(device: Any, ranks_per_host: Any) -> PlacementRule | None:
    """The rule of a file's header; BadValue if it is none."""
    host = None if ranks_per_host is None else as_whole(ranks_per_host, "ranks_per_host", 1)
    if device is None:
        return None
    try:
        known = torch.device(as_text(device, "device"))
    except RuntimeError as error:
        raise BadValue("device", f"must be a kind of device, not {device!r:.60}") from error
    if known.index is not None:
        refuse("device", "a kind of device without an index", device)
    return PlacementRule(known.type, host)
