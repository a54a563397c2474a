"""Writes a real model down as a spec, so that it can be planned where TorchRec is not installed.

The spec is checked before it is given out: its own request must be the one that the planner makes
for the module, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torchrec.optim
from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.types import ParameterSharding

from fastplan.bridge import components, versions
from fastplan.bridge.caching import CacheUse
from fastplan.bridge.cluster import read_cluster, reserve
from fastplan.bridge.extract import Holder, Origin
from fastplan.bridge.fallback import NotNative, describe
from fastplan.bridge.sharders import AskedSharder
from fastplan.bridge.space import EstimatedSpace
from fastplan.cache.differences import differences
from fastplan.cache.fingerprint import canonical_request
from fastplan.spec import stock
from fastplan.spec.cost_model import COST_FIELDS
from fastplan.spec.hardware import Hardware
from fastplan.spec.job import CannotPlan, Job
from fastplan.spec.lower import lower
from fastplan.spec.model import (
    CacheSpec,
    MenuEntry,
    ModelSpec,
    ModuleSpec,
    ReservationSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
)
from fastplan.spec.references import is_reference
from fastplan.spec.request import Cluster, MenuItem, Request
from fastplan.spec.reservation import POLICIES

_KINDS = {
    "torchrec.modules.embedding_modules.EmbeddingBagCollection": "embedding_bag_collection",
    "torchrec.modules.embedding_modules.EmbeddingCollection": "embedding_collection",
    "torch.nn.modules.sparse.EmbeddingBag": "embedding_bag",
    "torchrec.modules.fused_embedding_modules.FusedEmbeddingBagCollection": (
        "fused_embedding_bag_collection"
    ),
    "torchrec.modules.fused_embedding_modules.FusedEmbeddingCollection": (
        "fused_embedding_collection"
    ),
    "torchrec.modules.fp_embedding_modules.FeatureProcessedEmbeddingBagCollection": (
        "feature_processed_embedding_bag_collection"
    ),
    "torchrec.modules.mc_embedding_modules.ManagedCollisionEmbeddingBagCollection": (
        "managed_collision_embedding_bag_collection"
    ),
    "torchrec.modules.mc_embedding_modules.ManagedCollisionEmbeddingCollection": (
        "managed_collision_embedding_collection"
    ),
    "torchrec.modules.embedding_tower.EmbeddingTower": "embedding_tower",
    "torchrec.modules.embedding_tower.EmbeddingTowerCollection": "embedding_tower_collection",
    "torchrec.quant.embedding_modules.EmbeddingBagCollection": "quant_embedding_bag_collection",
    "torchrec.quant.embedding_modules.EmbeddingCollection": "quant_embedding_collection",
    "torchrec.quant.embedding_modules.FeatureProcessedEmbeddingBagCollection": (
        "quant_feature_processed_embedding_bag_collection"
    ),
}
_DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int8: "int8",
    torch.uint8: "uint8",
}
_OPTIMIZERS = {
    torch.optim.SGD: "sgd",
    torchrec.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torchrec.optim.Adam: "adam",
    torchrec.optim.RowWiseAdagrad: "rowwise_adagrad",
}
_POLICIES = {
    getattr(storage_reservations, name): policy
    for policy, name in POLICIES.items()
    if hasattr(storage_reservations, name)
}


class CannotExport(ValueError):
    """A part of the model or planner that a spec has no words for."""


def export_spec(planner: Any, module: Any, sharders: list[Any], name: str = "model") -> ModelSpec:
    """The spec of what `planner` would plan for `module`.

    Planned from the file it gives the same plan under the same fingerprint. Raises CannotExport
    for custom parts that a spec can't describe.
    """
    try:
        space = planner._drafted(module, sharders)
        asked = [AskedSharder(sharder) for sharder in sharders]
        cluster = read_cluster(reserve(planner, module, asked))
        expected = CacheUse(planner, None, space)._request(cluster)
        search = _search(planner, len(cluster.rank_hbm))
    except NotNative as why:
        raise CannotExport(f"{why}; a spec can't hold that") from why
    draft = ModelSpec(
        name=name,
        batch_size=planner._batch_size,
        torchrec=versions.VERSION,
        modules=_modules(space),
        tables=tuple(
            _table(table.tower, origin)
            for table, origin in zip(space.request.tables, space.origins, strict=True)
        ),
        topology=_topology(planner),
        reservation=_reservation(planner._storage_reservation),
        search=search,
        shard_cost=_name(space.request.pricing and space.request.pricing.function),
        objective=_name(components.read_objective(planner._perf_model, len(cluster.rank_hbm))),
    )
    spec = _corrected(draft, space.request, planner._storage_reservation)
    _check(spec, expected, cluster)
    return spec


def _name(function: Any) -> str | None:
    """A custom function as a spec names it."""
    if function is None:
        return None
    if not is_reference(function.name) or function.name.startswith("__main__:"):
        raise CannotExport(f"{function.name} is not at the top of a module that can be imported")
    return str(function.name)


def _modules(space: EstimatedSpace) -> dict[str, ModuleSpec]:
    holders = {origin.path: origin.holder for origin in space.origins}
    tables: dict[str, list[Any]] = {path: [] for path in holders}
    for table in space.request.tables:
        tables[table.path].append(table)
    device = space.enumerator._compute_device
    return {path: _module(holder, tables[path], device) for path, holder in holders.items()}


def _module(holder: Holder, tables: list[Any], device: str) -> ModuleSpec:
    kind = _KINDS.get(holder.key)
    if kind is None:
        kind = "embedding_bag_collection" if holder.pooled else "embedding_collection"
    own = stock.KINDS[kind]
    types = tuple(holder.sharder.sharding_types(device))
    kernels = {name: tuple(holder.sharder.compute_kernels(name, device)) for name in types}
    stock_types = own.types.get(device, ())
    usual = types == stock_types and all(
        own.kernels_of(name, device) == kernels[name] for name in types
    )
    wires = {(table.fwd_a2a, table.bwd_a2a, table.fwd_sr, table.bwd_sr) for table in tables}
    plain = {(float(table.element_size),) * 4 for table in tables}
    passes = holder.data.fused_params.get("multipass_prefetch_config")
    return ModuleSpec(
        kind=kind,
        weighted=all(table.weighted for table in tables),
        cache_load_factor=holder.load_factor,
        prefetch=holder.prefetches,
        passes=(passes.num_passes or 0) if passes else 0,
        wire=None if wires == plain else tuple(map(float, next(iter(wires)))),  # type: ignore[arg-type]
        sharding_types=None if usual else types,
        compute_kernels=None if usual else kernels,
        pooled=None if own.pooled == holder.pooled else holder.pooled,
    )


def _table(tower: str | None, origin: Origin) -> TableSpec:
    rule, parameter = origin.constraint, origin.parameter
    rows, dim = parameter.shape
    if parameter.dtype not in _DTYPES:
        raise CannotExport(f"table {origin.name} holds {parameter.dtype}; a spec can't hold that")
    classes = getattr(parameter, "_optimizer_classes", None)
    spec = TableSpec(
        name=origin.name,
        rows=int(rows),
        dim=int(dim),
        module=origin.path,
        dtype=_DTYPES[parameter.dtype],
        features=_features(origin),
        optimizer=None if classes is None else _OPTIMIZERS.get(classes[0], "other"),
        tower=tower,
    )
    return spec if rule is None else _constrained(spec, rule)


def _constrained(spec: TableSpec, rule: Any) -> TableSpec:
    cache = rule.cache_params
    passes = cache.multipass_prefetch_config if cache is not None else None
    key_value = rule.key_value_params
    return replace(
        spec,
        pooling=tuple(map(float, rule.pooling_factors)),
        poolings=tuple(map(float, rule.num_poolings)) if rule.num_poolings else None,
        batch_sizes=tuple(map(int, rule.batch_sizes)) if rule.batch_sizes else None,
        sharding_types=tuple(rule.sharding_types) if rule.sharding_types else None,
        compute_kernels=tuple(rule.compute_kernels) if rule.compute_kernels else None,
        min_partition=rule.min_partition or 0,
        output_dtype=rule.output_dtype.value.lower() if rule.output_dtype else None,
        cache=None
        if cache is None
        else CacheSpec(
            load_factor=cache.load_factor,
            prefetch=cache.prefetch_pipeline,
            passes=None if passes is None else passes.num_passes or 0,
        ),
        key_value_cache=((key_value.max_l1_cache_size or 0) if key_value else 0) * 1024 * 1024,
        virtual=bool(rule.use_virtual_table),
        settings=_settings(rule, spec.name),
    )


def _settings(rule: Any, table: str) -> dict[str, Any]:
    """What TorchRec's plan carries along from the constraints, as plan files have it."""
    from fastplan.bridge.plan_json import encode_settings

    sharding = ParameterSharding(
        sharding_type="",
        compute_kernel="",
        ranks=None,
        sharding_spec=None,
        cache_params=rule.cache_params,
        enforce_hbm=rule.enforce_hbm,
        stochastic_rounding=rule.stochastic_rounding,
        bounds_check_mode=rule.bounds_check_mode,
        output_dtype=rule.output_dtype,
        key_value_params=rule.key_value_params,
    )
    return encode_settings(sharding, table, drop_statistics=False)


