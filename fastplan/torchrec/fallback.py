"""Why something can't be done natively."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastplan.torchrec.stock import replaced_in


class NotNative(Exception):
    """Something that the readers of TorchRec's objects can't put into plain data."""


class Custom(NamedTuple):
    """A part of the planner that only Python can run, and why."""

    part: Any
    reason: str


def describe(part: object) -> str:
    """A component as a reason names it: module and class."""
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"


def why_not_stock(part: object, stock: type, *methods: str) -> str:
    """Why `part` is not exactly `stock`, or what of it was replaced; empty where nothing was."""
    if type(part) is not stock:
        return f"{describe(part)} is not TorchRec's {stock.__qualname__}"
    replaced = [name for name in methods if name in getattr(part, "__dict__", {})]
    if replaced:
        return f"{describe(part)} has its own `{replaced[0]}`"
    foreign = replaced_in(stock)
    return f"{foreign} is no longer TorchRec's" if foreign else ""


def require_stock(part: object, stock: type, *methods: str) -> None:
    """Raises NotNative unless `part` is exactly `stock`, with nothing of it replaced."""
    if reason := why_not_stock(part, stock, *methods):
        raise NotNative(reason)
