"""Reads a module, its sharders and constraints as a request."""

from __future__ import annotations

import copy
import math
from inspect import getattr_static
from operator import is_
from types import SimpleNamespace
from typing import Any, NamedTuple

from torchrec.distributed.planner.constants import (
    POOLING_FACTOR,
    UVM_CACHING_RATIO,
)
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.planner.utils import (
    sharder_name,
)

from fastplan.model.hardware_costs import kernel_without_figures
from fastplan.model.request import CostModel, HardwareCosts, Request, Table
from fastplan.spec.stock_rules import optimizer_states
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences.estimates import (
    build_sharder_data_map,
    extract_comm_data_type_size,
)
from fastplan.torchrec.read import custom
from fastplan.torchrec.read.costs import Estimators
from fastplan.torchrec.read.hardware import PlannerHardware, optimizer_name
from fastplan.torchrec.read.menus import Menus
from fastplan.torchrec.read.miss_rates import MissRates
from fastplan.torchrec.read.modules import (
    Cache,
    CachedSharder,
    TableModule,
    batch_counts,
    key_value_bytes,
    optimizer_multiplier,
    output_size,
    read_cache,
    tensor_bytes,
)

_NAN = math.nan
_DEFAULT_LENGTHS = [POOLING_FACTOR]


class TableSource(NamedTuple):
    """The source of a table of the request."""

    name: str
    path: str
    module: Any
    parameter: Any
    constraint: Any  # None without one
    holder: TableModule


class _ConstraintSnapshot(NamedTuple):
    """A constraint that many tables may share, kept alive so that no other object gets its id."""

    rule: Any
    values: list[Any]  # of its fields at the copy: a mapping may change it for each table
    copied: Any


