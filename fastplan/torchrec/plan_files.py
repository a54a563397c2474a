"""Saves TorchRec's ShardingPlans to plan files and loads them.

`fastplan.plans` reads and writes the files, without TorchRec.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torch import nn
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.embeddingbag import EmbeddingBagSharder
from torchrec.distributed.fused_embedding import FusedEmbeddingCollectionSharder
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.quant_embeddingbag import (
    QuantFeatureProcessedEmbeddingBagCollectionSharder,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from fastplan.files.storage import replace_file
from fastplan.model.plan import Basis, Plan
from fastplan.planning.run import Run
from fastplan.plans.basis import read_basis
from fastplan.plans.checks import BadValue, PlanFileError, as_text, below
from fastplan.plans.document import Document, Ranks, document_text
from fastplan.plans.entries import TableEntry
from fastplan.plans.file import (
    MOST_BYTES,
    new_document,
    parse_file,
    plan_of,
    read_bytes,
)
from fastplan.torchrec.compat import paused
from fastplan.torchrec.plan_json import (
    PlacementRule,
    Placements,
    TableReader,
    check_rule,
    encode_table,
    infer_rule,
    table_shape,
)
from fastplan.torchrec.state import basis_of_planner

__all__ = [
    "MOST_BYTES",
    "PlanFile",
    "PlanFileError",
    "PlanMismatch",
    "describe_plan",
    "load_plan",
    "parse_plan_text",
    "plan_text",
    "read_plan_file",
    "save_plan",
]


class PlanFile(NamedTuple):
    """The content of a plan file."""

    plan: ShardingPlan
    fingerprint: str | None
    notes: dict[str, str]
    rule: PlacementRule | None  # None if no table needs one
    basis: Basis | None  # the input of the plan, if the file has it


def save_plan(
    plan: ShardingPlan,
    path: str | os.PathLike[str],
    *,
    fingerprint: str | None = None,
    notes: Mapping[str, str] | None = None,
    drop_statistics: bool = False,
    planner: Any = None,
) -> None:
    """Writes a plan file atomically.

    Args:
        plan: the plan.
        path: the file.
        fingerprint: the fingerprint of the plan's request.
        notes: your own strings.
        drop_statistics: omit cache statistics, which can't be written if their class is custom.
        planner: the planner that has just made the plan. The file then gets the request and its
            fingerprint, so that the plan can be rated and verified from the file. If a custom part
            makes that impossible, the note `no_basis` says why.

    Raises:
        PlanFileError: a file can't represent the plan, for example because of a spec other than
            EnumerableShardingSpec or an object of a custom class. The message names the table and
            the field.
        OSError: the file can't be written.
    """
    text = plan_text(
        plan,
        os.fspath(path),
        fingerprint=fingerprint,
        notes=notes,
        drop_statistics=drop_statistics,
        planner=planner,
    )
    replace_file(path, [text.encode()])


def plan_text(plan: ShardingPlan, name: str, **arguments: Any) -> str:
    """Returns the text that `save_plan` writes. `name` is the name of the file in errors."""
    try:
        with paused():
            return document_text(_document(plan, **arguments))
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error


def describe_plan(plan: ShardingPlan, name: str = "plan", **arguments: Any) -> Plan:
    """Converts a TorchRec plan to plain data. Takes the arguments of `save_plan`.

    Raises:
        PlanFileError: as `save_plan`.
    """
    try:
        with paused():
            return plan_of(_document(plan, **arguments), name)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error


def load_plan(
    path: str | os.PathLike[str],
    module: nn.Module | None = None,
    *,
    topology: Any = None,
    sharders: Iterable[Any] | None = None,
) -> ShardingPlan:
    """Loads the plan of a file; it equals the saved plan.

    Args:
        path: the file.
        module: if given, its tables must be the plan's: same paths, names and shapes. A
            data-parallel table has no shape in a plan, so any shape matches. A table that was
            deliberately not planned, such as one of another device group, counts as missing.
        topology: if given, it must have every rank of the plan, on the same device.
        sharders: find the modules with tables; by default TorchRec's sharders.

    Raises:
        PlanMismatch: the module's tables are not the plan's.
        PlanFileError: the file is malformed, does not match the topology, or has a table on ranks
            that TorchRec can't run it on, such as a row-wise table twice on one rank.
        OSError: the file can't be read.
    """
    found = read_plan_file(path, topology=topology)
    if module is not None:
        check_module(found.plan, module, sharders, os.fspath(path))
    return found.plan


def read_plan_file(path: str | os.PathLike[str], *, topology: Any = None) -> PlanFile:
    """Reads a plan file. Raises PlanFileError if it is malformed."""
    return parse_plan_text(read_bytes(path), os.fspath(path), topology=topology)


def parse_plan_text(data: bytes, name: str, *, topology: Any = None) -> PlanFile:
    """Parses the text of a plan file. `name` is the name of the file in errors."""
    try:
        with paused():
            ranks = None
            if topology is not None:
                ranks = Ranks(topology.world_size, topology.intra_group_size)
            return _plan_file(parse_file(data, name, ranks=ranks), topology)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def _document(
    plan: ShardingPlan,
    *,
    fingerprint: str | None = None,
    notes: Mapping[str, str] | None = None,
    drop_statistics: bool = False,
    planner: Any = None,
) -> Document:
    rule = infer_rule(plan)
    placements = None if rule is None else Placements(rule)
    entries = []
    for path, module_plan in plan.plan.items():
        place = below("modules", as_text(path, "modules"))
        if not isinstance(module_plan, dict):
            raise BadValue(place, f"a {type(module_plan).__name__} can't be written")
        for name, sharding in module_plan.items():
            as_text(name, place)
            entries.append(
                encode_table(path, name, sharding, placements, drop_statistics=drop_statistics)
            )
    given, basis = dict(notes or {}), None
    if planner is not None:
        found = basis_of_planner(planner)
        if isinstance(found, str):
            given.setdefault("no_basis", found)
        else:
            basis = found
            entries = _in_order(basis, entries)
            given = {**_proven(planner.last_run), **given}
    try:
        return new_document(
            entries, rule, fingerprint=fingerprint, notes=given, basis=basis, paths=plan.plan
        )
    except BadValue as error:
        if basis is None:
            raise
        problem = f"{error.problem}; the plan must be the last one that `planner` made"
        raise BadValue(error.place, problem) from error


def _proven(run: Run | None) -> dict[str, str]:
    """Returns the bound of an optimized plan, from which reports compute its gap."""
    bound = None if run is None else run.lower_bound
    return {} if bound is None else {"lower_bound": repr(bound)}


def _in_order(basis: Basis, entries: list[TableEntry]) -> list[TableEntry]:
    """Returns the tables in the order of the basis, which grouping by module may change."""
    numbers = {(table.path, table.name): i for i, table in enumerate(basis.request.tables)}
    position = {number: i for i, number in enumerate(basis.record.table.tolist())}
    last = len(entries)
    return sorted(
        entries, key=lambda each: position.get(numbers.get((each.path, each.name), -1), last)
    )


def _plan_file(document: Document, topology: Any) -> PlanFile:
    check_rule(document.rule)
    found = read_basis(document, checked=True)
    reader = TableReader(document.rule, topology)
    modules = {path: EmbeddingModuleShardingPlan() for path in document.paths}
    for entry in document.entries:
        modules[entry.path][entry.name] = reader.read(entry)
    return PlanFile(
        plan=ShardingPlan(modules),
        fingerprint=document.fingerprint,
        notes=document.notes,
        rule=document.rule,
        basis=None if found is None else found.basis,
    )


_MOST_NAMED = 10


class PlanMismatch(ValueError):
    """The plan's tables are not those of the module.

    `missing` are the module's tables that are not in the plan, `unknown` the plan's tables that
    are not in the module, `changed` those with a different shape. Each has a string per table.
    """

    def __init__(
        self, source: str, missing: list[str], unknown: list[str], changed: list[str]
    ) -> None:
        parts = [
            f"{len(tables)} {what}: {', '.join(tables[:_MOST_NAMED])}"
            + (f" and {len(tables) - _MOST_NAMED} more" if len(tables) > _MOST_NAMED else "")
            for what, tables in (
                ("of the module's tables are not in the plan", missing),
                ("of the plan's tables are not in the module", unknown),
                ("have a different shape", changed),
            )
            if tables
        ]
        super().__init__(f"{source} does not match the module: {'; '.join(parts)}")
        self.missing = tuple(missing)
        self.unknown = tuple(unknown)
        self.changed = tuple(changed)


def check_module(
    plan: ShardingPlan, module: nn.Module, sharders: Iterable[Any] | None, source: str
) -> dict[tuple[str, str], tuple[nn.Module, Any]]:
    """Returns the module and the parameter of each planned table, by module path and table name.

    Raises:
        PlanMismatch: the module's tables are not the plan's. The message starts with `source`.
    """
    found, missing = _tables(plan, module, sharders)
    unknown, changed = [], []
    for path, module_plan in plan.plan.items():
        for name, sharding in module_plan.items():
            if (path, name) not in found:
                unknown.append(_full_name(path, name))
                continue
            planned = table_shape(sharding.sharding_spec)
            actual = tuple(found[path, name][1].shape)
            if planned is not None and planned != actual:
                changed.append(f"{_full_name(path, name)} is {_by(actual)}, planned {_by(planned)}")
    if missing or unknown or changed:
        raise PlanMismatch(source, missing, unknown, changed)
    return found


def _full_name(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _tables(
    plan: ShardingPlan, module: nn.Module, sharders: Iterable[Any] | None
) -> tuple[dict[tuple[str, str], tuple[nn.Module, Any]], list[str]]:
    """Returns the tables of modules that the plan names, and the names of all other tables.

    Sharders other than the default ones are used only for modules in the plan: other modules of
    theirs may deliberately be unplanned.
    """
    usual = _by_type(get_default_sharders() if sharders is None else sharders)
    every = _by_type(_further_sharders()) | usual if sharders is None else usual
    above = {path[:i] for path in plan.plan for i, char in enumerate(path) if char == "."}
    above |= {""} if any(plan.plan) else set()
    found: dict[tuple[str, str], tuple[nn.Module, Any]] = {}
    missing: list[str] = []
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop()
        planned = plan.plan.get(path)
        known = usual if planned is None else every
        sharder = known.get(sharder_name(type(child)))
        if sharder is None or (planned is None and path in above):
            prefix = f"{path}." if path else ""
            inner = [(prefix + name, part) for name, part in child.named_children()]
            waiting.extend(reversed(inner))
            continue
        for name, parameter in sharder.shardable_parameters(child).items():
            if planned is not None:
                found[path, name] = (child, parameter)
            if planned is None or name not in planned:
                missing.append(_full_name(path, name))
    return found, missing


def _by_type(sharders: Iterable[Any]) -> dict[str, Any]:
    return {sharder_name(sharder.module_type): sharder for sharder in sharders}


def _further_sharders() -> list[Any]:
    return [
        EmbeddingBagSharder(),
        EmbeddingTowerCollectionSharder(),
        EmbeddingTowerSharder(),
        FusedEmbeddingCollectionSharder(),
        QuantFeatureProcessedEmbeddingBagCollectionSharder(),
    ]
