"""Converts settings of a table to JSON and back, by the declared type of each field.

Only types in TorchRec's own declarations are written or built: a file can choose a class only from
the few that are listed here.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from functools import cache
from typing import Any

import torch
from fbgemm_gpu.tbe.monitoring import StdLogStatsReporterConfig, TBEStatsReporterConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.types import CacheStatistics

from fastplan.plans.checks import (
    LARGEST,
    BadValue,
    as_list,
    as_object,
    as_text,
    as_whole,
    below,
    check_fields,
    refuse,
)

# Classes that may replace a declared one; the file names the class.
_VARIANTS: dict[type, tuple[type, ...]] = {
    TBEStatsReporterConfig: (TBEStatsReporterConfig, StdLogStatsReporterConfig)
}
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SEQUENCES = (list, tuple, frozenset)
_STATISTICS_FIELDS = ("class", "cacheability", "expected_lookups", "height", "hist")


@cache
def field_types(owner: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass or named tuple with their declared types, in order."""
    hints = typing.get_type_hints(owner)
    names = getattr(owner, "_fields", None)
    if names is None:
        names = [field.name for field in dataclasses.fields(owner)]
    return {name: hints[name] for name in names}


@cache
def _defaults(owner: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(owner):
        return dict(owner._field_defaults)
    return {
        field.name: field.default
        for field in dataclasses.fields(owner)
        if field.default is not dataclasses.MISSING
    }


def _has_fields(declared: Any) -> bool:
    return isinstance(declared, type) and (
        dataclasses.is_dataclass(declared) or hasattr(declared, "_fields")
    )


def _without_none(declared: Any) -> tuple[Any, bool]:
    """Returns the type inside an Optional, and whether it was one."""
    if typing.get_origin(declared) not in (typing.Union, types.UnionType):
        return declared, False
    inner = [part for part in typing.get_args(declared) if part is not type(None)]
    return (inner[0] if len(inner) == 1 else declared), True


def _item_types(declared: Any, count: int, place: str) -> list[Any]:
    """Returns the declared type of each of `count` items of a list, tuple or frozenset."""
    parts = typing.get_args(declared)
    if typing.get_origin(declared) is not tuple or parts[-1] is Ellipsis:
        return [parts[0]] * count
    if len(parts) != count:
        raise BadValue(place, f"must have {len(parts)} items, not {count}")
    return list(parts)


def encode(value: Any, declared: Any, place: str) -> Any:
    """Returns `value` as JSON. Raises BadValue for another type than declared."""
    declared, optional = _without_none(declared)
    if value is None and optional:
        return None
    if declared in (bool, int, str):
        if type(value) is not declared:
            refuse(place, f"of type {declared.__name__}", value)
        return value
    if declared is float:
        return _encode_number(value, place)
    if declared is CacheStatistics:
        return _encode_statistics(value, place)
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        if type(value) is not declared:
            refuse(place, f"of type {declared.__name__}", value)
        return value.name
    if typing.get_origin(declared) in _SEQUENCES:
        return _encode_items(value, declared, place)
    if _has_fields(declared):
        return _encode_fields(value, declared, place)
    raise BadValue(place, f"an object of type {type(value).__name__} can't be written")


def decode(value: Any, declared: Any, place: str) -> Any:
    """Returns the value that `encode` wrote. Raises BadValue if it is not of the declared type."""
    declared, optional = _without_none(declared)
    if value is None and optional:
        return None
    if declared is bool:
        if type(value) is not bool:
            refuse(place, "true or false", value)
        return value
    if declared is int:
        return as_whole(value, place, -LARGEST)
    if declared is str:
        return as_text(value, place)
    if declared is float:
        return _decode_number(value, place)
    if declared is CacheStatistics:
        return _decode_statistics(value, place)
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        if type(value) is not str or value not in declared.__members__:
            refuse(place, f"one of {', '.join(declared.__members__)}", value)
        return declared[value]
    if typing.get_origin(declared) in _SEQUENCES:
        return _decode_items(value, declared, place)
    if _has_fields(declared):
        return _decode_fields(value, declared, place)
    raise BadValue(place, "can't be read: its type is unknown")


def _encode_number(value: Any, place: str) -> Any:
    if type(value) not in (int, float):
        refuse(place, "a number", value)
    if type(value) is float and not math.isfinite(value):
        return str(value)
    return value


def _decode_number(value: Any, place: str) -> Any:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float):
        refuse(place, "a number", value)
    return value


def _encode_items(value: Any, declared: Any, place: str) -> list[Any]:
    kind = typing.get_origin(declared)
    if type(value) is not kind:
        refuse(place, f"of type {kind.__name__}", value)
    items = sorted(value) if kind is frozenset else list(value)
    inner = _item_types(declared, len(items), place)
    return [encode(item, inner[i], f"{place}[{i}]") for i, item in enumerate(items)]


