"""Search spaces with their TorchRec objects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    ShardingOption,
)
from torchrec.distributed.types import CacheParams, ShardingPlan

from fastplan.costs.errors import NoFingerprint
from fastplan.engine.cache_sizes import can_resize
from fastplan.engine.problem import SearchSpace
from fastplan.engine.solve import estimate
from fastplan.model.plan import NO_LOAD_FACTOR, BadRecord, PlanRecord
from fastplan.model.request import MenuItem, Request, Table
from fastplan.model.vocabulary import (
    KERNEL_INDEX,
    KERNELS,
    SHARDING_TYPE_INDEX,
    SHARDING_TYPES,
    UNIFORM_TYPES,
)
from fastplan.planning.search import Placement
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.extract import Extraction, TableSource
from fastplan.torchrec.read.runs import read_runs
from fastplan.torchrec.write.options import OptionBuilder, copy_options
from fastplan.torchrec.write.plan import PlanBuilder

_CACHED = "fused_uvm_caching"


class Space(Protocol):
    """The interface of search spaces to the planner."""

    @property
    def columns(self) -> SearchSpace: ...

    def all_options(self) -> list[ShardingOption]: ...

    def chosen_options(self, options: Any, ranks: Any) -> list[ShardingOption]: ...


def place(chosen: list[ShardingOption], ranks: Any) -> list[ShardingOption]:
    """Sets the ranks of options: `ranks` has those that are not uniform, in order, or is None."""
    if ranks is None:
        return chosen
    waiting = ranks.tolist() if hasattr(ranks, "tolist") else ranks
    placed = 0
    for option in chosen:
        shards = option.shards
        if option.sharding_type in UNIFORM_TYPES:
            for number, shard in enumerate(shards):
                shard.rank = number
            continue
        for shard in shards:
            shard.rank = waiting[placed]
            placed += 1
    return chosen


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """Creates the options of a plan on demand."""

    space: Space
    options: Any
    ranks: Any

    def __call__(self) -> list[ShardingOption]:
        return self.space.chosen_options(self.options, self.ranks)


class Choice(NamedTuple):
    """One option of one table, with its cache parameters."""

    table: int
    sharding_type: str
    kernel: str
    cache_params: Any


class EstimatedSpace:
    """A space that the core estimates from a request. Columns and objects are made on demand."""

    def __init__(
        self,
        request: Request,
        extraction: Extraction,
        enumerator: Any,
        origins: tuple[TableSource, ...] | None = None,
    ) -> None:
        self.request = request
        self.extraction = extraction
        self.enumerator = enumerator
        self.origins = tuple(extraction.origins) if origins is None else origins
        self._priced_by: str | None = None  # fingerprint of the cost when the columns were made

    @cached_property
    def columns(self) -> SearchSpace:
        self._priced_by = self._cost_now()
        return estimate(self.request)

    def check_cost(self) -> None:
        """Raises NoFingerprint if an input of the custom cost has changed since the estimate.

        The enumerator caches the space, so a second plan may find it.
        """
        if "columns" in vars(self) and self._priced_by != self._cost_now():
            raise NoFingerprint("the custom cost has changed since the options were estimated")

    def _cost_now(self) -> str | None:
        pricing = self.request.pricing
        try:
            return None if pricing is None else pricing.function.fingerprint()
        except NoFingerprint:
            return None

    @cached_property
    def _builder(self) -> OptionBuilder:
        return OptionBuilder(
            self.enumerator,
            self.columns,
            self.request.tables,
            self.origins,
            self.extraction,
        )

    def unpriced(self) -> EstimatedSpace:
        """The space without costs, which needs no compiled function."""
        request = replace(self.request, pricing=None)
        return EstimatedSpace(request, self.extraction, self.enumerator, self.origins)

    def with_columns(self, columns: SearchSpace) -> EstimatedSpace:
        """Returns a space of the same tables with other columns."""
        space = EstimatedSpace(self.request, self.extraction, self.enumerator, self.origins)
        space.columns = columns
        return space

    def narrowed(self, choices: Iterable[Choice]) -> EstimatedSpace:
        """Returns the space with only these options, one per table, in this order."""
        tables, origins = [], []
        for choice in choices:
            tables.append(self.extraction.variant(*choice))
            origin = self.origins[choice.table]
            rule = origin.constraint
            if rule is None and choice.cache_params is not None:
                rule = ParameterConstraints()
            if rule is not None and rule.cache_params is not choice.cache_params:
                origin = origin._replace(constraint=replace(rule, cache_params=choice.cache_params))
            origins.append(origin)
        request = replace(self.extraction.request(tables), pricing=self.request.pricing)
        return EstimatedSpace(request, self.extraction, self.enumerator, tuple(origins))

    def as_requested(self, record: PlanRecord) -> EstimatedSpace:
        """Returns the space with only a record's options, whose caches have the requested sizes.

        Raises BadRecord if an option is not allowed.
        """
        request, order = self.request, record.table.tolist()
        menus: dict[tuple[int, int, int], int] = {}
        items: list[MenuItem] = []
        tables = []
        kinds = zip(record.sharding_type.tolist(), record.kernel.tolist(), strict=True)
        for number, (kind, kernel) in zip(order, kinds, strict=True):
            table = request.tables[number]
            choice = table.menu, kind, kernel
            menu = menus.get(choice)
            if menu is None:
                menu = menus[choice] = len(items)
                items.append(_allowed(request, table, SHARDING_TYPES[kind], KERNELS[kernel]))
            tables.append(table.with_menu(menu))
        narrowed = replace(
            request,
            tables=tuple(tables),
            menus=tuple((item,) for item in items),
            hardware=request.hardware and request.hardware.for_tables(order),
        )
        origins = tuple(self.origins[number] for number in order)
        return EstimatedSpace(narrowed, self.extraction, self.enumerator, origins)

    @cached_property
    def table_of_option(self) -> Any:
        """The table number of each option."""
        begin = self.columns.table_option_begin
        return np.repeat(np.arange(self.columns.tables), np.diff(begin))

    def all_options(self) -> list[ShardingOption]:
        with compat.paused():
            return self._builder.all()

    def chosen_options(self, options: Any, ranks: Any) -> list[ShardingOption]:
        tables, lists = self.table_of_option, dict[int, Any]()
        with compat.paused():
            chosen = [self._builder.of_table(int(tables[o]), [int(o)], lists)[0] for o in options]
            return place(chosen, ranks)

    def sharding_plan(self, options: Any, ranks: Any, topology: Any) -> ShardingPlan:
        builder = PlanBuilder(self.columns, self.request.tables, self.origins, topology)
        return builder.build(self.table_of_option, options, ranks)


def recorded_space(space: EstimatedSpace, record: PlanRecord, *, resizes: bool) -> EstimatedSpace:
    """Returns the space with only a record's options. Raises BadRecord if one is not allowed.

    `resizes` says whether a proposer of the search may change cache sizes.
    """
    tables = space.request.tables
    if len(record.table) != len(tables):
        raise BadRecord(f"it has {len(record.table)} tables, the model {len(tables)}")
    if np.isnan(record.load_factor).all():
        return space.as_requested(record)
    choices = []
    for table, kind, kernel_number, factor in zip(
        record.table.tolist(),
        record.sharding_type.tolist(),
        record.kernel.tolist(),
        record.load_factor.tolist(),
        strict=True,
    ):
        sharding_type, kernel = SHARDING_TYPES[kind], KERNELS[kernel_number]
        rule = space.origins[table].constraint
        cache = rule.cache_params if rule is not None else None
        if math.isnan(factor):
            _allowed(space.request, tables[table], sharding_type, kernel)
        else:
            if can_resize(space.request, table) and kernel == _CACHED and 0 < factor < 1:
                cache = replace(cache or CacheParams(), load_factor=factor)
            else:
                cache = _scaled_cache_params(
                    tables[table].name, kernel, factor, cache if resizes else None
                )
            # The scale-up proposer moves tables that outgrow their cache to the device.
            _allowed(space.request, tables[table], sharding_type, kernel, _CACHED)
        choices.append(Choice(table, sharding_type, kernel, cache))
    return space.narrowed(choices)


def _allowed(request: Request, table: Table, sharding_type: str, *kernels: str) -> MenuItem:
    """Returns the item of a table's menu for one of these kernels.

    Raises BadRecord if there is none: the message is about the first kernel.
    """
    for item in request.menus[table.menu]:
        if item.sharding_type == sharding_type and item.kernel in kernels:
            return item
    raise BadRecord(f"table {table.name} no longer allows ({sharding_type}, {kernels[0]})")


def _scaled_cache_params(name: str, kernel: str, factor: float, cache: Any) -> Any:
    """Returns the cache parameters of the scale-up proposer. Raises BadRecord for others."""
    if cache is None:
        raise BadRecord(f"table {name} has another cache size, and no proposer resizes caches")
    if kernel == "fused" and factor == NO_LOAD_FACTOR:
        return replace(cache, load_factor=None)
    if kernel == _CACHED and 0 < factor < 1:
        return replace(cache, load_factor=factor)
    raise BadRecord(f"table {name} can't be {kernel} with a cache load factor of {factor:g}")


class FixedSpace:
    """The options of one plan from Python."""

    def __init__(self, plan: list[ShardingOption]) -> None:
        self._plan = plan

    @property
    def columns(self) -> SearchSpace:
        return _columns([[option] for option in self._plan])

    def all_options(self) -> list[ShardingOption]:
        return self._plan

    def chosen_options(self, options: Any, ranks: Any) -> list[ShardingOption]:
        return self._plan


class FixedPlacement(Placement):
    """A plan of options from Python. Its record is the given one, or None."""

    @classmethod
    def of(
        cls, plan: list[ShardingOption], rating: float, record: PlanRecord | None
    ) -> FixedPlacement:
        none = np.empty(0, np.int32)
        return cls(FixedSpace(plan), none, none, rating, record)

    @property
    def record(self) -> PlanRecord | None:
        return self.stored


class PythonSpace:
    """A space that custom Python code enumerated or estimated, with its original objects."""

    def __init__(self, options: list[ShardingOption]) -> None:
        self._by_table = _by_table(options)
        self._options = [option for table in self._by_table for option in table]
        self.columns = _columns(self._by_table)

    def all_options(self) -> list[ShardingOption]:
        return self._options

    def chosen_options(self, options: Any, ranks: Any) -> list[ShardingOption]:
        return place(copy_options([self._options[o] for o in options]), ranks)


def _by_table(options: list[ShardingOption]) -> list[list[ShardingOption]]:
    """Groups options by table in order of appearance, as TorchRec's proposers do."""
    tables: dict[str, list[ShardingOption]] = {}
    for option in options:
        tables.setdefault(option.fqn, []).append(option)
    grouped = list(tables.values())
    flat = [option for table in grouped for option in table]
    if any(a is not b for a, b in zip(flat, options, strict=True)):
        raise NotNative("the options of a table are not next to each other")
    return grouped


