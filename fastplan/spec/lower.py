"""Turns a spec into a job, with the request that fastplan's planner reads from TorchRec's objects.

The two requests are equal to the last bit, fingerprint included. Tests check this with TorchRec.
"""

from __future__ import annotations

import math
import os
import re
import sys
from contextlib import suppress
from typing import Any

from fastplan.model.hardware_costs import kernel_without_figures
from fastplan.model.job import CannotPlan, SpecJob
from fastplan.model.references import CodeNotTrusted, check_trust, is_own
from fastplan.model.request import (
    Cluster,
    Coefficients,
    HardwareCosts,
    IdCurves,
    MenuItem,
    ObjectiveFunction,
    Order,
    Pricing,
    Request,
    Search,
    Table,
    digest_orders,
    unusual_order,
)
from fastplan.model.vocabulary import SHARDING_TYPES
from fastplan.spec import stock
from fastplan.spec.cluster import DEFAULT_HARDWARE, Memory, cluster_of
from fastplan.spec.hardware import Hardware, find_hardware, hardware_constants
from fastplan.spec.ids import statistics_of
from fastplan.spec.model import CacheSpec, ModelSpec, ModuleSpec, TableSpec
from fastplan.spec.stock_rules import (
    MenuRules,
    Shape,
    cost_model,
    describe_reservation,
    input_bytes,
    kernel_bandwidth,
    optimizer_multiplier,
    optimizer_states,
    reserve,
)

_TORCHREC = re.compile(r"torchrec(-.+)?\.(dist|egg)-info")  # its metadata folder
_STOCK_COEFFICIENTS = Coefficients((1.0, 1.0, 1.0, 0.0), None)


def lower(spec: ModelSpec, *, trust: bool = False, like: SpecJob | None = None) -> SpecJob:
    """Returns the job of a spec that has a cluster.

    Args:
        spec: The spec.
        trust: Whether to import the `cost` and the `objective` that the spec names. This runs their
            modules: use it only for files that you trust. Function objects in the fields
            `shard_cost` and `objective`, and costs that come with fastplan, need no trust.
        like: The job of this spec on another number of ranks with like memory, to use its tables.

    Raises:
        CannotPlan: The spec can't be planned. Its subclass CodeNotTrusted means that the spec
            names code and `trust` is not set.
        HardwareError: The ranks don't fill the hardware's hosts.
        CostError: A name can't be found, or is not a cost or objective.
    """
    if trust is False:
        check_trusted(spec)
    else:
        check_trust(trust)
    pricing, objective = _pricing(spec), _objective(spec)
    version = torchrec_version(spec)
    hardware, shape = cluster_of(spec)
    memory = Memory.of(spec, hardware, shape.world_size)
    lowering = _Lowering(spec, version, hardware, shape, memory)
    request = lowering.request(pricing, like)
    if request.hardware is not None and (problem := kernel_without_figures(request)):
        raise CannotPlan(f"{problem}: allow others with `compute_kernels`, or use TorchRec's costs")
    inputs = input_bytes(spec.reservation, spec.tables, spec.batch_size)
    hbm, ddr = reserve(spec.reservation, hardware.device, inputs, memory.hbm, memory.ddr)
    search = Search(
        proposers=spec.search.proposers,
        partitioner=spec.search.partitioner,
        timeout_seconds=spec.search.timeout_seconds,
        objective=objective,
    )
    context = {
        "torchrec": version,
        "deterministic": spec.search.deterministic,
        "local_world_size": shape.local_world_size,
        "group_size": shape.group_size,
        "reservation": describe_reservation(spec.reservation, hardware.device, inputs),
    }
    order = like.context.get("option_order") if like else lowering.order_digest()
    context |= {"option_order": order} if order else {}
    return SpecJob(
        name=spec.name,
        hardware=hardware.name,
        request=request,
        cluster=Cluster(
            rank_hbm=hbm,
            rank_ddr=ddr,
            rank_ssd=memory.ssd,
            local_world_size=shape.local_world_size,
            group_size=shape.group_size,
        ),
        search=search,
        context=context,
        figures={} if spec.costs == "torchrec" else hardware.costs,
        device=hardware.device,
        settings=like.settings if like else tuple(_settings(table) for table in spec.tables),
    )


def check_trusted(spec: ModelSpec) -> None:
    """Checks that a spec names no code.

    Raises:
        CodeNotTrusted: The spec names code, so planning it needs trust.
    """
    for field, function in (("cost", spec.shard_cost), ("objective", spec.objective)):
        if isinstance(function, str) and not is_own(function):
            raise CodeNotTrusted(function, spec.source, field)


def _pricing(spec: ModelSpec) -> Pricing | None:
    function = spec.shard_cost
    if isinstance(function, str):
        from fastplan.costs.functions import find_cost

        function = find_cost(function)
    return None if function is None else Pricing(function=function, batch_size=spec.batch_size)


