"""Finds TorchRec's functions and constants that other code has replaced.

The core does what TorchRec's own functions do. The first look remembers every function, class
attribute and constant of TorchRec's planner; later looks compare. Each of them belongs to a part of
planning. If one differs, its part must run in Python.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torchrec

import fastplan
from fastplan.engine._native import are_unchanged, rebound

PACKAGE = "torchrec.distributed.planner"

# Parts of planning that can fall back on their own; PLANNER is all of them.
ESTIMATES = "estimates"
PROPOSERS = "proposers"
PARTITIONERS = "partitioners"
RATING = "rating"
STATISTICS = "statistics"
RESERVATION = "reservation"
HOOKS = "hooks"
PLANNER = "planner"

# Every name of these modules counts.
_MODULES = {
    f"{PACKAGE}.enumerators": ESTIMATES,
    f"{PACKAGE}.shard_estimators": ESTIMATES,
    f"{PACKAGE}.estimator.annotations": ESTIMATES,
    f"{PACKAGE}.estimator.config": ESTIMATES,
    f"{PACKAGE}.estimator.estimator": ESTIMATES,
    f"{PACKAGE}.estimator.types": ESTIMATES,
    f"{PACKAGE}.proposers": PROPOSERS,
    f"{PACKAGE}.partitioners": PARTITIONERS,
    f"{PACKAGE}.perf_models": RATING,
    f"{PACKAGE}.stats": STATISTICS,
    f"{PACKAGE}.storage_reservations": RESERVATION,
    f"{PACKAGE}.constants": PLANNER,
    f"{PACKAGE}.planners": PLANNER,
    f"{PACKAGE}.types": PLANNER,
    f"{PACKAGE}.utils": PLANNER,
    "torchrec.distributed.sharding_plan": PLANNER,
}

# Of these modules, which do much else, only the names that planning needs.
_NAMES = {
    "torchrec.distributed.types": (
        "CacheAlgorithm",
        "CacheParams",
        "EmbeddingModuleShardingPlan",
        "KeyValueParams",
        "ModuleSharder",
        "ParameterSharding",
        "ParameterStorage",
        "PipelineType",
        "ShardingPlan",
        "ShardingType",
        "StorageUsageType",
        "compute_storage_usage",
        "get_tensor_size_bytes",
    ),
    "torchrec.distributed.embedding_types": ("BaseEmbeddingSharder", "EmbeddingComputeKernel"),
    "torchrec.distributed.embeddingbag": ("EmbeddingBagCollectionSharder",),
    "torchrec.distributed.embedding": ("EmbeddingCollectionSharder",),
    "torchrec.modules.embedding_configs": ("DATA_TYPE_NUM_BITS", "DataType"),
    "torchrec.modules.embedding_modules": ("EmbeddingBagCollection", "EmbeddingCollection"),
    "torchrec.modules.embedding_tower": ("EmbeddingTower", "EmbeddingTowerCollection"),
}

# Looked up and called at every plan, so a replacement takes effect without a fallback.
_CALLED = frozenset(
    {
        "planners.to_sharding_plan",
        "planners.validate_compute_kernels",
        "planners.validate_modules_inclusion_in_sharding_plan",
        "planners.validate_rank_assignment",
        "planners.detect_technique",
        "planners.extract_plan",
        "planners.EventLoggingHandler",
    }
)
_NO_EFFECT = frozenset(
    {"__doc__", "__annotations__", "__warningregistry__", "__builtins__", "__cached__"}
    | {"__spec__", "__loader__", "__file__", "__path__", "__repr__", "__str__", "__eq__"}
    | {"_abc_impl", "__abstractmethods__", "__annotate_func__", "__annotations_cache__"}
)
_LARGEST = 1000  # entries of a container that is compared

# fastplan's own wrappers only observe: they call the wrapped function.
_FOLDERS = tuple(f"{path}{os.sep}" for package in (torchrec, fastplan) for path in package.__path__)
_FOREIGN = sys.stdlib_module_names | {"torch", "fbgemm_gpu", "numpy", "pyre_extensions"}
_CALLABLE: Any = FunctionType | classmethod | staticmethod | property
_PLAIN = (bool, int, float, str, set, frozenset)
_code = attrgetter("__code__")
_defaults = attrgetter("__defaults__")


class _Unseen:
    """Stands for a name that other code had replaced before the first look."""


class _Holder(NamedTuple):
    """A module or class, and what its names were bound to."""

    owner: Any
    part: str
    title: str
    names: tuple[str, ...]
    values: tuple[Any, ...]
    before: frozenset[str]  # all names that it had, with those that don't count


class _Content(NamedTuple):
    """A function or container that can change without a new binding."""

    holder: _Holder
    name: str
    value: Any


class Watch:
    """What TorchRec's planner is made of, as it was at the first look."""

    def __init__(self) -> None:
        self._holders = [_holder(*each) for each in _owners()]
        self._owners = [holder.owner for holder in self._holders]
        self._unchanged = [
            () if _Unseen in holder.values else tuple(vars(holder.owner).values())
            for holder in self._holders
        ]
        bound = [
            _Content(holder, name, value)
            for holder in self._holders
            for name, value in zip(holder.names, holder.values, strict=True)
        ]
        self._owned = [each for each in bound if _function_of(each.value) is not None]
        self._functions = [_function_of(each.value) for each in self._owned]
        self._codes = [*map(_code, self._functions)]
        self._defaults = [*map(_defaults, self._functions)]
        self._containers = [each for each in bound if _is_container(each)]
        self._entries = [each.value.copy() for each in self._containers]

    def replaced(self) -> Mapping[str, str]:
        """Returns the names that other code has replaced since: {part: name of the first}."""
        found: dict[str, str] = {}
        for number in rebound(self._owners, self._unchanged):
            holder = self._holders[number]
            now = tuple(vars(holder.owner).values())
            if not _are_same(now, self._unchanged[number]) and (name := _first_change(holder)):
                found.setdefault(holder.part, f"{holder.title}.{name}")
            else:
                # Equal values, names that don't count, or fastplan's own wrappers.
                self._unchanged[number] = now
        for holder, name, _ in self._changed_inside():
            found.setdefault(holder.part, f"{holder.title}.{name}")
        return found

    def _changed_inside(self) -> Iterator[_Content]:
        """Yields functions with other code or defaults, and containers with other entries."""
        if not are_unchanged(self._functions, self._codes, self._defaults):
            before = zip(self._functions, self._codes, self._defaults, strict=True)
            for owned, (function, code, defaults) in zip(self._owned, before, strict=True):
                if _code(function) is not code or _defaults(function) is not defaults:
                    yield owned
        for owned, entries in zip(self._containers, self._entries, strict=True):
            if owned.value != entries:
                yield owned

    def constants(self) -> Iterator[str]:
        """Yields the plain constants of the modules, in the same order in every process."""
        for holder in self._holders:
            if isinstance(holder.owner, ModuleType):
                for name, value in zip(holder.names, holder.values, strict=True):
                    if isinstance(value, _PLAIN):
                        yield f"{holder.title}.{name}={_text(value)}"