class Extraction:
    """Walks a module once and collects its tables, as TorchRec's enumerator does."""

    def __init__(
        self,
        enumerator: Any,
        sharders: list[CachedSharder],
        *,
        deterministic: bool,
        hardware: PlannerHardware | None = None,
    ) -> None:
        self._enumerator = enumerator
        self._hardware = hardware
        self.estimators = Estimators(enumerator)
        if self.estimators.custom:
            custom.use_native_cost(self.estimators, enumerator)
        elif not (self.estimators.has_perf and self.estimators.has_storage):
            raise NotNative("no estimator estimates perf, or none estimates storage")
        self._constraints = enumerator._constraints or {}
        self._perf_constraints = self.estimators.perf._constraints or {}
        self._storage_constraints = self.estimators.storage._constraints or {}
        self._cached_sharders = {sharder_name(cached.module_type): cached for cached in sharders}
        self._sharders = {name: cached.sharder for name, cached in self._cached_sharders.items()}
        self._data = build_sharder_data_map(self._sharders)
        self.menus = Menus(enumerator, self.estimators, deterministic=deterministic)
        self._wire: dict[Any, tuple[float, float, float, float]] = {}
        self._kept: dict[int, _ConstraintSnapshot] = {}
        self._last_holder: TableModule | None = None
        self._default_cache = Cache(None, False, 0, _NAN, _NAN)  # of the last holder
        self.batch_size = enumerator._batch_size
        self.tables: list[Table] = []
        self.origins: list[TableSource] = []

    def walk(self, module: Any) -> None:
        """Collects every table below `module`."""
        enumerator = self._enumerator
        # Readers of the enumerator see it, as after TorchRec's own enumeration.
        enumerator._sharder_map = self._sharders
        enumerator._sharder_data_map = self._data
        last = 0 if enumerator._use_exact_enumerate_order else -1
        waiting = [("", module)]
        while waiting:
            path, child = waiting.pop(last)
            key = sharder_name(type(child))
            cached = self._cached_sharders.get(key)
            if cached is None or not cached.sharder:
                prefix = f"{path}." if path else ""
                waiting.extend((prefix + name, inner) for name, inner in child.named_children())
                continue
            holder = TableModule(path, child, cached, self._data[key])
            for name, parameter in cached.shardable_parameters(child).items():
                self._add(holder, name, parameter)

    def request(self, tables: list[Table] | None = None) -> Request:
        """Returns the request for all tables, or for some. Raises NotNative for duplicates."""
        tables = self.tables if tables is None else tables
        if len({(table.path, table.name) for table in tables}) != len(tables):
            raise NotNative("two tables have the same name and path")
        types = {item.sharding_type for menu in self.menus.items for item in menu}
        request = Request(
            tables=tuple(tables),
            menus=tuple(self.menus.items),
            coefficients=self.estimators.coefficients,
            cost=self.estimators.cost_model(types),
            pricing=self.estimators.pricing,
            hardware=self._hardware_costs(tables, self.estimators.cost_model(types)),
        )
        if request.hardware is not None and (problem := kernel_without_figures(request)):
            raise NotNative(problem)
        return request

    def _hardware_costs(self, tables: list[Table], cost: CostModel) -> HardwareCosts | None:
        """Returns the hardware costs of these tables; None if costs are TorchRec's."""
        if self._hardware is None:
            return None
        names = {
            (origin.path, origin.name): optimizer_name(origin.parameter, origin.holder.sharder)
            for origin in self.origins
        }
        states = (optimizer_states(names[table.path, table.name], table.dim) for table in tables)
        self._hardware.check_names(name for _, name in names)
        return self._hardware.costs(
            domain_ranks=cost.perf_group_size,
            states=tuple(states),
            names=(table.name for table in tables),
        )

    def variant(
        self,
        index: int,
        sharding_type: str,
        kernel: str,
        cache: Any,
        miss_rates: MissRates | None = None,
    ) -> Table:
        """Returns a request for table `index` with one option, and optional cache parameters.

        `miss_rates` remembers the statistics of caches, for a caller that tries many sizes.
        """
        origin = self.origins[index]
        holder = origin.holder
        read = self._cache_of(cache, holder, miss_rates)
        menu = self.menus.of_option(sharding_type, kernel, read)
        if cache is (origin.constraint.cache_params if origin.constraint else None):
            return self.tables[index].with_menu(menu)
        return self.tables[index]._replace(
            menu=menu,
            prefetch_passes=read.prefetch_passes,
            cache_ratio=read.ratio or UVM_CACHING_RATIO,
            expected_lookups=read.lookups,
            miss_rate=read.miss_rate,
        )

    def _add(self, holder: TableModule, name: str, parameter: Any) -> None:
        rule = self._constraints.get(name)
        constraint = self._snapshot_constraint(rule) if rule else None
        group = constraint.device_group if constraint else None
        if group and group != self._enumerator._compute_device:
            return
        shape = parameter.shape
        if len(shape) != 2:
            raise NotNative(f"table {name} does not have two dimensions")
        rows, dim = shape
        element_size = parameter.element_size()
        cache = self._cache_of(constraint.cache_params if constraint else None, holder)
        lengths = constraint.pooling_factors if constraint else _DEFAULT_LENGTHS
        perf_rule = self._perf_constraints.get(name) or None
        storage_rule = self._storage_constraints.get(name) or None
        perf_batch = self._batch(lengths, perf_rule, name)
        storage_batch = (
            perf_batch if storage_rule is perf_rule else self._batch(lengths, storage_rule, name)
        )
        weighted = holder.weighted
        if weighted is None:
            weighted = bool(perf_rule is not None and perf_rule.is_weighted)
        self.tables.append(
            Table(
                name,
                holder.path,
                rows,
                dim,
                element_size,
                tensor_bytes(parameter, rows * dim * element_size),
                self.menus.of_table(holder, name, constraint, cache),
                *perf_batch,
                *storage_batch,
                holder.pooled,
                weighted or name in holder.processed,
                holder.usage,
                bool(storage_rule is not None and storage_rule.use_virtual_table),
                output_size(constraint, element_size),
                *self._wire_sizes(holder, parameter, element_size),
                _min_partition(constraint) if constraint else 0,
                holder.buckets(name, self._enumerator),
                cache.prefetch_passes,
                optimizer_multiplier(parameter),
                cache.ratio or UVM_CACHING_RATIO,
                holder.kv_load_factor,
                key_value_bytes(constraint, storage_rule),
                cache.lookups,
                cache.miss_rate,
                holder.tower(name) if holder.has_towers else None,
            )
        )
        self.origins.append(
            TableSource(name, holder.path, holder.module, parameter, constraint, holder)
        )

    def _cache_of(
        self, params: Any, holder: TableModule, miss_rates: MissRates | None = None
    ) -> Cache:
        """Returns the cache of a table. Tables without cache parameters share their module's."""
        if params is not None:
            return read_cache(params, holder, miss_rates)
        if holder is not self._last_holder:
            self._last_holder, self._default_cache = holder, read_cache(None, holder)
        return self._default_cache

    def _snapshot_constraint(self, rule: Any) -> Any:
        """A snapshot of a constraint; options and plans are created from it on demand."""
        known = self._kept.get(id(rule))
        values = list(vars(rule).values())
        if known is None or not all(map(is_, known.values, values)):
            if computed := _computed_field(rule):
                raise NotNative(f"{compat.describe(rule)} computes `{computed}`")
            known = self._kept[id(rule)] = _ConstraintSnapshot(rule, values, _copied_rule(rule))
        return known.copied

    def _batch(self, lengths: list[float], rule: Any, name: str) -> tuple[float, float]:
        poolings = rule.num_poolings if rule is not None else None
        sizes = rule.batch_sizes if rule is not None else None
        return batch_counts(lengths, poolings, sizes, self.batch_size, name)

    def _wire_sizes(
        self, holder: TableModule, parameter: Any, element_size: int
    ) -> tuple[float, float, float, float]:
        key = (holder.key, holder.pooled, element_size)
        known = self._wire.get(key)
        if known is None:
            option = SimpleNamespace(tensor=parameter, is_pooled=holder.pooled)
            known = self._wire[key] = extract_comm_data_type_size(option, holder.data)
        return known


def _computed_field(rule: Any) -> str:
    """Returns the first field that is not simply stored, as properties are not; empty if none."""
    kind: Any = type(rule)
    if kind is ParameterConstraints:
        return ""
    if getattr_static(kind, "__getattribute__") is not object.__getattribute__:
        return "__getattribute__"
    fields = ParameterConstraints.__dataclass_fields__
    return next((n for n in fields if hasattr(getattr_static(kind, n, None), "__get__")), "")


def _copied_rule(rule: Any) -> Any:
    copied = object.__new__(type(rule))
    vars(copied).update(vars(rule))  # a copy without the time of copy.copy()
    copied.users_lists = rule.pooling_factors, rule.feature_names
    copied.pooling_factors = _copied_list(rule.pooling_factors)
    copied.feature_names = _copied_list(rule.feature_names)
    if rule.cache_params is not None:
        copied.cache_params = compat.copy_params(rule.cache_params)
    if rule.key_value_params is not None:
        copied.key_value_params = compat.copy_params(rule.key_value_params)
    return copied


def _copied_list(values: Any) -> Any:
    return values.copy() if type(values) is list else copy.copy(values)


def _min_partition(constraint: Any) -> int:
    width = (constraint.min_partition or 0) if constraint else 0
    if not isinstance(width, int):
        raise NotNative(f"a partition is {type(width).__name__}, not a whole number")
    return width