def _objective(spec: ModelSpec) -> ObjectiveFunction | None:
    if not isinstance(spec.objective, str):
        return spec.objective
    from fastplan.costs.functions import find_objective

    return find_objective(spec.objective)


def torchrec_version(spec: ModelSpec) -> str:
    """Returns the TorchRec version to match: the spec's, the installed one, or the oldest known."""
    if spec.torchrec is not None:
        return spec.torchrec
    release = _installed_torchrec().rpartition(".")[0]  # 1.9.1 has the rules of 1.9.2
    return next((v for v in stock.VERSIONS if v.startswith(f"{release}.")), stock.VERSIONS[0])


def _installed_torchrec() -> str:
    """Returns the version of the installed TorchRec; empty if it is not installed.

    Looks for its folder first, because importing importlib.metadata takes longer than `lower`.
    """
    for folder in sys.path:
        with suppress(OSError):
            found = [name for name in os.listdir(folder or ".") if _TORCHREC.fullmatch(name)]
            if found and found[0].endswith(".dist-info"):
                return found[0].removeprefix("torchrec-").removesuffix(".dist-info")
            if found:
                break
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torchrec")
    except PackageNotFoundError:
        return ""


class _Lowering:
    """Turns the tables of a spec into those of a request, and collects their menus."""

    def __init__(
        self, spec: ModelSpec, version: str, hardware: Hardware, shape: Shape, memory: Memory
    ) -> None:
        self._spec = spec
        self._hardware = hardware
        self._shape = shape
        self._memory = memory
        self._rules = MenuRules(
            version,
            hardware.device,
            has_ssd=any(n > 0 for n in memory.ssd),
            deterministic=spec.search.deterministic,
        )
        self._menus: dict[Any, int] = {}
        self._items: list[tuple[MenuItem, ...]] = []
        self._coefficients: dict[Coefficients, int] = {}
        self._orders: dict[Any, Order] = {}

    def order_digest(self) -> str:
        """Returns the digest of the orders in which options are offered; empty if all are usual."""
        orders = ((table.module, table.name, self._order(table)) for table in self._spec.tables)
        unusual = [each for each in orders if each[-1]]
        return digest_orders(unusual) if unusual else ""

    def _order(self, table: TableSpec) -> Order:
        key = (table.module, table.sharding_types, table.compute_kernels, table.menu)
        known = self._orders.get(key)
        if known is None:
            module = self._spec.modules.get(table.module) or ModuleSpec()
            if table.menu is None:
                pairs = self._rules.pairs(module, table)
            else:
                pairs = [(each.sharding_type, each.kernel) for each in self._spec.menus[table.menu]]
            # Menus are listed as they are planned, unless that is the order of a set.
            if table.menu is None or self._rules.hashed:
                pairs = self._rules.as_offered(module, pairs)
            known = self._orders[key] = unusual_order(pairs)
        return known

    def request(self, pricing: Pricing | None, like: SpecJob | None) -> Request:
        if self._hardware.device not in stock.DEVICES:
            raise CannotPlan(
                f"device {self._hardware.device!r} is not one of {', '.join(stock.DEVICES)}"
            )
        tables = like.request.tables if like else tuple(map(self._table, self._spec.tables))
        menus = like.request.menus if like else tuple(self._items)
        types = frozenset(item.sharding_type for menu in menus for item in menu)
        if pricing is not None:
            types = frozenset(SHARDING_TYPES)  # a custom cost may read every bandwidth
        return Request(
            tables=tables,
            menus=menus,
            coefficients=like.request.coefficients if like else tuple(self._coefficients),
            cost=cost_model(self._hardware, self._shape, types, self._memory.main, self._spec.cost),
            pricing=pricing,
            hardware=self._hardware_costs(),
        )

    def _hardware_costs(self) -> HardwareCosts | None:
        spec = self._spec
        if spec.costs == "torchrec":
            return None
        # Of the SKU itself: a pod that holds the whole job has replaced the network's bandwidth.
        hardware = spec.topology.hardware or find_hardware(DEFAULT_HARDWARE)
        return HardwareCosts(
            constants=hardware_constants(hardware),
            domain_ranks=self._shape.group_size,
            states=tuple(optimizer_states(table.optimizer, table.dim) for table in spec.tables),
            pipeline=spec.pipeline,
            ids=tuple(map(_curves, spec.tables)),
        )

    def _table(self, spec: TableSpec) -> Table:
        module = self._spec.modules.get(spec.module) or ModuleSpec()
        kind = stock.KINDS[module.kind]
        pooled = kind.pooled if module.pooled is None else module.pooled
        element_size = stock.DTYPE_SIZES[spec.dtype]
        cache = spec.cache or CacheSpec()
        ratio = module.cache_load_factor if cache.load_factor is None else cache.load_factor
        statistics = (
            (math.nan, math.nan)
            if ratio is None or cache.expected_lookups is None or cache.miss_rate is None
            else (cache.expected_lookups, cache.miss_rate)
        )
        inputs, outputs = self._batch(spec)
        wire = module.wire or (float(element_size),) * 4
        output_size = (
            float(element_size)
            if spec.output_dtype is None
            else stock.OUTPUT_BITS[spec.output_dtype] / 8
        )
        kv_factor = module.cache_load_factor
        table = Table(
            name=spec.name,
            path=spec.module,
            rows=spec.rows,
            dim=spec.dim,
            element_size=element_size,
            bytes=spec.rows * spec.dim * element_size,
            menu=self._menu(module, spec, ratio, bool(cache.prefetch) or module.prefetch),
            perf_inputs=inputs,
            perf_outputs=outputs,
            storage_inputs=inputs,
            storage_outputs=outputs,
            pooled=pooled,
            weighted=module.weighted if spec.weighted is None else spec.weighted,
            usage=kind.usage,
            virtual=spec.virtual,
            output_element_size=output_size,
            fwd_a2a=wire[0],
            bwd_a2a=wire[1],
            fwd_sr=wire[2],
            bwd_sr=wire[3],
            min_partition=spec.min_partition,
            buckets=spec.buckets,
            prefetch_passes=module.passes if cache.passes is None else cache.passes,
            optimizer_multiplier=optimizer_multiplier(spec.optimizer, spec.dim),
            cache_ratio=ratio or stock.CACHE_LOAD_FACTOR,
            kv_load_factor=stock.CACHE_LOAD_FACTOR if kv_factor is None else kv_factor,
            kv_cache_bytes=spec.key_value_cache,
            expected_lookups=statistics[0],
            miss_rate=statistics[1],
            tower=spec.tower,
        )
        return table._replace(**spec.exact) if spec.exact else table

    def _batch(self, table: TableSpec) -> tuple[float, float]:
        """Returns the values looked up and the output vectors of one local batch."""
        lengths = table.pooling
        poolings = table.poolings or (stock.NUM_POOLINGS,) * len(lengths)
        sizes = table.batch_sizes or (self._spec.batch_size,) * len(lengths)
        if not len(lengths) == len(poolings) == len(sizes):
            raise CannotPlan(
                f"table {table.name}: `pooling`, `poolings` and `batch_sizes` differ in number"
            )
        features = list(zip(lengths, poolings, sizes, strict=True))
        return (
            float(sum(x * y * z for x, y, z in features)),
            float(sum(min(1.0, x) * y * z for x, y, z in features)),
        )

    def _menu(
        self, module: ModuleSpec, table: TableSpec, ratio: float | None, prefetch: bool
    ) -> int:
        if table.menu is not None:
            key: Any = table.menu
        else:
            key = (table.module, table.sharding_types, table.compute_kernels, ratio, prefetch)
        known = self._menus.get(key)
        if known is not None:
            return known
        if table.menu is not None:
            entries = [
                (entry.sharding_type, entry.kernel, entry.bandwidth, entry[3:])
                for entry in self._spec.menus[table.menu]
            ]
        else:
            entries = [
                (kind, kernel, self._bandwidth(kernel, ratio, prefetch, table), _STOCK_COEFFICIENTS)
                for kind, kernel in self._rules.pairs(module, table)
            ]
        if not entries:
            raise CannotPlan(
                f"table {table.name}: no sharding type and kernel is left on "
                f"{self._hardware.device}; allow others with `sharding_types`, `compute_kernels`"
            )
        items = tuple(
            MenuItem(kind, kernel, bandwidth, self._coefficient(Coefficients(*weights)))
            for kind, kernel, bandwidth, weights in entries
        )
        self._menus[key] = len(self._items)
        self._items.append(items)
        return self._menus[key]

    def _coefficient(self, weights: Coefficients) -> int:
        return self._coefficients.setdefault(weights, len(self._coefficients))

    def _bandwidth(
        self, kernel: str, ratio: float | None, prefetch: bool, table: TableSpec
    ) -> float:
        hardware = self._hardware
        bandwidth = kernel_bandwidth(
            hardware.device,
            kernel,
            hbm=hardware.hbm_mem_bw,
            ddr=hardware.ddr_mem_bw,
            ssd=hardware.ssd_mem_bw,
            hbm_to_ddr=hardware.hbm_to_ddr_mem_bw,
            cache_ratio=ratio,
            prefetch=prefetch,
        )
        if bandwidth is None:
            raise CannotPlan(
                f"table {table.name}: kernel {kernel} does not run on {hardware.device}"
            )
        return bandwidth


def _curves(table: TableSpec) -> IdCurves | None:
    if table.ids is None:
        return None
    ids = statistics_of(table.ids)
    return IdCurves(ids.unique, ids.misses)


def _settings(table: TableSpec) -> dict[str, Any]:
    """Returns the settings of a table that the plan stores in addition to its shards."""
    settings: dict[str, Any] = {}
    if table.cache is not None and table.cache.load_factor is not None:
        settings["cache_params"] = {"load_factor": table.cache.load_factor}
    if table.output_dtype is not None:
        settings["output_dtype"] = table.output_dtype.upper()
    return settings | table.settings
