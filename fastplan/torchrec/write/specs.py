"""Sharding specs built fast, and copied fast: nothing quadratic, nothing shared between shards.

Every start of DistributedModelParallel deep-copies the shards of every table several levels down,
which takes longer than all its other work. A list that knows how to copy its shards takes a
fortieth of that; the shards in it are torch's own.
"""

from __future__ import annotations

import copy
from typing import Any, SupportsIndex

from torch.distributed import _remote_device
from torchrec.distributed.sharding_plan import placement
from torchrec.distributed.types import EnumerableShardingSpec, ShardMetadata

from fastplan.torchrec import collector


class Shards(list[ShardMetadata]):
    """A table's shards: a list whose deep copy is the same as any list's, made by hand.

    It pickles as a plain list, so whoever reads the pickle needs no fastplan.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Shards:
        copies = memo[id(self)] = Shards()
        known, add = memo.get, copies.append
        with collector.paused():
            for shard in self:
                add(known(id(shard)) or _copied(shard, memo))
        return copies

    def __copy__(self) -> Shards:
        return Shards(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (), None, iter(self)


def _copied(shard: Any, memo: dict[int, Any]) -> Any:
    """A deep copy that notes in `memo` what copy.deepcopy would, so that what is one stays one.

    Offsets and sizes are numbers. A placement is copied too: TorchRec changes placements in place.
    """
    if type(shard) is not ShardMetadata:
        return copy.deepcopy(shard, memo)
    known = memo.get
    copied = memo[id(shard)] = _new_shard(ShardMetadata)
    offsets, sizes, place = shard.shard_offsets, shard.shard_sizes, shard.placement
    copied.shard_offsets = known(id(offsets)) or _copied_numbers(offsets, memo)
    copied.shard_sizes = known(id(sizes)) or _copied_numbers(sizes, memo)
    copied.placement = known(id(place)) or _copied_placement(place, memo)
    return copied


def _copied_numbers(numbers: Any, memo: dict[int, Any]) -> Any:
    if type(numbers) is not list:
        return copy.deepcopy(numbers, memo)
    copied = memo[id(numbers)] = numbers.copy()
    return copied


def _copied_placement(place: Any, memo: dict[int, Any]) -> Any:
    if type(place) is not _remote_device:
        return copy.deepcopy(place, memo)
    copied = memo[id(place)] = _same_placement(place)
    return copied


def _same_placement(place: _remote_device) -> _remote_device:
    """An equal placement, without parsing its text again."""
    same = _new_placement(_remote_device)
    same._worker_name = place._worker_name
    same._rank = place._rank
    same._device = place._device
    return same


_new_shard = ShardMetadata.__new__
_new_placement = _remote_device.__new__


class SpecBuilder:
    """Makes specs on devices that follow TorchRec's rule: rank r is device r % ranks per host."""

    def __init__(self, device: str, ranks_per_host: int) -> None:
        self._device = device
        self._ranks_per_host = ranks_per_host
        self._placements: dict[int, _remote_device] = {}

    def placement(self, rank: int) -> _remote_device:
        """Where a rank is, to compare with; shards get copies, since TorchRec changes them."""
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
        shards = Shards()
        known = self._placements
        for offset, size, rank in zip(offsets, sizes, ranks, strict=True):
            shard = _new_shard(ShardMetadata)
            shard.shard_offsets = offset
            shard.shard_sizes = [*size]
            shard.placement = _same_placement(known.get(rank) or self.placement(rank))
            shards.append(shard)
        spec = EnumerableShardingSpec.__new__(EnumerableShardingSpec)
        spec.shards = shards
        return spec
