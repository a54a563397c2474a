"""Sharding specs built fast: one placement object per rank, nothing quadratic."""

from __future__ import annotations

from typing import Any

from torch.distributed import _remote_device
from torchrec.distributed.sharding_plan import placement
from torchrec.distributed.types import EnumerableShardingSpec, ShardMetadata


class SpecBuilder:
    """Makes specs on devices that follow TorchRec's rule: rank r is device r % ranks per host."""

    def __init__(self, device: str, ranks_per_host: int) -> None:
        self._device = device
        self._ranks_per_host = ranks_per_host
        self._placements: dict[int, Any] = {}

    def placement(self, rank: int) -> Any:
        """Where a rank is; the same object every time, since nobody can change it."""
        known = self._placements.get(rank)
        if known is None:
            text = placement(self._device, rank, self._ranks_per_host)
            known = self._placements[rank] = _remote_device(text)
        return known

    def spec(
        self, offsets: list[list[int]], sizes: list[tuple[int, int]], ranks: list[int]
    ) -> EnumerableShardingSpec:
        """A spec that owns `offsets`.

        Constructors would check again, shard by shard and pair by pair, what is true of every
        cut: no shard is negative and none overlaps another.
        """
        new = ShardMetadata.__new__
        shards = []
        for offset, size, rank in zip(offsets, sizes, ranks, strict=True):
            shard = new(ShardMetadata)
            shard.shard_offsets = offset
            shard.shard_sizes = list(size)
            shard.placement = self.placement(rank)
            shards.append(shard)
        spec = EnumerableShardingSpec.__new__(EnumerableShardingSpec)
        spec.shards = shards
        return spec
