"""Stock objects that are replaced wherever they are held, for as long as a patch needs it."""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

# Held in all functions here, so that the number of patches can't change in between.
lock = threading.RLock()


class Substitute:
    """Replaces a stock object under its name in all modules of a package."""

    def __init__(
        self, name: str, stock: Any, package: str, *, owner: Any = None, without: Any = None
    ) -> None:
        self.name = name
        self.stock = stock
        self.ours: Any = None
        self.patches = 0  # number of active patches
        self._package = package
        self._owner = owner  # also has it: a class, or the module that defines it
        self._without = without  # the module that keeps the stock object
        self._kept: list[Any] = []  # places that had the replacement before

    def take(self) -> None:
        """Adds a patch. This also covers modules that were imported since the last patch."""
        if self.patches == 0:
            self._kept = [place for place in self._places() if self._held(place) is self.ours]
        self.patches += 1
        self._exchange(self.stock, self.ours)

    def release(self) -> None:
        """Removes a patch."""
        self.patches -= 1
        if self.patches == 0:
            self._exchange(self.ours, self.stock)
            self._kept = []

    def settle(self, module: Any) -> None:
        """Gives a module that was imported late what the other modules have by now."""
        with lock:
            before, after = self.stock, self.ours
            if self.patches == 0:
                before, after = after, before
            if module is not self._without and self._held(module) is before:
                setattr(module, self.name, after)

    def is_in(self, place: Any) -> bool:
        """Whether a place holds the replacement."""
        return self._held(place) is self.ours

    def _exchange(self, before: Any, after: Any) -> None:
        for place in list(self._places()):
            if self._held(place) is before and not any(place is kept for kept in self._kept):
                setattr(place, self.name, after)

    def _held(self, place: Any) -> Any:
        # Some modules compute their attributes, and some entries of sys.modules are not modules.
        return getattr(place, "__dict__", {}).get(self.name)

    def _places(self) -> Iterator[Any]:
        if self._owner is not None:
            yield self._owner
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self._package and module is not self._without:
                yield module


_stand_ins: dict[str, Substitute] = {}  # by the name of the replaced function, active or not


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """A stock function, the factory of its replacement, and the source that it is valid for."""

    module: str
    function: str  # the name in the module, or Class.method
    make: Callable[[Any], Any]  # stock function in, replacement out
    relies_on: tuple[str, ...] = ()  # other names of the module whose source must also match
    may_be_wrapped: bool = False  # by other code, which then sees the same calls
    digest: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"

    def why_not(self) -> str | None:
        """Returns why the function can't be replaced; None if its source is the known one."""
        digest = hashlib.blake2b(digest_size=8)
        for function in (self.function, *self.relies_on):
            try:
                found = getattr(*self._holder(function))
            except AttributeError:
                return f"{function} does not exist in {self.module}"
            except Exception as error:  # the module itself fails with this version
                return f"{self.module} can't be imported: {error!r}"
            try:
                digest.update(self._source(self._stock(found)).encode())
            except (OSError, TypeError, SyntaxError):
                return f"{function} has no source to compare"
        if digest.hexdigest() == self.digest:
            return None
        which = " or ".join(("it", *self.relies_on))
        return (
            f"{self.function} has different source: {which} is not the function that the "
            f"replacement was written for ({digest.hexdigest()}, not {self.digest})"
        )

    def stand_in(self) -> Substitute:
        """The replacement function."""
        holder, name = self._holder(self.function)
        found = getattr(holder, name)
        known = _stand_ins.get(self.name)
        if known is not None and (found is known.stock or is_below(known.ours, found)):
            return known
        made = Substitute(name, found, self.module.partition(".")[0], owner=holder)
        made.ours = faster_function(made, self.make(found))
        _stand_ins[self.name] = made
        return made

    def _holder(self, function: str) -> tuple[Any, str]:
        holder: Any = import_module(self.module)
        *classes, name = function.split(".")
        for part in classes:
            holder = getattr(holder, part)
        return holder, name

    def _stock(self, found: Any) -> Any:
        known = _stand_ins.get(self.name)
        return known.stock if known is not None and found is known.ours else found

    def _source(self, found: Any) -> str:
        # For a wrapper, `inspect` returns the source of the wrapped function.
        return inspect.getsource(
            found if self.may_be_wrapped else getattr(found, "__code__", found)
        )


class Applied(NamedTuple):
    """What was replaced, and what was not."""

    substitutes: dict[str, Substitute]  # by name; release each one once
    skipped: dict[str, str]  # the reason, by name


def replace_known(replacements: tuple[Replacement, ...]) -> Applied:
    """Replaces the functions that have the known source. The others keep theirs."""
    for replacement in replacements:  # before the lock: an import may also patch
        import_or_reason(replacement.module)
    applied = Applied({}, {})
    with lock:
        for replacement in replacements:
            if reason := replacement.why_not():
                applied.skipped[replacement.name] = reason
            else:
                applied.substitutes[replacement.name] = replacement.stand_in()
        for stand_in in applied.substitutes.values():
            stand_in.take()
    return applied


def import_or_reason(module: str) -> str | None:
    """Imports a module, or returns why it can't be imported."""
    try:
        import_module(module)
    except Exception as error:  # not only ImportError: the module may expect another torch
        return f"{module} can't be imported: {error!r}"
    return None


def faster_function(stand_in: Substitute, faster: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that is the faster one while a patch is active, else the stock one.

    Other code may keep it or wrap it, also after the last patch is undone.
    """
    stock = stand_in.stock

    @wraps(stock)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (faster if stand_in.patches else stock)(*args, **kwargs)

    return call


def is_below(function: Any, above: Any) -> bool:
    """Whether the function is this one, or wraps it at any depth."""
    seen: set[int] = set()
    while above is not None and above is not function and id(above) not in seen:
        seen.add(id(above))
        above = getattr(above, "__wrapped__", None)
    return above is function