def _decode_items(value: Any, declared: Any, place: str) -> Any:
    kind: Any = typing.get_origin(declared)
    items = as_list(value, place)
    inner = _item_types(declared, len(items), place)
    return kind(decode(item, inner[i], f"{place}[{i}]") for i, item in enumerate(items))


def _encode_fields(value: Any, declared: type, place: str) -> dict[str, Any]:
    variants = _VARIANTS.get(declared, (declared,))
    actual: Any = type(value)
    if actual not in variants:
        names = " or ".join(variant.__name__ for variant in variants)
        raise BadValue(place, f"must be a {names}: a {actual.__name__} can't be written")
    entry: dict[str, Any] = {"class": actual.__name__} if len(variants) > 1 else {}
    defaults = _defaults(actual)
    for name, inner in field_types(actual).items():
        item = getattr(value, name)
        if item is not None or defaults.get(name, ...) is not None:
            entry[name] = encode(item, inner, below(place, name))
    return entry


def _decode_fields(value: Any, declared: type, place: str) -> Any:
    entry = dict(as_object(value, place))
    variants = {variant.__name__: variant for variant in _VARIANTS.get(declared, (declared,))}
    actual = declared
    if len(variants) > 1:
        name = entry.pop("class", None)
        if type(name) is not str or name not in variants:
            refuse(below(place, "class"), f"one of {', '.join(variants)}", name)
        actual = variants[name]
    inner = field_types(actual)
    check_fields(entry, inner, place, [name for name in inner if name not in _defaults(actual)])
    return actual(**{name: decode(entry[name], inner[name], below(place, name)) for name in entry})


def _encode_statistics(value: Any, place: str) -> dict[str, Any]:
    way_out = "drop_statistics=True leaves statistics out"
    if type(value) is not EmbeddingOffloadStats:
        kind = type(value).__name__
        raise BadValue(place, f"cache statistics of type {kind} can't be written; {way_out}")
    hist = value.hist
    dtype = str(hist.dtype).removeprefix("torch.")
    bins = torch.linspace(0, value.height, len(hist) + 1)
    if dtype not in _DTYPES or not torch.equal(value.bins, bins):
        raise BadValue(place, f"has an unusual histogram, which can't be written; {way_out}")
    values = below(place, "hist.values")
    return {
        "class": "EmbeddingOffloadStats",
        "cacheability": _encode_number(value.cacheability, below(place, "cacheability")),
        "expected_lookups": _encode_number(
            value.expected_lookups, below(place, "expected_lookups")
        ),
        "height": as_whole(value.height, below(place, "height")),
        "hist": {
            "dtype": dtype,
            "values": [_encode_number(number, values) for number in hist.tolist()],
        },
    }


def _decode_statistics(value: Any, place: str) -> EmbeddingOffloadStats:
    entry = as_object(value, place)
    check_fields(entry, _STATISTICS_FIELDS, place, _STATISTICS_FIELDS)
    if entry["class"] != "EmbeddingOffloadStats":
        refuse(below(place, "class"), "EmbeddingOffloadStats", entry["class"])
    return EmbeddingOffloadStats(
        cacheability=_decode_number(entry["cacheability"], below(place, "cacheability")),
        expected_lookups=_decode_number(
            entry["expected_lookups"], below(place, "expected_lookups")
        ),
        mrc_hist_counts=_decode_histogram(entry["hist"], below(place, "hist")),
        height=as_whole(entry["height"], below(place, "height")),
    )


def _decode_histogram(value: Any, place: str) -> torch.Tensor:
    entry = as_object(value, place)
    check_fields(entry, ("dtype", "values"), place)
    dtype = entry.get("dtype")
    if type(dtype) is not str or dtype not in _DTYPES:
        refuse(below(place, "dtype"), f"one of {', '.join(_DTYPES)}", dtype)
    values = below(place, "values")
    numbers = [
        _decode_number(number, f"{values}[{i}]")
        for i, number in enumerate(as_list(entry.get("values"), values))
    ]
    if not numbers:
        raise BadValue(values, "must have at least one number")
    whole = not _DTYPES[dtype].is_floating_point
    for i, number in enumerate(numbers):
        if whole and type(number) is not int:
            refuse(f"{values}[{i}]", f"a whole number, as {dtype} is", number)
    try:
        return torch.tensor(numbers, dtype=_DTYPES[dtype])
    except (RuntimeError, OverflowError, ValueError, TypeError) as error:
        raise BadValue(values, f"must fit {dtype}: {error}") from error