def _features(origin: Origin) -> tuple[str, ...]:
    """The table's features, where the module or the constraints tell."""
    for holder in (origin.module, *getattr(origin.module, "_modules", {}).values()):
        for name in ("embedding_bag_configs", "embedding_configs"):
            configs = getattr(holder, name, None)
            for config in configs() if callable(configs) else ():
                if config.name == origin.name:
                    return tuple(config.feature_names)
    rule = origin.constraint
    return tuple(rule.feature_names or ()) if rule is not None else ()


def _topology(planner: Any) -> TopologySpec:
    topology = planner._topology
    first = topology.devices[0].storage
    by_rank = {
        tier: tuple(getattr(device.storage, tier) for device in topology.devices)
        for tier in ("hbm", "ddr", "ssd")
    }
    custom = topology._custom_topology_data
    uneven = {
        f"rank_{tier}": sizes
        for tier, sizes in by_rank.items()
        if len(set(sizes)) > 1 or (custom is not None and custom.has_data(f"{tier}_cap"))
    }
    return TopologySpec(
        hardware=Hardware(
            name="exported",
            device=topology.compute_device,
            hbm=first.hbm,
            ddr=first.ddr,
            ssd=first.ssd,
            hbm_mem_bw=float(topology.hbm_mem_bw),
            ddr_mem_bw=float(topology.ddr_mem_bw),
            ssd_mem_bw=float(topology.ssd_mem_bw),
            hbm_to_ddr_mem_bw=float(topology.hbm_to_ddr_mem_bw),
            intra_host_bw=float(topology.intra_host_bw),
            inter_host_bw=float(topology.inter_host_bw),
            ranks_per_host=topology.local_world_size,
            pod_size=None,
            bwd_compute_multiplier=float(topology.bwd_compute_multiplier),
            weighted_feature_bwd_compute_multiplier=float(
                topology.weighted_feature_bwd_compute_multiplier
            ),
            price=None,
            sources={},
        ),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        pod_size=topology._pod_size,
        **uneven,
    )