def _columns(tables: list[list[ShardingOption]]) -> SearchSpace:
    modules: dict[str, int] = {}
    towers: dict[str | None, int] = {None: -1}
    option_type, option_kernel, option_key = [], [], []
    partitioned_by = cache(_partition_by)
    for table in tables:
        if len({(option.dependency or None, option.path) for option in table}) != 1:
            raise NotNative(f"table {table[0].fqn} has options with different dependencies")
        for option in table:
            if partitioned_by(option.sharding_type) != option.partition_by:
                raise NotNative(f"table {option.fqn} is partitioned by {option.partition_by}")
            if option.compute_kernel not in KERNEL_INDEX:
                raise NotNative(f"kernel {option.compute_kernel} is unknown")
            option_type.append(SHARDING_TYPE_INDEX[option.sharding_type])
            option_kernel.append(KERNEL_INDEX[option.compute_kernel])
            option_key.append(hash(option) & 0xFFFFFFFFFFFFFFFF)
    runs = read_runs([option for table in tables for option in table])
    return SearchSpace(
        table_option_begin=np.cumsum([0, *map(len, tables)], dtype=np.int64),
        table_module=np.array(
            [modules.setdefault(table[0].path, len(modules)) for table in tables], np.int32
        ),
        table_group=np.array(
            [towers.setdefault(table[0].dependency or None, len(towers) - 1) for table in tables],
            np.int32,
        ),
        option_type=np.array(option_type, np.uint8),
        option_kernel=np.array(option_kernel, np.uint8),
        option_key=np.array(option_key, np.uint64),
        **runs,
    )


def _partition_by(sharding_type: str) -> str:
    if sharding_type not in SHARDING_TYPES:
        raise NotNative(f"sharding type {sharding_type} is unknown")
    return str(get_partition_by_type(sharding_type))
