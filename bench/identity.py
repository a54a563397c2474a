"""Compares two sharding plans and lists the differences."""

import dataclasses
from typing import Any

from torchrec.distributed.types import ShardingPlan

ShardRow = tuple[tuple[int, ...], tuple[int, ...], str]


def differences(theirs: ShardingPlan, ours: ShardingPlan) -> list[str]:
    """One line per difference, TorchRec's value first; empty when the plans are identical.

    Compared are modules, tables and their order, every field of a table's sharding (type, kernel,
    ranks and the rest) and every shard's offsets, sizes and placement.
    """
    lines = _names("modules", list(theirs.plan), list(ours.plan))
    for path in theirs.plan:
        if path not in ours.plan:
            continue
        left: dict[str, Any] = dict(theirs.plan[path])
        right: dict[str, Any] = dict(ours.plan[path])
        lines += _names(f"tables of {path}", list(left), list(right))
        for name in left:
            if name in right:
                lines += _table(f"{path}.{name}", left[name], right[name])
    return lines


def rating_difference(theirs: float, ours: float) -> list[str]:
    """Compares ratings to the last bit, as hexadecimal floats."""
    if theirs.hex() == ours.hex():
        return []
    return [f"rating: {theirs.hex()} ({theirs!r}) != {ours.hex()} ({ours!r})"]


def shard_rows(sharding: Any) -> list[ShardRow] | None:
    """A table's shards as plain values; None if the plan has no sharding spec."""
    if sharding.sharding_spec is None:
        return None
    return [
        (tuple(shard.shard_offsets), tuple(shard.shard_sizes), str(shard.placement))
        for shard in sharding.sharding_spec.shards
    ]


def _names(what: str, theirs: list[str], ours: list[str]) -> list[str]:
    if theirs == ours:
        return []
    missing = [name for name in theirs if name not in set(ours)]
    extra = [name for name in ours if name not in set(theirs)]
    if missing or extra:
        return [f"{what}: missing {missing}, unexpected {extra}"]
    return [f"{what}: order differs"]


def _table(name: str, theirs: Any, ours: Any) -> list[str]:
    fields = [field.name for field in dataclasses.fields(theirs) if field.name != "sharding_spec"]
    lines = [
        f"{name}.{field}: {getattr(theirs, field)!r} != {getattr(ours, field)!r}"
        for field in fields
        if getattr(theirs, field) != getattr(ours, field)
    ]
    if type(theirs.sharding_spec) is not type(ours.sharding_spec):
        lines.append(f"{name}.sharding_spec: {theirs.sharding_spec} != {ours.sharding_spec}")
    left, right = shard_rows(theirs), shard_rows(ours)
    if left is None or right is None or left == right:
        return lines
    if len(left) != len(right):
        return [*lines, f"{name}: {len(left)} shards != {len(right)} shards"]
    return lines + [
        f"{name} shard {index}: {a} != {b}"
        for index, (a, b) in enumerate(zip(left, right, strict=True))
        if a != b
    ]
