"""What a planner leaves behind as plain data, and the first difference between two of these."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch

_DEEPEST = 12


def plain(value: Any, depth: int = 0) -> Any:
    """Returns data that is equal only if every bit of the value is; floats as hexadecimal text."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Enum) or depth == _DEEPEST:
        return str(value)
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape)]
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name), depth + 1) for each in fields(value)}
    own = getattr(value, "__dict__", None)
    if own is None:
        return str(value)
    return {"class": type(value).__name__, **plain(own, depth + 1)}


def plan_record(plan: Any) -> dict[str, Any]:
    """Returns every field of every table of a ShardingPlan."""
    return {
        f"table {name} of module {path!r}": _sharding(sharding)
        for path, tables in plan.plan.items()
        for name, sharding in tables.items()
    }


def _sharding(sharding: Any) -> dict[str, Any]:
    found = {
        each.name: plain(getattr(sharding, each.name))
        for each in fields(sharding)
        if each.name != "sharding_spec"
    }
    spec = sharding.sharding_spec
    found["spec"] = type(spec).__name__
    for number, shard in enumerate([] if spec is None else spec.shards):
        found[f"shard {number}"] = {
            "sizes": plain(shard.shard_sizes),
            "offsets": plain(shard.shard_offsets),
            "placement": str(shard.placement),
        }
    return found


def options_record(options: list[Any]) -> dict[str, Any]:
    """Returns every field of sharding options, in order."""
    record = {}
    for number, option in enumerate(options):
        own = {
            name.lstrip("_"): plain(value)
            for name, value in vars(option).items()
            if name not in ("_tensor", "tensor", "_module", "module", "shards")
        }
        own["module"] = option.module[0]
        for index, shard in enumerate(option.shards):
            own[f"shard {index}"] = plain(shard)
        kind = f"{option.sharding_type}, {option.compute_kernel}"
        record[f"option {number} ({option.name}, {kind})"] = own
    return record


def first_difference(torchrec: Any, ours: Any, place: str = "") -> str | None:
    """Returns where two records differ first, with both values; None if they are equal."""
    if torchrec == ours:
        return None
    if isinstance(torchrec, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*torchrec, *ours]):
            inner = f"{place}, {key}" if place else str(key)
            if key not in ours or key not in torchrec:
                side = "TorchRec" if key in torchrec else "fastplan"
                return f"{inner}: only {side} has it"
            if found := first_difference(torchrec[key], ours[key], inner):
                return found
        return f"{place}: another order"
    if isinstance(torchrec, list) and isinstance(ours, list) and len(torchrec) == len(ours):
        for index, (a, b) in enumerate(zip(torchrec, ours, strict=True)):
            if found := first_difference(a, b, f"{place}[{index}]"):
                return found
    return f"{place}: TorchRec has {_shown(torchrec)}, fastplan has {_shown(ours)}"


def _shown(value: Any) -> str:
    text = str(value)
    if isinstance(value, str) and value.startswith(("0x", "-0x")):
        text = repr(float.fromhex(value))
    return text if len(text) <= 80 else f"{text[:77]}..."
