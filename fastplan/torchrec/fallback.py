"""Why something can't be done natively."""

from __future__ import annotations

from fastplan.torchrec.stock import replaced_in


class NotNative(Exception):
    """A part is custom, or outside what the core reproduces; TorchRec's own code takes over."""


def describe(part: object) -> str:
    """A component as a reason names it: module and class."""
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"


def require_stock(part: object, stock: type, *methods: str) -> None:
    """Raises NotNative unless `part` is exactly `stock`, with nothing of it replaced."""
    if type(part) is not stock:
        raise NotNative(f"{describe(part)} is not TorchRec's {stock.__qualname__}")
    replaced = [name for name in methods if name in getattr(part, "__dict__", {})]
    if replaced:
        raise NotNative(f"{describe(part)} has its own `{replaced[0]}`")
    if foreign := replaced_in(stock):
        raise NotNative(f"{foreign} is no longer TorchRec's")