def sources() -> list[ModuleType]:
    """Returns the modules whose text decides a plan, in order."""
    names = (*_MODULES, "torchrec.distributed.types", "torchrec.distributed.embedding_types")
    return [module for name in names if (module := _module(name)) is not None]


def is_stock(function: Any) -> bool:
    """Whether a function, and every function that it wraps, is TorchRec's or fastplan's."""
    if isinstance(function, property):
        accessors = (function.fget, function.fset, function.fdel)
        return all(each is None or is_stock(each) for each in accessors)
    function = getattr(function, "__func__", function)  # of a class or static method
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_FOLDERS):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def parts_of(stock: type) -> tuple[str, ...]:
    """Returns the parts that a class of TorchRec's planner belongs to, the narrowest first."""
    part = _MODULES.get(stock.__module__)
    if part is None:
        return ()
    return (stock.__name__, part) if part in (PROPOSERS, PARTITIONERS) else (part,)


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


def _owners() -> Iterator[tuple[Any, str, str, Iterable[str] | None]]:
    """Yields modules and classes with their part, their title, and the names that count."""
    seen: set[Any] = set()
    for name, part in _MODULES.items():
        module = _module(name)
        if module is None:
            continue
        title = name.rpartition(".")[2]
        yield module, part, title, None
        if name == f"{PACKAGE}.planners":
            yield module, HOOKS, title, filter(_is_hook, vars(module))
        for kind in _classes(vars(module).values(), name, seen):
            yield kind, part, kind.__qualname__, None
    for name, names in _NAMES.items():
        module = _module(name)
        if module is None:
            continue
        found = [each for each in names if each in vars(module)]
        yield module, PLANNER, name.rpartition(".")[2], found
        for kind in _classes((vars(module)[each] for each in found), name, seen):
            yield kind, PLANNER, kind.__qualname__, None


