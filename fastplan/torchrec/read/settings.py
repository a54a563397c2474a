"""What a plan has beside options and ranks: settings of tables that cost nothing, and devices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch

from fastplan.torchrec.read.extract import Origin

# As bridge/plan copies them from a table's constraints.
_SETTINGS = (
    "cache_params",
    "key_value_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
)
_DEEPEST = 8


def settings_digest(origins: Iterable[Origin], topology: Any) -> str:
    """Equal for two ranks that make the same plan of the same options and ranks."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{topology.compute_device} {topology.local_world_size}".encode())
    for origin in origins:
        rule = origin.constraint
        told = [] if rule is None else [_told(getattr(rule, name, None)) for name in _SETTINGS]
        digest.update(repr((origin.path, origin.name, told)).encode())
    return digest.hexdigest()


def _told(value: Any, depth: int = 0) -> Any:
    """A value by its content, the same in every process."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, torch.dtype):
        return repr(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Enum):
        return name, value.name
    if isinstance(value, torch.Tensor):
        return name, str(value.dtype), repr(value.tolist())
    if depth == _DEEPEST:
        return name
    if isinstance(value, list | tuple):
        return name, [_told(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return name, sorted((repr(key), repr(_told(value[key], depth + 1))) for key in value)
    names = [f.name for f in fields(value)] if is_dataclass(value) else sorted(_attributes(value))
    return name, [(each, _told(getattr(value, each), depth + 1)) for each in names]


def _attributes(value: Any) -> Any:
    return getattr(value, "__dict__", ())
