"""Functions of TorchRec and torch that are replaced, and only if they are the ones we know.

A replacement gives what the stock function gives, in less time; that holds for the source it was
written for. So the source is compared first, and anything else is refused by name.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

# Where a replacement keeps the function that it stands for.
_STOCK = "_fastplan_stock"


class PatchRefused(RuntimeError):
    """A function to be replaced is not the one its replacement was written for."""


class Change(NamedTuple):
    """A function replaced in one place."""

    holder: Any
    name: str
    stock: Any
    faster: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """One stock function, what makes its replacement, and the source that this is right for."""

    module: str
    function: str  # the name in the module, or Class.method
    make: Callable[[Any], Any]  # stock function in, replacement out
    relies_on: tuple[str, ...] = ()  # other names of the module whose source counts too
    may_be_wrapped: bool = False  # by others, who then see the same calls as before
    digest: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"

    def check(self) -> None:
        """Raises PatchRefused unless the stock function is there and is the known one."""
        found = self._digest()
        if found == self.digest:
            return
        what = "is not there" if found is None else f"is another one (source {found})"
        raise PatchRefused(
            f"{self.name} {what}: fastplan has a faster one for source {self.digest} only, and "
            "replaced nothing. Call fastplan.patch() without `init`, or install the versions that "
            "docs/initialisation.md names."
        )

    def apply(self) -> list[Change]:
        """Replaces the function wherever it is held."""
        holder, name = self._holder(self.function)
        stock = getattr(holder, name)
        if hasattr(stock, _STOCK):
            return []
        faster = self.make(stock)
        setattr(faster, _STOCK, stock)
        package = self.module.partition(".")[0]
        others = [
            module
            for key, module in list(sys.modules.items())
            if module is not holder
            and key.partition(".")[0] == package
            and vars(module).get(name) is stock
        ]
        changes = [Change(place, name, stock, faster) for place in (holder, *others)]
        for change in changes:
            setattr(change.holder, name, faster)
        return changes

    def _holder(self, function: str) -> tuple[Any, str]:
        holder: Any = import_module(self.module)
        *classes, name = function.split(".")
        for part in classes:
            holder = getattr(holder, part)
        return holder, name

    def _digest(self) -> str | None:
        digest = hashlib.blake2b(digest_size=8)
        for function in (self.function, *self.relies_on):
            try:
                found = getattr(*self._holder(function))
                source = self._source(getattr(found, _STOCK, found))
            except (AttributeError, ImportError, OSError, TypeError):
                return None
            digest.update(source.encode())
        return digest.hexdigest()

    def _source(self, found: Any) -> str:
        # Of a function that wraps another, `inspect` gives the source of the other one.
        return inspect.getsource(
            found if self.may_be_wrapped else getattr(found, "__code__", found)
        )


def replace_all(replacements: tuple[Replacement, ...]) -> list[Change]:
    """Applies all of them, or raises PatchRefused before any."""
    for replacement in replacements:
        replacement.check()
    return [change for replacement in replacements for change in replacement.apply()]


def put_back(changes: list[Change]) -> None:
    """Gives the stock functions back, but for those that somebody else has replaced since."""
    for holder, name, stock, faster in changes:
        if vars(holder).get(name) is faster:
            setattr(holder, name, stock)