def _classes(values: Iterable[Any], module: str, seen: set[Any]) -> Iterator[type]:
    for value in values:
        if isinstance(value, type) and value.__module__ == module and value not in seen:
            seen.add(value)
            yield value


def _holder(owner: Any, part: str, title: str, counted: Iterable[str] | None) -> _Holder:
    own = vars(owner)
    names = tuple(
        name
        for name in (own if counted is None else counted)
        if _counts(f"{title}.{name}", name, own[name]) and (part == HOOKS or not _is_hook(name))
    )
    names = tuple(name for name in names if not _is_read(owner, own[name]))
    values = tuple(own[name] if _is_trusted(own[name]) else _Unseen for name in names)
    before = frozenset(own) if counted is None else frozenset()
    return _Holder(owner, part, title, names, values, before)


def _counts(full_name: str, name: str, value: Any) -> bool:
    """Whether a name can decide a plan."""
    return not (name in _NO_EFFECT or full_name in _CALLED or isinstance(value, logging.Logger))


def _is_hook(name: str) -> bool:
    """Whether a name of TorchRec's planner module is one of its logging hooks."""
    return name.startswith("log_")


def _is_trusted(value: Any) -> bool:
    """Whether a value of the first look is TorchRec's own, or imported by it."""
    if not isinstance(value, _CALLABLE):
        return True
    function = _function_of(value)
    return function is None or _is_imported(function) or is_stock(value)


def _is_imported(function: FunctionType) -> bool:
    """Whether TorchRec imports it, or the decorator of a dataclass of TorchRec's created it."""
    root = (function.__module__ or "").partition(".")[0]
    made = root == "torchrec" and function.__code__.co_filename == "<string>"
    return root in _FOREIGN or made


def _function_of(value: Any) -> FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType) else None


def _is_container(content: _Content) -> bool:
    """Whether this is a small container of TorchRec's, not one that Python keeps in a class."""
    value = content.value
    is_own = not content.name.endswith("_") and content.name != "_registry"
    return is_own and isinstance(value, dict | list | set) and len(value) <= _LARGEST


def _text(value: Any) -> str:
    """Returns a constant as text that is the same in every process."""
    if isinstance(value, set | frozenset):
        return repr(sorted(map(str, value)))
    return repr(value)


def _are_same(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    try:
        return now == before
    except Exception:  # items of other code that can't be compared
        return False


def _first_change(holder: _Holder) -> str | None:
    """Returns the first name that other code has replaced, added or removed; None without one."""
    own = vars(holder.owner)
    for name, before in zip(holder.names, holder.values, strict=True):
        present = own.get(name)
        if present is not before and not is_stock(present):
            return name
    return _added(holder) if holder.before else None


def _added(holder: _Holder) -> str | None:
    """Returns a new name that hides one: of a base class, or of Python."""
    own: Mapping[str, Any] = vars(holder.owner)
    for name in own:
        if name in holder.before or not _counts(f"{holder.title}.{name}", name, own[name]):
            continue
        if isinstance(holder.owner, type):
            hides = any(name in vars(base) for base in holder.owner.__mro__[1:])
        else:
            hides = hasattr(builtins, name)
        if hides and not (is_stock(own[name]) or _is_read(holder.owner, own[name])):
            return name
    return None


def _is_read(owner: Any, value: Any) -> bool:
    """Whether this is a number of a hardware configuration, which every plan reads."""
    is_configuration = hasattr(owner, "get_coefficients_for_sharding")
    return is_configuration and not isinstance(value, _CALLABLE)
