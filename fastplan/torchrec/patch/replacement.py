"""Functions of TorchRec and torch that are replaced, and only if they are the ones we know.

A replacement gives what the stock function gives, in less time; that holds for the source it was
written for. So the source is compared first, and anything else is refused by name.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fastplan.torchrec.patch.stand_in import StandIn, faster_function, is_below, lock

_stand_ins: dict[str, StandIn] = {}  # by the name of what they replace, or did once


class PatchRefused(RuntimeError):
    """A function to be replaced is not the one its replacement was written for."""


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

    def stand_in(self) -> StandIn:
        """What stands for the function, or is to be put there."""
        holder, name = self._holder(self.function)
        found = getattr(holder, name)
        known = _stand_ins.get(self.name)
        if known is not None and (found is known.stock or is_below(known.ours, found)):
            return known
        made = StandIn(name, found, self.module.partition(".")[0], owner=holder)
        made.ours = faster_function(made, self.make(found))
        _stand_ins[self.name] = made
        return made

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
                source = self._source(self._stock(getattr(*self._holder(function))))
            except (AttributeError, ImportError, OSError, TypeError):
                return None
            digest.update(source.encode())
        return digest.hexdigest()

    def _stock(self, found: Any) -> Any:
        known = _stand_ins.get(self.name)
        return known.stock if known is not None and found is known.ours else found

    def _source(self, found: Any) -> str:
        # Of a function that wraps another, `inspect` gives the source of the other one.
        return inspect.getsource(
            found if self.may_be_wrapped else getattr(found, "__code__", found)
        )


def replace_all(replacements: tuple[Replacement, ...]) -> list[StandIn]:
    """Applies all of them, or raises PatchRefused before any. Each is to be released once."""
    for replacement in replacements:  # before all is locked: what is imported may patch, too
        with suppress(ImportError):
            import_module(replacement.module)
    with lock:
        for replacement in replacements:
            replacement.check()
        found = [replacement.stand_in() for replacement in replacements]
        for stand_in in found:
            stand_in.take()
        return found
