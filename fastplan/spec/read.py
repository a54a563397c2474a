"""Reads spec files. Whatever is wrong in one is a SpecError with line, field and nearest name."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from fastplan.model.request import CostModel, Partitioner, Proposer, Table
from fastplan.model.vocabulary import FIELD_CHOICES, KERNELS, PROPOSERS, SHARDING_TYPES, SIZE_FIELDS
from fastplan.spec import stock
from fastplan.spec.cost_model import COST_FIELDS
from fastplan.spec.document import Document, read_document
from fastplan.spec.fields import Fields
from fastplan.spec.hardware import hardware_of_file
from fastplan.spec.limits import MOST_RANKS
from fastplan.spec.model import (
    DEFAULT_MODULE,
    CacheSpec,
    MenuEntry,
    ModelSpec,
    ModuleSpec,
    ReservationSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
)
from fastplan.spec.nodes import Node, SpecError, below
from fastplan.spec.references import is_reference
from fastplan.spec.reservation import POLICIES
from fastplan.spec.spec_fields import (
    BANDWIDTHS,
    CACHE_FIELDS,
    CAPACITIES,
    EXACT_FIELDS,
    MENU_FIELDS,
    MODEL_FIELDS,
    MODULE_FIELDS,
    MULTIPLIERS,
    PARTITIONER_FIELDS,
    PROPOSER_FIELDS,
    RESERVATION_FIELDS,
    SEARCH_FIELDS,
    TABLE_FIELDS,
    TOPOLOGY_FIELDS,
)
from fastplan.spec.units import shown

_MOST_BYTES = 1 << 63
_CACHE_STATISTICS = ("expected_lookups", "miss_rate")


def read_spec(path: str | os.PathLike[str]) -> ModelSpec:
    """The spec in a YAML or JSON file. Raises SpecError with file, line and field."""
    return spec_of(read_document(path))


def spec_of(document: Document) -> ModelSpec:
    """The spec that a document holds."""
    if isinstance(document.root.value, dict) and "format" in document.root.value:
        problem = "is a plan file, and a spec is needed; `fastplan inspect` shows plans"
        raise SpecError(document.file, None, "", problem)
    root = Fields(document, document.root, "", known=MODEL_FIELDS)
    modules = _modules(root)
    menus = {name: _menu(root, name) for name, _ in root.mapping("menus")}
    tables = _tables(root, modules, menus)
    return ModelSpec(
        name=root.text("model"),
        batch_size=root.whole("batch_size", 512, least=1),
        torchrec=root.text("torchrec", None, choices=stock.VERSIONS),
        modules=modules,
        tables=tuple(tables.values()),
        menus=menus,
        topology=_topology(root.nested("topology", TOPOLOGY_FIELDS)),
        reservation=_reservation(root.nested("reservation", RESERVATION_FIELDS)),
        search=_search(root.nested("search", SEARCH_FIELDS)),
        cost=_numbers(_cost_fields(root), CostModel),
        shard_cost=_shard_cost(root),
        objective=_reference(root, "objective"),
        source=document.file,
    )


def _modules(root: Fields) -> dict[str, ModuleSpec]:
    modules = {}
    for path, node in root.mapping("modules"):
        place = below("modules", path)
        fields = Fields(root.document, node, place, known=MODULE_FIELDS)
        wire = fields.numbers("wire", None, least=0)
        if wire is not None and len(wire) != 4:
            raise fields.error(
                "wire",
                "must be four numbers: bytes per element of the all-to-all forward and backward, "
                "and of the reduce-scatter forward and backward",
            )
        kernels = fields.nested("compute_kernels", SHARDING_TYPES)
        modules[path] = ModuleSpec(
            kind=fields.text("kind", ModuleSpec().kind, choices=stock.KINDS),
            weighted=fields.flag("weighted", False),
            cache_load_factor=fields.number("cache_load_factor", None, least=0),
            prefetch=fields.flag("prefetch", False),
            passes=fields.whole("passes", 0),
            wire=wire,
            sharding_types=fields.texts("sharding_types", None, choices=SHARDING_TYPES),
            compute_kernels=None
            if kernels is None
            else {
                kind: kernels.texts(kind, choices=KERNELS)
                for kind in SHARDING_TYPES
                if kind in kernels
            },
            pooled=fields.flag("pooled", None),
        )
    return modules


def _tables(
    root: Fields, modules: dict[str, ModuleSpec], menus: dict[str, tuple[MenuEntry, ...]]
) -> dict[tuple[str, str], TableSpec]:
    tables: dict[tuple[str, str], TableSpec] = {}
    for fields in root.each("tables", TABLE_FIELDS):
        table = _table(fields, modules, menus)
        if (table.module, table.name) in tables:
            names = f"module {shown(table.module)} are {shown(table.name)}"
            raise fields.error("name", f"two tables of {names}")
        tables[table.module, table.name] = table
    if not tables:
        raise root.error("tables", "must have at least one table")
    return tables


def _table(
    fields: Fields, modules: dict[str, ModuleSpec], menus: dict[str, tuple[MenuEntry, ...]]
) -> TableSpec:
    # A model with one module need not repeat its path.
    default = next(iter(modules)) if len(modules) == 1 else DEFAULT_MODULE
    module = fields.text("module", default, choices=modules if len(modules) > 1 else None)
    if modules and module not in modules:
        raise fields.error("module", f"{shown(module)} is none of `modules`: {', '.join(modules)}")
    pooling = fields.numbers("pooling", (stock.POOLING_FACTOR,), least=0)
    features = fields.texts("features", ())
    poolings = fields.numbers("poolings", None, least=0)
    batch_sizes = fields.wholes("batch_sizes", None, least=1)
    counted = {"poolings": poolings, "batch_sizes": batch_sizes, "features": features}
    for name, given in counted.items():
        if fields.node(name) is None or given is None or len(given) == len(pooling):
            continue
        if name != "features" or len(pooling) > 1:
            raise fields.error(name, f"has {len(given)} entries, and `pooling` has {len(pooling)}")
    name, (rows, dim) = fields.text("name"), (fields.whole(n, least=1) for n in ("rows", "dim"))
    dtype = fields.text("dtype", "fp32", choices=stock.DTYPE_SIZES)
    exact = _numbers(fields.nested("exact", EXACT_FIELDS), Table)
    virtual = fields.flag("virtual", False)
    if not (exact or virtual) and rows * dim * stock.DTYPE_SIZES[dtype] >= _MOST_BYTES:
        problem = f"{rows} x {dim} of {dtype} are more bytes than 64 bits can count"
        raise fields.error("rows", f"table {shown(name)} is too large: {problem}")
    return TableSpec(
        name=name,
        rows=rows,
        dim=dim,
        module=module,
        dtype=dtype,
        features=features,
        pooling=pooling,
        poolings=poolings,
        batch_sizes=batch_sizes,
        weighted=fields.flag("weighted", None),
        sharding_types=fields.texts("sharding_types", None, choices=SHARDING_TYPES),
        compute_kernels=fields.texts("compute_kernels", None, choices=KERNELS),
        min_partition=fields.whole("min_partition", 0),
        output_dtype=fields.text("output_dtype", None, choices=stock.OUTPUT_BITS),
        optimizer=fields.text("optimizer", None, choices=stock.OPTIMIZERS),
        cache=_cache(fields.nested("cache", CACHE_FIELDS)),
        key_value_cache=fields.size("key_value_cache", 0),
        virtual=virtual,
        buckets=fields.whole("buckets", 0),
        tower=fields.text("tower", None),
        menu=fields.text("menu", None, choices=menus),
        exact=exact,
        settings=_plain_settings(fields),
    )


def _cache(fields: Fields | None) -> CacheSpec | None:
    if fields is None:
        return None
    lookups, misses = (fields.number(name, None, least=0) for name in _CACHE_STATISTICS)
    if (lookups is None) != (misses is None):
        raise fields.error(None, "needs both `expected_lookups` and `miss_rate`, or none")
    return CacheSpec(
        load_factor=fields.number("load_factor", None, least=0),
        prefetch=fields.flag("prefetch", None),
        passes=fields.whole("passes", None),
        expected_lookups=lookups,
        miss_rate=misses,
    )


def _menu(root: Fields, name: str) -> tuple[MenuEntry, ...]:
    menus = root.node("menus")
    assert menus is not None
    holder = Fields(root.document, menus, "menus", known=dict(root.mapping("menus")))
    entries = []
    for fields in holder.each(name, MENU_FIELDS):
        entries.append(
            MenuEntry(
                fields.text("sharding_type", choices=SHARDING_TYPES),
                fields.text("kernel", choices=KERNELS),
                fields.bandwidth("bandwidth"),
                _four(fields, "fwd"),
                _four(fields, "bwd") if fields.node("bwd") is not None else None,
            )
        )
    if not entries:
        raise holder.error(name, "must have at least one option")
    return tuple(entries)


def _four(fields: Fields, name: str) -> tuple[float, float, float, float]:
    numbers = fields.numbers(name, (1.0, 1.0, 1.0, 0.0))
    if len(numbers) != 4:
        raise fields.error(
            name, "must be four numbers: weights of input read, lookup, output write and rows"
        )
    return numbers


def _topology(fields: Fields | None) -> TopologySpec:
    if fields is None:
        return TopologySpec()
    given: dict[str, Any] = {}
    if "device" in fields:
        given["device"] = fields.text("device", choices=stock.DEVICES)
    given |= {name: fields.size(name) for name in CAPACITIES if name in fields}
    given |= {name: fields.bandwidth(name) for name in BANDWIDTHS if name in fields}
    given |= {name: fields.number(name, least=0) for name in MULTIPLIERS if name in fields}
    sku = fields.text("sku", None)
    hardware = None
    if sku is not None or given:
        try:
            hardware = hardware_of_file(_beside(fields.document.file, sku or "torchrec"))
        except ValueError as error:
            raise fields.error("sku", str(error)) from error
        hardware = replace(hardware, **given)
    world = fields.whole("world_size", None, least=1)
    local = fields.whole("local_world_size", None, least=1)
    return TopologySpec(
        hardware=hardware,
        world_size=world,
        local_world_size=local,
        pod_size=fields.whole("pod_size", None, least=1),
        rank_hbm=fields.sizes("rank_hbm", None),
        rank_ddr=fields.sizes("rank_ddr", None),
        rank_ssd=fields.sizes("rank_ssd", None),
    )


def _beside(spec: str, sku: str) -> str:
    """A SKU file is looked for beside the spec first."""
    path, colon, name = sku.partition(":")
    nearby = os.path.join(os.path.dirname(spec), path)
    return f"{nearby}{colon}{name}" if os.path.isfile(nearby) else sku


def _reservation(fields: Fields | None) -> ReservationSpec:
    if fields is None:
        return ReservationSpec()
    return ReservationSpec(
        policy=fields.text("policy", "heuristical", choices=POLICIES),
        percentage=fields.number("percentage", 0.15, least=0),
        reserved=fields.size("reserved", 0),
        dense=fields.size("dense", 0),
        kjt=fields.size("kjt", None),
        margin=fields.size("margin", 0),
        base=fields.size("base", None),
        overhead=fields.size("overhead", 0),
    )


def _search(fields: Fields | None) -> SearchSpec:
    if fields is None:
        return SearchSpec()
    proposers = SearchSpec().proposers
    if "proposers" in fields:
        proposers = tuple(_proposer(each) for each in fields.each("proposers", PROPOSER_FIELDS))
        if not proposers:
            raise fields.error("proposers", "must have at least one proposer")
    own = fields.nested("partitioner", PARTITIONER_FIELDS)
    partitioner = Partitioner()
    if own is not None:
        partitioner = Partitioner(
            memory_balanced=own.flag("memory_balanced", False),
            sort_by_perf=own.flag("sort_by_perf", False),
            balance_modules=own.flag("balance_modules", False),
            max_search_count=own.whole("max_search_count", 10),
            tolerance=own.number("tolerance", 0.02, least=0),
        )
    return SearchSpec(
        proposers=proposers,
        partitioner=partitioner,
        timeout_seconds=fields.number("timeout_seconds", 0.0, least=0),
        deterministic=fields.flag("deterministic", False),
    )


def _proposer(fields: Fields) -> Proposer:
    return Proposer(
        kind=fields.text("kind", choices=PROPOSERS),
        use_depth=fields.flag("use_depth", True),
        threshold=fields.whole("threshold", 0),
        max_proposals=fields.whole("max_proposals", 10_000),
        bins_per_device=fields.whole("bins_per_device", 100, least=1),
    )


def _cost_fields(root: Fields) -> Fields | None:
    """Numbers of the cost model; the field may also be no more than the name of a function."""
    node = root.node("cost")
    if node is None or isinstance(node.value, str):
        return None
    return root.nested("cost", ("function", *COST_FIELDS))


def _shard_cost(root: Fields) -> str | None:
    fields = _cost_fields(root)
    return _reference(root, "cost") if fields is None else _reference(fields, "function")


def _reference(fields: Fields, name: str) -> str | None:
    found = fields.text(name, None)
    if found is not None and not is_reference(found):
        raise fields.error(name, f"must be package.module:function, not {shown(found)}")
    return found


def _numbers(fields: Fields | None, owner: Any) -> dict[str, Any]:
    """Values for fields of the request, by their declared types."""
    if fields is None:
        return {}
    values: dict[str, Any] = {}
    for name, kind in get_type_hints(owner).items():
        if name not in fields:
            continue
        if kind is float:
            values[name] = fields.number(name, allow_nonfinite=True)
        elif kind is int:
            is_size = name.endswith(SIZE_FIELDS)
            values[name] = (
                fields.whole(name, least=1, most=MOST_RANKS) if is_size else fields.whole(name)
            )
        elif kind is bool:
            values[name] = fields.flag(name)
        elif kind is str:
            values[name] = fields.text(name, choices=FIELD_CHOICES[name])
        elif kind == tuple[int, ...]:
            values[name] = fields.wholes(name)
        else:
            values[name] = fields.numbers(name)
            if len(values[name]) != len(get_args(kind)):
                raise fields.error(name, f"must be {len(get_args(kind))} numbers")
    return values


def _plain_settings(fields: Fields) -> dict[str, Any]:
    node = fields.node("settings")
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        raise fields.error("settings", "must be an object, as a plan file has it")
    return {name: _plain(each, fields) for name, each in fields.mapping("settings")}


def _plain(node: Node, fields: Fields) -> Any:
    if isinstance(node.value, dict):
        for name in node.value:
            fields.check_text("settings", name)
        return {name: _plain(each, fields) for name, each in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(each, fields) for each in node.value]
    if isinstance(node.value, str):
        fields.check_text("settings", node.value)
    return node.value
