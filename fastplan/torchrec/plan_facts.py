"""What two planners made, as plain data that can be compared."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from torchrec.distributed.planner.types import PlannerError

from fastplan.planning.shadow import Difference

# Tables by path and name, in the plan's order; a table is its fields by name.
PlanFacts = dict[str, dict[str, str]]

_ABSENT = "absent"
_ERROR = "error"
_DEEPEST = 8


def plan_facts(plan: Any, rating: float | None) -> PlanFacts:
    """Returns every field of every table. The plan may change afterwards."""
    placements: dict[int, str] = {}
    facts: PlanFacts = {"": {} if rating is None else {"rating": float(rating).hex()}}
    for path, tables in plan.plan.items():
        for name, sharding in tables.items():
            facts[f"{path}.{name}" if path else name] = _table_facts(sharding, placements)
    return facts


def option_facts(options: list[Any]) -> PlanFacts:
    """Returns every field of sharding options, with their estimates, in order."""
    facts: PlanFacts = {"": {}}
    for number, option in enumerate(options):
        own = {
            name.lstrip("_"): fact_text(value)
            for name, value in vars(option).items()
            if name not in ("_tensor", "tensor", "_module", "module", "shards")
        }
        own |= {f"shard {index}": fact_text(shard) for index, shard in enumerate(option.shards)}
        kind = f"{option.sharding_type}, {option.compute_kernel}"
        facts[f"option {number} of {option.name} ({kind})"] = own
    return facts


def error_facts(error: Exception) -> PlanFacts:
    """Returns the facts of a planner that raised an error: its class and TorchRec's error type.

    Texts are not compared: they may show addresses.
    """
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    detail = f" ({error.error_type.value})" if isinstance(error, PlannerError) else ""
    return {"": {_ERROR: kind + detail}}


def raised(facts: PlanFacts) -> bool:
    """Whether these are the facts of an error."""
    return _ERROR in facts[""]


def count_tables(facts: PlanFacts) -> int:
    """Returns the number of tables."""
    return len(facts) - 1


def first_difference(ours: PlanFacts, theirs: PlanFacts) -> Difference | None:
    """Returns the first difference of fastplan's from TorchRec's facts, in TorchRec's order."""
    # A plan without a rating (a loaded one) is compared in everything else.
    both_rated = "rating" in ours[""] and "rating" in theirs[""]
    for table in [name for name in theirs if name] + [name for name in ours if name not in theirs]:
        if table not in ours or table not in theirs:
            found = ["present" if table in facts else _ABSENT for facts in (ours, theirs)]
            return Difference(table, "table", *found)
        if (difference := _field_difference(table, ours[table], theirs[table])) is not None:
            return difference
    if list(ours) != list(theirs):
        return Difference("", "order of tables", str(list(ours)[1:4]), str(list(theirs)[1:4]))
    skipped = () if both_rated else ("rating",)
    heads = [{k: v for k, v in facts[""].items() if k not in skipped} for facts in (ours, theirs)]
    return _field_difference("", *heads)


def _field_difference(
    table: str, ours: dict[str, str], theirs: dict[str, str]
) -> Difference | None:
    for field in (*theirs, *(name for name in ours if name not in theirs)):
        values = ours.get(field, _ABSENT), theirs.get(field, _ABSENT)
        if values[0] != values[1]:
            return Difference(table, field, *values)
    return None


def _table_facts(sharding: Any, placements: dict[int, str]) -> dict[str, str]:
    facts = {
        name: fact_text(value) for name, value in vars(sharding).items() if name != "sharding_spec"
    }
    spec = sharding.sharding_spec
    facts["sharding_spec"] = type(spec).__name__
    for number, shard in enumerate(getattr(spec, "shards", ())):
        # Plans share placements between shards, and to format one takes long.
        placement = placements.get(id(shard.placement))
        if placement is None:
            placement = placements[id(shard.placement)] = str(shard.placement)
        facts[f"shard {number}"] = f"{shard.shard_sizes} at {shard.shard_offsets} on {placement}"
    return facts


def fact_text(value: Any, depth: int = 0) -> str:
    """Returns a text that is the same in every process, and equal only for equal bits."""
    if value is None or isinstance(value, bool | int | str):
        return str(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if depth == _DEEPEST:
        return type(value).__name__
    if isinstance(value, list | tuple):
        return f"[{', '.join(fact_text(item, depth + 1) for item in value)}]"
    if isinstance(value, dict):
        items = (
            f"{fact_text(key, depth + 1)}: {fact_text(item, depth + 1)}"
            for key, item in value.items()
        )
        return f"{{{', '.join(items)}}}"
    fields = (
        {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else getattr(value, "__dict__", {})
    )
    inner = ", ".join(f"{name}={fact_text(item, depth + 1)}" for name, item in fields.items())
    return f"{type(value).__name__}({inner})"
