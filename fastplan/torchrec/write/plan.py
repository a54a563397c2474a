"""Builds the ShardingPlan from a solution."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

import numpy as np
from torch.distributed import _remote_device
from torchrec.distributed.sharding_plan import placement
from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingPlan,
    ShardMetadata,
)

from fastplan.engine import _native
from fastplan.engine.layout import all_ranks, placed_shards, split_of, table_shards
from fastplan.engine.problem import Ints, SearchSpace
from fastplan.model.plan import RANK
from fastplan.model.request import Table
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPE_INDEX, SHARDING_TYPES
from fastplan.torchrec import compat
from fastplan.torchrec.read.extract import TableSource

_DATA_PARALLEL = SHARDING_TYPE_INDEX["data_parallel"]


def _begin(count: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(count)])


class PlanBuilder:
    """Converts chosen options and ranks to ParameterShardings on one topology."""

    def __init__(
        self,
        space: SearchSpace,
        tables: tuple[Table, ...],
        origins: tuple[TableSource, ...],
        topology: Any,
    ) -> None:
        self._space = space
        self._tables = tables
        self._origins = origins
        self._specs = SpecBuilder(topology.compute_device, topology.local_world_size)

    def build(self, table_of_option: Any, options: Any, ranks: Any) -> ShardingPlan:
        """Returns the plan with its tables in the order of `options`."""
        plan: dict[str, EmbeddingModuleShardingPlan] = {}
        numbers = table_of_option[options].tolist()
        split = split_of(self._space, options)
        count = table_shards(split)
        shards = placed_shards(
            split,
            np.array([self._tables[number].dim for number in numbers], np.int64),
            all_ranks(split.option_type, count, ranks),
        )
        placed = shards[:, RANK].tolist()
        has_spec = split.option_type != _DATA_PARALLEL
        if not has_spec.all():
            # Data-parallel tables have a shard on every rank: often most shards of a large plan.
            shards = shards[np.repeat(has_spec, count)]
        specs = iter(self._specs.specs(shards, _begin(count[has_spec])))
        ends = _begin(count).tolist()
        with compat.paused():
            for number, kind, kernel, first, last in zip(
                numbers,
                split.option_type.tolist(),
                self._space.option_kernel[options].tolist(),
                ends[:-1],
                ends[1:],
                strict=True,
            ):
                origin = self._origins[number]
                module_plan = plan.get(origin.path)
                if module_plan is None:
                    module_plan = plan[origin.path] = EmbeddingModuleShardingPlan()
                module_plan[origin.name] = _sharding(
                    origin.constraint,
                    SHARDING_TYPES[kind],
                    KERNELS[kernel],
                    placed[first:last],
                    None if kind == _DATA_PARALLEL else next(specs),
                )
        return ShardingPlan(plan)


def _sharding(
    rule: Any, kind: str, kernel: str, ranks: list[int], spec: EnumerableShardingSpec | None
) -> ParameterSharding:
    """Returns the sharding of a table with this constraint, or None."""
    sharding = ParameterSharding(
        sharding_type=kind,
        compute_kernel=kernel,
        ranks=ranks,
        sharding_spec=spec,
    )
    if rule:
        # Most tables have neither, and a deep copy of None takes longer than this check.
        if rule.cache_params is not None:
            sharding.cache_params = compat.copy_params(rule.cache_params)
        if rule.key_value_params is not None:
            sharding.key_value_params = compat.copy_params(rule.key_value_params)
        sharding.enforce_hbm = rule.enforce_hbm
        sharding.stochastic_rounding = rule.stochastic_rounding
        sharding.bounds_check_mode = rule.bounds_check_mode
        sharding.output_dtype = rule.output_dtype
    return sharding


class Shards(list[ShardMetadata]):
    """A table's shards: a list with a faster deep copy.

    It pickles as a plain list, so unpickling does not need fastplan.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Shards:
        copies = memo[id(self)] = Shards()
        known, add = memo.get, copies.append
        with compat.paused():
            for shard in self:
                add(known(id(shard)) or _copied(shard, memo))
        return copies

    def __copy__(self) -> Shards:
        return Shards(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (), None, iter(self)


def _copied(shard: Any, memo: dict[int, Any]) -> Any:
    """Returns a deep copy, with the same `memo` entries as copy.deepcopy, to keep shared objects.

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
    """Returns an equal placement, without parsing its text again."""
    same = _new_placement(_remote_device)
    same._worker_name = place._worker_name
    same._rank = place._rank
    same._device = place._device
    return same


_new_shard = ShardMetadata.__new__
_new_placement = _remote_device.__new__


class SpecBuilder:
    """Builds specs with TorchRec's device rule: rank r is device r % ranks per host."""

    def __init__(self, device: str, ranks_per_host: int) -> None:
        self._device = device
        self._ranks_per_host = ranks_per_host
        self._placements: dict[int, _remote_device] = {}

    def placement(self, rank: int) -> _remote_device:
        """Returns a rank's placement, for comparison; shards get copies, which TorchRec changes."""
        known = self._placements.get(rank)
        if known is None:
            text = placement(self._device, rank, self._ranks_per_host)
            known = self._placements[rank] = _remote_device(text)
        return known

    def specs(self, shards: Any, begin: Any) -> list[EnumerableShardingSpec]:
        """Returns the spec of each table, with a placement of its own for each shard.

        It skips the constructors, whose checks of each shard and each pair always pass here: no
        shard is negative and none overlaps another.

        Args:
            shards: the numbers of all shards, as in `Layout`.
            begin: the first shard of each table, and the number of all.
        """
        lists = _native.shard_lists(
            shards,
            begin,
            list_type=Shards,
            shard_type=ShardMetadata,
            placement_type=_remote_device,
            placement=self.placement,
        )
        specs = []
        for own in lists:
            spec = EnumerableShardingSpec.__new__(EnumerableShardingSpec)
            spec.shards = own
            specs.append(spec)
        return specs


class LazyList(list[Any]):
    """A list, also for `isinstance`, that is built on first access."""

    def __init__(self, build: Callable[[], list[Any]], source: Any = None) -> None:
        super().__init__()
        self._build: Callable[[], list[Any]] | None = build
        self.source = source

    @property
    def is_built(self) -> bool:
        return self._build is None

    def _fill(self) -> None:
        if self._build is not None:
            items = self._build()
            self._build = None
            super().extend(items)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        self._fill()
        return [copy.deepcopy(item, memo) for item in list.__iter__(self)]

    def __copy__(self) -> list[Any]:
        self._fill()
        return list(list.__iter__(self))

    def __reduce__(self) -> tuple[Any, ...]:
        self._fill()
        return list, (list(list.__iter__(self)),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __iter__(self) -> Iterator[Any]:
        self._fill()
        return super().__iter__()


def _fill_before_use(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def call(self: LazyList, *args: Any, **kwargs: Any) -> Any:
        self._fill()
        return method(self, *args, **kwargs)

    call.__name__ = name
    return call


_READS_AND_WRITES = """
    __add__ __bool__ __contains__ __delitem__ __eq__ __ge__ __getitem__ __gt__ __iadd__ __imul__
    __le__ __len__ __lt__ __mul__ __ne__ __repr__ __reversed__ __rmul__ __setitem__
    append clear copy count extend index insert pop remove reverse sort
"""
for _name in _READS_AND_WRITES.split():
    if hasattr(list, _name):
        setattr(LazyList, _name, _fill_before_use(_name))


def _right_add(self: LazyList, other: list[Any]) -> list[Any]:
    return other + list(self)


# `[] + lazy` would otherwise read the list's storage before it is filled.
LazyList.__radd__ = _right_add  # type: ignore[attr-defined]
