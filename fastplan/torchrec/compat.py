"""Reasons for a fallback from the native core."""

from __future__ import annotations

import copy
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torchrec
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.types import CacheAlgorithm, CacheParams, KeyValueParams
from torchrec.modules.embedding_configs import DataType

import fastplan
from fastplan.spec.stock import VERSIONS


class NotNative(Exception):
    """A part is custom or not supported by the native core; TorchRec's own code must run."""


class Custom(NamedTuple):
    """A part of the planner that only Python can run, and why."""

    part: Any
    reason: str


def describe(part: object) -> str:
    """Returns module and class of a component, for reasons."""
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"


def why_not_stock(part: object, stock: type, *methods: str) -> str:
    """Why `part` is not exactly `stock`, or which function was replaced; empty if stock."""
    if type(part) is not stock:
        return f"{describe(part)} is not TorchRec's {stock.__qualname__}"
    replaced = [name for name in methods if name in getattr(part, "__dict__", {})]
    if replaced:
        return f"{describe(part)} has its own `{replaced[0]}`"
    foreign = find_replaced_function(stock)
    return f"{foreign} was replaced by other code" if foreign else ""


def require_stock(part: object, stock: type, *methods: str) -> None:
    """Raises NotNative unless `part` is exactly `stock` and no function was replaced."""
    if reason := why_not_stock(part, stock, *methods):
        raise NotNative(reason)


# fastplan's wrappers only observe: they call the wrapped function.
_STOCK_FOLDERS = tuple(
    f"{path}{os.sep}" for package in (torchrec, fastplan) for path in package.__path__
)
_ALSO = {EmbeddingPerfEstimator: (ShardPerfContext,)}


class _Function(NamedTuple):
    holder: Any  # class or module
    name: str
    stock: Any  # None if other code replaced it before


def is_stock(function: Any) -> bool:
    """Whether a function, and every function that it wraps, is TorchRec's or fastplan's."""
    function = getattr(function, "__func__", function)  # of a class or static method
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_STOCK_FOLDERS):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def find_replaced_function(stock: type) -> str | None:
    """Returns the name of the first replaced function of a TorchRec class."""
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
        and name not in ("__repr__", "__eq__")  # which don't affect plans
        and not _imported(value)
    )


def _imported(value: Any) -> bool:
    """Whether TorchRec imports it, or a decorator created it."""
    function = getattr(value, "__func__", value)
    root = function.__module__.partition(".")[0]
    return (
        root == "torch"
        or root in sys.stdlib_module_names
        or function.__code__.co_filename == "<string>"
    )


class UnsupportedTorchRec(ImportError):
    """The installed TorchRec version is not supported."""


def installed() -> str:
    """Returns the version of TorchRec that this process imports. Raises UnsupportedTorchRec."""
    try:
        import torchrec
    except ModuleNotFoundError as error:
        if error.name != "torchrec":
            raise
        raise UnsupportedTorchRec(
            f"TorchRec is not installed. Install one of {', '.join(VERSIONS)} "
            "(`pip install torchrec==1.8.0 --no-deps` next to torch and fbgemm-gpu)."
        ) from error
    return str(getattr(torchrec, "__version__", "unknown")).split("+")[0]


def check(version: str) -> str:
    """Returns the version, or raises UnsupportedTorchRec naming the supported ones."""
    if version not in VERSIONS:
        raise UnsupportedTorchRec(
            f"fastplan supports TorchRec {' and '.join(VERSIONS)}; "
            f"TorchRec {version} is installed. Install one of these, or keep TorchRec's planner."
        )
    return version


VERSION = check(installed())
IS_1_9 = VERSION.startswith("1.9")

# Devices that have an index per rank in a placement.
INDEXED_DEVICES = frozenset({"cuda", "mtia", "tpu"} if IS_1_9 else {"cuda", "mtia"})

if IS_1_9:
    from torchrec.distributed.planner.types import PlannerContextFingerprintError

    UNHASHABLE_CONTEXT: tuple[type[Exception], ...] = (PlannerContextFingerprintError,)
else:
    UNHASHABLE_CONTEXT = ()


def key_value_params(option_params: Any, constraint: Any) -> Any:
    """Returns the key-value parameters of the storage estimate: 1.9 reads the option first."""
    if IS_1_9 and option_params is not None:
        return option_params
    return constraint.key_value_params if constraint is not None else None


def extra_option_arguments(enumerator: Any, name: str, module: Any) -> dict[str, Any]:
    """Returns the arguments of ShardingOption that only the newer version has."""
    if not IS_1_9:
        return {}
    return {"stash_weights": enumerator._get_stash_weights(name, module)}


# copy.deepcopy() returns the same object for them.
IMMUTABLE = frozenset({type(None), bool, int, float, str, CacheAlgorithm, DataType})


def copy_params(params: Any) -> Any:
    """Returns a deep copy of cache or key-value parameters, in less time than copy.deepcopy()."""
    is_flat = type(params) in (CacheParams, KeyValueParams) and all(
        type(value) in IMMUTABLE for value in vars(params).values()
    )
    if not is_flat:
        return copy.deepcopy(params)
    copied = object.__new__(type(params))
    vars(copied).update(vars(params))
    return copied


# A collection of the older generations is delayed until it is due this many times over, so that a
# process that only makes plans still frees its garbage.
_PATIENCE = 2


@contextmanager
def paused(ending: AbstractContextManager[None] | None = None) -> Iterator[None]:
    """Pauses garbage collection inside the block.

    The end of the block collects only its new objects. After `import torch` a full collection is
    often due, and would otherwise run with the next new object.

    Args:
        ending: a context manager around that collection, to time it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            with ending or nullcontext():
                _collect_youngest()
                gc.enable()


@contextmanager
def resumed() -> Iterator[None]:
    """Resumes collection for user code that runs inside a pause."""
    enabled = gc.isenabled()
    if not enabled:
        _collect_youngest()
    gc.enable()
    try:
        yield
    finally:
        if not enabled:
            gc.disable()


def _collect_youngest() -> None:
    """Collects the youngest objects, so that no collection is due immediately."""
    youngest, older, _ = gc.get_count()
    threshold, older_threshold, _ = gc.get_threshold()
    if 0 < threshold < youngest and older <= _PATIENCE * older_threshold:
        gc.collect(0)
