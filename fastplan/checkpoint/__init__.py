"""Checkpoints that follow plans: weights and every optimizer state, between any two plans.

Example:
    fastplan.checkpoint.save(model, "ckpt/100", optimizer=dense_optimizer)
    ...
    loaded = fastplan.checkpoint.load(other_model, "ckpt/100", optimizer=its_dense_optimizer)
    print(loaded)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastplan.checkpoint.contents import inspect
    from fastplan.checkpoint.converting import convert
    from fastplan.checkpoint.errors import CheckpointError
    from fastplan.checkpoint.loading import Loaded, load
    from fastplan.checkpoint.saving import save

__all__ = ["CheckpointError", "Loaded", "convert", "inspect", "load", "save"]

_MODULES = {
    "CheckpointError": "errors",
    "Loaded": "loading",
    "convert": "converting",
    "inspect": "contents",
    "load": "loading",
    "save": "saving",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'fastplan.checkpoint' has no attribute {name!r}")
    value = getattr(import_module(f"fastplan.checkpoint.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