def _reservation(reservation: Any) -> ReservationSpec:
    policy = _POLICIES.get(type(reservation))
    if policy is None:
        raise CannotExport(f"{describe(reservation)} reserves memory; a spec can't hold that")
    dense = getattr(reservation, "_dense_storage", None)
    percentage = 0.0 if policy == "absolute" else getattr(reservation, "_percentage", 0.15)
    return ReservationSpec(
        policy=policy,
        percentage=percentage,
        reserved=getattr(reservation, "_hbm_reserved_bytes", 0),
        dense=0 if dense is None else dense.hbm + dense.ddr,
        margin=getattr(reservation, "_margin_bytes", 0),
        base=getattr(reservation, "_model_base_bytes", None),
        overhead=getattr(reservation, "_runtime_overhead_bytes", 0),
    )


def _search(planner: Any, ranks: int) -> SearchSpec:
    components.read_objective(planner._perf_model, ranks)
    return SearchSpec(
        proposers=tuple(components.read_proposer(each) for each in planner._proposers),
        partitioner=components.read_partitioner(planner._partitioner),
        timeout_seconds=float(planner._timeout_seconds or 0),
        deterministic=planner._deterministic,
    )


def _corrected(draft: ModelSpec, request: Request, reservation: Any) -> ModelSpec:
    """The draft, with the numbers that TorchRec's rules do not lead to given as they are."""
    kjt = getattr(reservation, "_kjt_storage", None)
    job = lower(draft)
    menus: dict[tuple[MenuEntry, ...], str] = {}
    tables = []
    for table, derived, actual in zip(
        draft.tables, job.request.tables, request.tables, strict=True
    ):
        exact = {
            name: value
            for name, value in actual._asdict().items()
            if name != "menu" and not _same(value, getattr(derived, name))
        }
        if "weighted" in exact:
            table = replace(table, weighted=exact.pop("weighted"))
        if "buckets" in exact:
            table = replace(table, buckets=exact.pop("buckets"))
        statistics = exact.keys() & {"expected_lookups", "miss_rate"}
        if len(statistics) == 2 and table.cache is not None:
            given = {name: exact.pop(name) for name in statistics}
            table = replace(table, cache=replace(table.cache, **given))
        menu = None
        if _entries(job.request, derived.menu) != _entries(request, actual.menu):
            entries = _entries(request, actual.menu)
            menu = menus.setdefault(entries, f"menu{len(menus)}")
        tables.append(replace(table, exact=exact, menu=menu))
    cost = {
        name: getattr(request.cost, name)
        for name in COST_FIELDS
        if getattr(request.cost, name) != getattr(job.request.cost, name)
    }
    inputs = None if kjt is None else kjt.hbm + kjt.ddr
    told = job.context["reservation"].get("kjt_storage", {})
    if inputs == sum(told.values()):
        inputs = None
    return replace(
        draft,
        tables=tuple(tables),
        menus={name: entries for entries, name in menus.items()},
        cost=cost,
        reservation=replace(draft.reservation, kjt=inputs),
    )


def _entries(request: Request, menu: int) -> tuple[MenuEntry, ...]:
    def entry(item: MenuItem) -> MenuEntry:
        weights = request.coefficients[item.coefficients]
        return MenuEntry(item.sharding_type, item.kernel, item.bandwidth, *weights)

    return tuple(entry(item) for item in request.menus[menu])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _check(spec: ModelSpec, expected: bytes, cluster: Cluster) -> None:
    try:
        job: Job = lower(spec)
    except CannotPlan as error:
        raise CannotExport(f"the exported spec would not plan: {error}") from error
    found = canonical_request(
        job.request, job.search, ranks=len(job.cluster.rank_hbm), context=job.context
    )
    if found != expected:
        changed = "; ".join(map(str, differences(expected, found)[:5]))
        raise CannotExport(f"a spec would not give the same request: {changed}")
    if job.cluster != cluster:
        raise CannotExport("a spec would not give the same memory to every rank")
