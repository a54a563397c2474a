"""Whether TorchRec's functions are still TorchRec's own: frameworks put others in their place.

The core stands for what TorchRec's classes do as they come. What a class does is in its methods and
in the functions of its module; where one of them is somebody else's, Python has to run.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torchrec
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import ShardPerfContext

import fastplan

# Ours only watch: they call what they are put around.
_HOMES = tuple(f"{path}{os.sep}" for package in (torchrec, fastplan) for path in package.__path__)
_ALSO = {EmbeddingPerfEstimator: (ShardPerfContext,)}


class _Function(NamedTuple):
    holder: Any  # class or module
    name: str
    stock: Any  # None where somebody was there before us


def is_stock(function: Any) -> bool:
    """Whether a function, and whatever it is put around, is TorchRec's or fastplan's."""
    function = getattr(function, "__func__", function)  # of a class or static method
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_HOMES):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def replaced_in(stock: type) -> str | None:
    """The name of a function by which a class of TorchRec's is no longer what it was."""
    for holder, name, function in _functions(stock):
        present = vars(holder).get(name)
        if present is not function and not is_stock(present):
            return f"{holder.__name__}.{name}"
    return None


@cache
def _functions(stock: type) -> tuple[_Function, ...]:
    classes = [kind for kind in stock.__mro__ if kind.__module__.startswith("torchrec.")]
    holders: list[Any] = [*classes, *_ALSO.get(stock, ()), sys.modules[stock.__module__]]
    return tuple(
        _Function(holder, name, value if is_stock(value) else None)
        for holder in holders
        for name, value in vars(holder).items()
        if isinstance(value, FunctionType | classmethod | staticmethod)
        and name not in ("__repr__", "__eq__")  # which decide no plan
        and not _imported(value)
    )


def _imported(value: Any) -> bool:
    """Whether it is there by an import of TorchRec's, or was written by a decorator."""
    function = getattr(value, "__func__", value)
    root = function.__module__.partition(".")[0]
    return (
        root == "torch"
        or root in sys.stdlib_module_names
        or function.__code__.co_filename == "<string>"
    )
