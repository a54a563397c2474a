"""Converts a real model's modules and tables to spec fields."""

from __future__ import annotations

from typing import Any

import torch
from torchrec.distributed.types import ParameterSharding

from fastplan.spec import stock
from fastplan.spec.model import CacheSpec, ModuleSpec, TableSpec, replace
from fastplan.spec.stock_rules import stock_kernels
from fastplan.torchrec.read.extract import TableSource
from fastplan.torchrec.read.hardware import optimizer_name
from fastplan.torchrec.read.modules import TableModule
from fastplan.torchrec.read.space import EstimatedSpace

KINDS = {
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


class ExportError(ValueError):
    """A spec can't describe a part of the model or planner."""


def module_specs(space: EstimatedSpace) -> dict[str, ModuleSpec]:
    """Returns the modules that contain tables, by path."""
    holders = {origin.path: origin.holder for origin in space.origins}
    tables: dict[str, list[Any]] = {path: [] for path in holders}
    for table in space.request.tables:
        tables[table.path].append(table)
    device = space.enumerator._compute_device
    return {path: _module(holder, tables[path], device) for path, holder in holders.items()}


def _module(holder: TableModule, tables: list[Any], device: str) -> ModuleSpec:
    kind = KINDS.get(holder.key)
    if kind is None:
        kind = "embedding_bag_collection" if holder.pooled else "embedding_collection"
    own = stock.KINDS[kind]
    types = tuple(holder.sharder.sharding_types(device))
    kernels = {name: tuple(holder.sharder.compute_kernels(name, device)) for name in types}
    stock_types = own.types.get(device, ())
    usual = types == stock_types and all(
        stock_kernels(own, name, device) == kernels[name] for name in types
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


def table_spec(tower: str | None, origin: TableSource, *, by_sharder: bool = False) -> TableSpec:
    """Returns a table and its constraints.

    Args:
        tower: The table's tower.
        origin: Where the table was found.
        by_sharder: Whether its sharder may name its optimizer, which TorchRec does not count.

    Raises:
        ExportError: The dtype has no name in specs.
    """
    rule, parameter = origin.constraint, origin.parameter
    rows, dim = parameter.shape
    if parameter.dtype not in _DTYPES:
        raise ExportError(f"table {origin.name} has {parameter.dtype}; a spec can't describe this")
    spec = TableSpec(
        name=origin.name,
        rows=int(rows),
        dim=int(dim),
        module=origin.path,
        dtype=_DTYPES[parameter.dtype],
        features=_features(origin),
        optimizer=optimizer_name(parameter, origin.holder.sharder if by_sharder else None),
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
    """Returns the settings that TorchRec's plan copies from the constraints, as in plan files."""
    from fastplan.torchrec.plan_json import encode_settings

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


def _features(origin: TableSource) -> tuple[str, ...]:
    """Returns the table's features, if the module or the constraints have them."""
    for holder in (origin.module, *getattr(origin.module, "_modules", {}).values()):
        for name in ("embedding_bag_configs", "embedding_configs"):
            configs = getattr(holder, name, None)
            for config in configs() if callable(configs) else ():
                if config.name == origin.name:
                    return tuple(config.feature_names)
    rule = origin.constraint
    return tuple(rule.feature_names or ()) if rule is not None else ()
