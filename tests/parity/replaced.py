"""TorchRec's functions and constants, found by introspection, and what a replacement of each does.

Whatever other code replaces, fastplan's plan must be TorchRec's. So a plan of TorchRec's planner is
watched to find every function that it calls, wherever the function is bound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torchrec

_FOLDER = f"{torchrec.__path__[0]}/"
_SKIPPED = frozenset({"__init_subclass__", "__class_getitem__", "__set_name__"})


class Place(NamedTuple):
    """A name of a module or class."""

    owner: Any
    name: str

    @property
    def title(self) -> str:
        module = getattr(self.owner, "__module__", None)
        owner = self.owner.__name__ if module is None else f"{module}.{self.owner.__qualname__}"
        return f"{owner.removeprefix('torchrec.')}.{self.name}"


def called_functions(plan: Callable[[], Any]) -> list[Place]:
    """Returns every place where a function of TorchRec's is bound that `plan` calls."""
    codes: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        plan()
    finally:
        sys.setprofile(before)
    own = {code for code in codes if code.co_filename.startswith(_FOLDER)}
    return sorted(set(_places(own)), key=lambda place: place.title)


def _places(codes: set[Any]) -> Iterator[Place]:
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("torchrec.") or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if _code(value) in codes:
                yield Place(module, key)
            elif isinstance(value, type) and value.__module__ == name:
                yield from (
                    Place(value, key)
                    for key, own in vars(value).items()
                    if _code(own) in codes and key not in _SKIPPED
                )


def _code(value: Any) -> Any:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return getattr(value, "__code__", None)


def constants() -> list[Place]:
    """Returns every number that a module of TorchRec's planner binds."""
    found = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("torchrec.distributed.planner") and ".tests" not in name:
            for key, value in vars(module).items():
                if type(value) in (int, float) and not key.startswith("__"):
                    found.append(Place(module, key))
    return found


@contextmanager
def bound(place: Place, value: Any) -> Iterator[None]:
    """Binds another value to a name inside the block."""
    before = vars(place.owner)[place.name]
    setattr(place.owner, place.name, value)
    try:
        yield
    finally:
        setattr(place.owner, place.name, before)


def changed(place: Place, change: Callable[[Any], Any]) -> Any:
    """Returns a function, method or property that changes the results of the one at a place."""
    stock = vars(place.owner)[place.name]
    if isinstance(stock, property):
        return property(_after(stock.fget, change), stock.fset, stock.fdel)
    if isinstance(stock, classmethod | staticmethod):
        return type(stock)(_after(stock.__func__, change))
    return _after(stock, change)


def _after(function: Any, change: Callable[[Any], Any]) -> FunctionType:
    def call(*args: Any, **kwargs: Any) -> Any:
        return change(function(*args, **kwargs))

    return call  # type: ignore[return-value]


def tripled(value: Any) -> Any:
    """Returns another result of the same kind; numbers are three times as large."""
    if type(value) in (int, float):
        return 3 * value
    if type(value) is bool:
        return not value
    if type(value) is list:
        return value[::-1]
    if type(value) is tuple and all(type(each) in (int, float) for each in value):
        return tuple(3 * each for each in value)
    return value
