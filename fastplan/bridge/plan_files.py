"""Plan files: a sharding plan as JSON that people can read, compare and edit.

A file holds the plan of a model table by table, in the plan's own order, and the fingerprint of
the request it was made for. It holds data only: reading one builds TorchRec's plan objects from
checked numbers and texts, and runs nothing.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from fastplan.bridge.collector import paused
from fastplan.bridge.plan_json import TableReader, encode_table
from fastplan.bridge.plan_match import PlanMismatch, check_module
from fastplan.bridge.plan_placement import PlacementRule, Placements, infer_rule, read_rule
from fastplan.bridge.plan_values import (
    BadValue,
    as_object,
    as_text,
    below,
    check_fields,
    refuse,
)

__all__ = [
    "PlanFile",
    "PlanFileError",
    "PlanMismatch",
    "load_plan",
    "read_plan_file",
    "save_plan",
]

FORMAT = "fastplan sharding plan"
VERSION = 1
# Larger than the file of any plan, and small enough to parse in memory.
MOST_BYTES = 128 * 1024**2

_HEADER = ("format", "version", "fingerprint", "notes", "device", "ranks_per_host")
_FIELDS = (*_HEADER, "modules")


class PlanFileError(ValueError):
    """A file that is no plan file, or a plan that a file can't hold.

    `path` is the file, `place` where in its JSON, `problem` what is wrong there.
    """

    def __init__(self, path: str, place: str, problem: str) -> None:
        super().__init__(f"{path}: {place}: {problem}" if place else f"{path}: {problem}")
        self.path = path
        self.place = place
        self.problem = problem


class PlanFile(NamedTuple):
    """What a plan file holds."""

    plan: ShardingPlan
    fingerprint: str | None
    notes: dict[str, str]
    rule: PlacementRule | None  # None when no table needs one


def save_plan(
    plan: ShardingPlan,
    path: str | os.PathLike[str],
    *,
    fingerprint: str | None = None,
    notes: Mapping[str, str] | None = None,
    drop_statistics: bool = False,
) -> None:
    """Writes a plan file, all at once: readers see the old file or the whole new one.

    `fingerprint` names the request that the plan was made for; `notes` are texts of your own.
    Raises PlanFileError, naming the table and the field, for what a file can't hold: specs other
    than EnumerableShardingSpec, objects of classes of your own. Cache statistics of such a class
    are the usual ones; `drop_statistics` leaves all statistics out.
    """
    file = os.fspath(path)
    text = plan_text(
        plan, file, fingerprint=fingerprint, notes=notes, drop_statistics=drop_statistics
    )
    _replace(Path(file), text.encode())


def plan_text(
    plan: ShardingPlan,
    name: str,
    *,
    fingerprint: str | None = None,
    notes: Mapping[str, str] | None = None,
    drop_statistics: bool = False,
) -> str:
    """What `save_plan` writes. `name` stands for the file in errors."""
    try:
        with paused():
            return _encode(plan, fingerprint, notes or {}, drop_statistics=drop_statistics)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error


def load_plan(
    path: str | os.PathLike[str],
    module: nn.Module | None = None,
    *,
    topology: Any = None,
    sharders: Iterable[Any] | None = None,
) -> ShardingPlan:
    """The plan of a file, equal to the one that was saved.

    With a module, its tables must be the plan's: same paths, names and shapes, or PlanMismatch
    says what differs. `sharders` tell which modules hold tables; TorchRec's default ones do when
    there are none. A data-parallel table has no shape in a plan, so any will do; a table that was
    not planned on purpose, such as one of another device group, counts as missing. With a
    topology, every rank must be one of its own, on the device that the topology gives it. A file
    that is malformed, or does not suit the topology, raises PlanFileError.
    """
    found = read_plan_file(path, topology=topology)
    if module is not None:
        check_module(found.plan, module, sharders, os.fspath(path))
    return found.plan


def read_plan_file(path: str | os.PathLike[str], *, topology: Any = None) -> PlanFile:
    """Everything that a plan file holds; PlanFileError if it is malformed."""
    file = os.fspath(path)
    with open(file, "rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise PlanFileError(file, "", f"is larger than {MOST_BYTES >> 20} MiB, the most it can be")
    return parse_plan_text(data, file, topology=topology)


def parse_plan_text(data: bytes, name: str, *, topology: Any = None) -> PlanFile:
    """What `read_plan_file` reads. `name` stands for the file in errors."""
    try:
        with paused():
            return _parse(data, topology)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def _encode(
    plan: ShardingPlan,
    fingerprint: str | None,
    notes: Mapping[str, str],
    *,
    drop_statistics: bool,
) -> str:
    rule = infer_rule(plan)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": None if fingerprint is None else as_text(fingerprint, "fingerprint"),
        "notes": _checked_notes(dict(notes)),
        "device": rule and rule.device,
        "ranks_per_host": rule and rule.ranks_per_host,
    }
    placements = None if rule is None else Placements(rule)
    modules = {}
    for path, module_plan in plan.plan.items():
        place = below("modules", as_text(path, "modules"))
        if not isinstance(module_plan, dict):
            raise BadValue(place, f"a {type(module_plan).__name__} can't be written")
        modules[path] = {
            as_text(name, place): encode_table(
                sharding, below(place, name), placements, drop_statistics=drop_statistics
            )
            for name, sharding in module_plan.items()
        }
    return _text(header, modules)


def _parse(data: bytes, topology: Any) -> PlanFile:
    try:
        content = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except BadValue:
        raise
    except ValueError as error:
        raise BadValue("", f"is not JSON: {error}") from error
    fields = as_object(content, "the file")
    if fields.get("format") != FORMAT:
        refuse("format", repr(FORMAT), fields.get("format"))
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        refuse("version", f"{VERSION}, the only one that can be read", version)
    check_fields(fields, _FIELDS, "")
    for name in _FIELDS:
        if name not in fields:
            raise BadValue(name, "is missing")
    fingerprint = fields["fingerprint"]
    rule = read_rule(fields["device"], fields["ranks_per_host"])
    reader = TableReader(rule, topology)
    modules = {}
    for path, tables in as_object(fields["modules"], "modules").items():
        place = below("modules", path)
        modules[path] = EmbeddingModuleShardingPlan(
            {
                name: reader.read(table, below(place, name))
                for name, table in as_object(tables, place).items()
            }
        )
    return PlanFile(
        plan=ShardingPlan(modules),
        fingerprint=None if fingerprint is None else as_text(fingerprint, "fingerprint"),
        notes=_checked_notes(fields["notes"]),
        rule=rule,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadValue(below("", name), "is there twice in one object")
            seen.add(name)
    return entry


def _no_constant(name: str) -> Any:
    raise BadValue("", f'is not JSON: {name} must be written as a text such as "nan" or "-inf"')


def _checked_notes(notes: Any) -> dict[str, str]:
    for key, value in as_object(notes, "notes").items():
        as_text(value, below("notes", as_text(key, "notes")))
    return dict(notes)


def _text(header: dict[str, Any], modules: dict[str, dict[str, Any]]) -> str:
    """The file: a line per table, or per field and shard where a table has more to say."""
    bodies = {
        path: _braces("{}", [_entry(name, _table(table)) for name, table in tables.items()], 2)
        for path, tables in modules.items()
    }
    lines = [_entry(name, json.dumps(value)) for name, value in header.items()]
    lines.append(
        _entry("modules", _braces("{}", [_entry(path, text) for path, text in bodies.items()], 1))
    )
    return _braces("{}", lines, 0) + "\n"


def _table(table: dict[str, Any]) -> str:
    shards = table.get("shards")
    if not shards and not any(isinstance(value, dict) for value in table.values()):
        return json.dumps(table)
    fields = {name: json.dumps(value) for name, value in table.items()}
    if shards:
        fields["shards"] = _braces("[]", [json.dumps(shard) for shard in shards], 4)
    return _braces("{}", [_entry(name, text) for name, text in fields.items()], 3)


def _entry(name: str, text: str) -> str:
    return f"{json.dumps(name)}: {text}"


def _braces(pair: str, lines: list[str], depth: int) -> str:
    if not lines:
        return pair
    margin = "  " * depth
    inner = ",\n".join(f"{margin}  {line}" for line in lines)
    return f"{pair[0]}\n{inner}\n{margin}{pair[1]}"


def _replace(path: Path, data: bytes) -> None:
    """Puts a whole file in place of the old one, behind a link if there is one."""
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
