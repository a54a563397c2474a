"""Reads spec files, and changes the cluster or the precision of a spec.

Errors of a file are SpecErrors with line, field and the nearest valid name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from fastplan.files.codec import decode
from fastplan.files.document import Document, SpecError, Step, read_document
from fastplan.files.kinds import choice_problem, too_long
from fastplan.model.ids import IdStatistics
from fastplan.model.job import CannotPlan
from fastplan.model.limits import MOST_TEXT
from fastplan.model.references import is_reference
from fastplan.model.request import Partitioner, Proposer
from fastplan.model.units import shown
from fastplan.model.vocabulary import DTYPE_ALIASES
from fastplan.spec import stock
from fastplan.spec.hardware import Hardware, find_hardware, hardware_of_file
from fastplan.spec.ids import FORMAT as STATISTICS
from fastplan.spec.ids import check_ids, fields_of, read_statistics
from fastplan.spec.model import (
    DEFAULT_PARTITIONER,
    DEFAULT_PROPOSERS,
    MenuEntry,
    ModelSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
    replace,
)
from fastplan.spec.skus import BANDWIDTHS, MULTIPLIERS, SIZES
from fastplan.spec.spec_file import (
    SearchFields,
    SpecFile,
    TopologyFields,
    cost_fields,
    exact_fields,
)

_MOST_BYTES = 1 << 63


def read_spec(path: str | os.PathLike[str]) -> ModelSpec:
    """Reads the spec in a YAML or JSON file.

    Args:
        path: The file.

    Raises:
        SpecError: The file is invalid. The message has file, line, field and what to do.
    """
    return spec_of(read_document(path))


def spec_of(document: Document) -> ModelSpec:
    """Returns the spec in a document.

    Raises:
        SpecError: The document is not a valid spec.
    """
    if isinstance(document.root, dict) and "format" in document.root:
        is_statistics = document.root["format"] == STATISTICS
        problem = "is a plan file, not a spec; `fastplan inspect` shows plans"
        if is_statistics:
            problem = "is a statistics file, not a spec; a spec names it as `statistics`"
        raise SpecError(document.file, None, "", problem)
    content = decode(document, SpecFile)
    cost, shard_cost = _cost(document, content)
    spec = ModelSpec(
        name=content.model,
        batch_size=content.batch_size,
        torchrec=content.torchrec,
        modules=content.modules,
        menus=_menus(document, content),
        tables=_tables(document, content),
        topology=_topology(document, content.topology),
        reservation=content.reservation,
        search=_search(document, content.search),
        cost=cost,
        shard_cost=shard_cost,
        objective=_reference(document, content.objective, ("objective",)),
        costs=content.costs,
        pipeline=content.pipeline,
        source=document.file,
    )
    return _with_file(document, spec, content.statistics)


def _with_file(document: Document, spec: ModelSpec, statistics: str | None) -> ModelSpec:
    """Returns the spec with the ids of a statistics file. Tables that have `ids` keep them."""
    if statistics is None:
        return spec
    file = os.path.join(os.path.dirname(document.file), statistics)
    try:
        found = with_statistics(spec, read_statistics(file))
    except SpecError:
        if os.path.exists(file):
            raise
        raise document.error(("statistics",), f"there is no file {file}") from None
    except ValueError as error:
        raise document.error(("statistics",), f"{error} ({file})") from error
    pairs = zip(spec.tables, found.tables, strict=True)
    return replace(spec, tables=tuple(new if own.ids is None else own for own, new in pairs))


def _menus(document: Document, content: SpecFile) -> dict[str, tuple[MenuEntry, ...]]:
    for name, menu in content.menus.items():
        if not menu:
            raise document.error(("menus", name), "must have at least one option")
    return {
        name: tuple(MenuEntry(**asdict(entry)) for entry in menu)
        for name, menu in content.menus.items()
    }


def _tables(document: Document, content: SpecFile) -> tuple[TableSpec, ...]:
    if not content.tables:
        raise document.error(("tables",), "must have at least one table")
    modules = content.modules
    # A model with one module need not repeat its path.
    default = next(iter(modules)) if len(modules) == 1 else None
    tables: dict[tuple[str, str], TableSpec] = {}
    for i, table in enumerate(content.tables):
        steps: tuple[Step, ...] = ("tables", i)
        given = document.root["tables"][i]
        if default is not None and given.get("module") is None:
            table = replace(table, module=default)
        _check_table(document, steps, table, given, content)
        if table.exact:
            exact = decode(document, exact_fields(), (*steps, "exact"))
            table = replace(table, exact=_set(exact))
        if (table.module, table.name) in tables:
            names = f"module {shown(table.module)} are {shown(table.name)}"
            raise document.error((*steps, "name"), f"two tables of {names}")
        tables[table.module, table.name] = table
    return tuple(tables.values())


def _check_table(
    document: Document,
    steps: tuple[Step, ...],
    table: TableSpec,
    given: dict[str, Any],
    content: SpecFile,
) -> None:
    """Raises SpecError for fields that contradict each other."""
    modules = content.modules
    if modules and table.module not in modules:
        problem = f"{shown(table.module)} is not in `modules`: {', '.join(modules)}"
        if len(modules) > 1 and given.get("module") is not None:
            problem = choice_problem(table.module, modules)
        raise document.error((*steps, "module"), problem)
    if table.menu is not None and table.menu not in content.menus:
        raise document.error((*steps, "menu"), choice_problem(table.menu, content.menus))
    count = len(table.pooling)
    for name in ("poolings", "batch_sizes", "features"):
        entries = getattr(table, name)
        if given.get(name) is None or len(entries) == count:
            continue
        if name != "features" or count > 1:
            problem = f"has {len(entries)} entries, and `pooling` has {count}"
            raise document.error((*steps, name), problem)
    if table.ids is not None:
        check_ids(document, (*steps, "ids"), table.ids)
    cache = table.cache
    if cache is not None and (cache.expected_lookups is None) != (cache.miss_rate is None):
        problem = "needs both `expected_lookups` and `miss_rate`, or none"
        raise document.error((*steps, "cache"), problem)
    size = table.rows * table.dim * stock.DTYPE_SIZES[table.dtype]
    if not (table.exact or table.virtual) and size >= _MOST_BYTES:
        problem = f"{table.rows} x {table.dim} of {table.dtype} are more bytes than 64 bits can"
        problem = f"table {shown(table.name)} is too large: {problem} count"
        raise document.error((*steps, "rows"), problem)
    if (text := _long_text(table.settings)) is not None:
        raise document.error((*steps, "settings"), too_long(text))


def _long_text(value: Any) -> str | None:
    """Returns a string in the value that is over the limit, if any."""
    if isinstance(value, str):
        return value if len(value) > MOST_TEXT else None
    if isinstance(value, dict):
        value = [*value, *value.values()]
    found = map(_long_text, value) if isinstance(value, list) else ()
    return next((text for text in found if text is not None), None)


def _topology(document: Document, fields: TopologyFields | None) -> TopologySpec:
    if fields is None:
        return TopologySpec()
    given = fields.given(("device", *SIZES, *BANDWIDTHS, *MULTIPLIERS))
    hardware: Hardware | None = None
    if fields.sku is not None or given:
        try:
            hardware = hardware_of_file(_relative_to(document.file, fields.sku or "torchrec"))
        except ValueError as error:
            raise document.error(("topology", "sku"), str(error)) from error
        hardware = replace(hardware, **given)
    return TopologySpec(
        hardware=hardware,
        world_size=fields.world_size,
        local_world_size=fields.local_world_size,
        pod_size=fields.pod_size,
        rank_hbm=fields.rank_hbm,
        rank_ddr=fields.rank_ddr,
        rank_ssd=fields.rank_ssd,
    )


def _relative_to(spec: str, sku: str) -> str:
    """Returns the path of a SKU file next to the spec, if it exists; else `sku`."""
    path, colon, name = sku.partition(":")
    nearby = os.path.join(os.path.dirname(spec), path)
    return f"{nearby}{colon}{name}" if os.path.isfile(nearby) else sku


def _search(document: Document, fields: SearchFields | None) -> SearchSpec:
    if fields is None:
        return SearchSpec()
    proposers, partitioner = DEFAULT_PROPOSERS, DEFAULT_PARTITIONER
    if fields.proposers is not UNSET:
        proposers = tuple(Proposer(**asdict(each)) for each in fields.proposers)
        if not proposers:
            raise document.error(("search", "proposers"), "must have at least one proposer")
    if fields.partitioner is not None:
        partitioner = Partitioner(**asdict(fields.partitioner))
    return SearchSpec(
        proposers=proposers,
        partitioner=partitioner,
        timeout_seconds=fields.timeout_seconds,
        deterministic=fields.deterministic,
    )


def _cost(document: Document, content: SpecFile) -> tuple[dict[str, Any], str | None]:
    """Returns the numbers of the cost model, and the name of a cost function."""
    if content.cost is None:
        return {}, None
    if isinstance(content.cost, str):
        return {}, _reference(document, content.cost, ("cost",))
    numbers = _set(decode(document, cost_fields(), ("cost",)))
    return numbers, _reference(document, numbers.pop("function"), ("cost", "function"))


def _reference(document: Document, name: str | None, steps: tuple[Step, ...]) -> str | None:
    if name is not None and len(name) > MOST_TEXT:
        raise document.error(steps, too_long(name))
    if name is not None and not is_reference(name):
        raise document.error(steps, f"must be package.module:function, not {shown(name)}")
    return name


def _set(fields: Struct) -> dict[str, Any]:
    return {name: value for name, value in asdict(fields).items() if value is not UNSET}


_FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8")


def on_cluster(
    spec: ModelSpec,
    *,
    sku: str | None = None,
    world_size: int | None = None,
    local_world_size: int | None = None,
) -> ModelSpec:
    """Returns the spec with another cluster. Another SKU also changes the hosts.

    Args:
        spec: The spec.
        sku: A name or file for `find_hardware`.
        world_size: The number of ranks.
        local_world_size: Ranks per host.

    Raises:
        CannotPlan: The spec gives memory by rank, and only the number of ranks is changed.
        HardwareError: The SKU is unknown.
    """
    topology = spec.topology
    if sku is not None:
        topology = replace(
            topology,
            hardware=find_hardware(sku),
            local_world_size=None,
            pod_size=None,
            rank_hbm=None,
            rank_ddr=None,
            rank_ssd=None,
        )
    if world_size is not None and world_size != topology.world_size:
        if topology.rank_hbm or topology.rank_ddr or topology.rank_ssd:
            raise CannotPlan(
                "the spec gives memory rank by rank, so its number of ranks can't be changed; "
                "give a SKU too"
            )
        topology = replace(topology, world_size=world_size)
        if topology.local_world_size is not None and topology.local_world_size > world_size:
            topology = replace(topology, local_world_size=None)
    if local_world_size is not None:
        topology = replace(topology, local_world_size=local_world_size)
    return replace(spec, topology=topology)


def with_precision(spec: ModelSpec, dtype: str) -> ModelSpec:
    """Returns the spec with all floating-point tables in a precision such as fp16 or `float16`.

    Raises:
        ValueError: The precision is unknown, or is not one of floating-point numbers.
    """
    dtype = DTYPE_ALIASES.get(dtype, dtype)
    if dtype not in _FLOATS:
        raise ValueError(f"`precision` must be one of {', '.join(_FLOATS)}, not {dtype!r}")
    tables = tuple(
        replace(table, dtype=dtype) if table.dtype in _FLOATS else table for table in spec.tables
    )
    return replace(spec, tables=tables)


def with_statistics(spec: ModelSpec, statistics: Mapping[str, IdStatistics]) -> ModelSpec:
    """Returns the spec with id statistics of tables, by name. Other tables stay as they are.

    Args:
        spec: The spec.
        statistics: The statistics, such as those of `read_statistics`.

    Raises:
        ValueError: No table of the spec has statistics.
    """
    if not any(table.name in statistics for table in spec.tables):
        names = ", ".join([*map(shown, [*statistics][:5]), *["..."] * (len(statistics) > 5)])
        problem = f"no table of {shown(spec.name)} has statistics"
        raise ValueError(f"{problem}; there are some of {names}" if names else problem)
    return replace(
        spec,
        tables=tuple(
            replace(table, ids=fields_of(statistics[table.name]))
            if table.name in statistics
            else table
            for table in spec.tables
        ),
    )
