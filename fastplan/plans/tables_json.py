"""Plans that other projects keep as JSON: an object per module, with an object per table.

TorchEasyRec puts one into every checkpoint, as the file `plan`:

    {"ebc": {"t1": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]}}}

TorchRec's own `ShardingPlan._serialize()` has the same inside `{"plan": ...}`, and the shards.
"""

from __future__ import annotations

import json
from typing import Any

from fastplan.model.plan import RANK, Plan
from fastplan.plans.checks import BadValue, as_list, as_object, below
from fastplan.plans.convert import compacted
from fastplan.plans.document import Document
from fastplan.plans.entries import EntryReader, TableEntry

_COMMON = ("sharding_type", "compute_kernel", "ranks")
_SHARD_FIELDS = {"offset": "shard_offsets", "size": "shard_sizes", "placement": "placement"}


def read_tables(content: Any, source: str) -> Document:
    """The plan of TorchEasyRec's JSON. Raises BadValue."""
    modules = as_object(content, "the file")
    reader = EntryReader(has_device=False)
    entries = []
    for path, tables in modules.items():
        for name, value in as_object(tables, below("", path)).items():
            place = below(below("", path), name)
            table = as_object(value, place)
            fields = {field: table[field] for field in _COMMON if field in table}
            fields["shards"] = _shards(table.get("shards"), below(place, "shards"))
            entries.append(reader.read(path, name, fields))
    return foreign_document(list(modules), entries, source)


def read_serialized(content: Any, source: str) -> Document:
    """The plan of `ShardingPlan._serialize()`. Raises BadValue."""
    fields = as_object(content, "the file")
    if "plan" not in fields:
        raise BadValue("plan", "is missing")
    return read_tables(fields["plan"], source)


def foreign_document(paths: list[str], entries: list[TableEntry], source: str) -> Document:
    """What a plan file would say of tables from another format."""
    entries, rule = compacted(entries)
    return Document(
        fingerprint=None,
        notes={"source_format": source},
        rule=rule,
        paths=tuple(paths),
        entries=tuple(entries),
        basis=None,
    )


def tables_text(plan: Plan) -> str:
    """The plan as TorchEasyRec writes it. Shapes, shards and settings have no place in it."""
    modules: dict[str, dict[str, Any]] = {}
    for table in plan.layout.tables:
        modules.setdefault(table.path, {})[table.name] = {
            "sharding_type": table.sharding_type,
            "compute_kernel": table.kernel,
            "ranks": table.shards[:, RANK].tolist(),
        }
    return json.dumps(modules)


def _shards(value: Any, place: str) -> list[Any] | None:
    """Listed shards under the names that a plan file has for their fields."""
    if value is None:
        return None
    shards = []
    for i, item in enumerate(as_list(value, place)):
        shard = as_object(item, f"{place}[{i}]")
        found = {ours: shard[theirs] for ours, theirs in _SHARD_FIELDS.items() if theirs in shard}
        if found.get("placement") == "None":
            found["placement"] = None
        shards.append(found)
    return shards
