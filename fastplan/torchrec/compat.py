"""Reasons for a fallback from the native core."""

from __future__ import annotations

import copy
import gc
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.types import CacheAlgorithm, CacheParams, KeyValueParams
from torchrec.modules.embedding_configs import DataType

from fastplan.torchrec.support import support


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
    return support.why_not_class(stock)


def require_stock(part: object, stock: type, *methods: str) -> None:
    """Raises NotNative unless `part` is exactly `stock` and no function was replaced."""
    if reason := why_not_stock(part, stock, *methods):
        raise NotNative(reason)


# copy.deepcopy() returns the same object for them.
IMMUTABLE = frozenset({type(None), bool, int, float, str, CacheAlgorithm, DataType})


def copy_params(params: Any) -> Any:
    """Returns a deep copy of cache or key-value parameters, in less time than copy.deepcopy()."""
    if type(params) not in (CacheParams, KeyValueParams):
        return copy.deepcopy(params)
    return _flat_copy(params) or copy.deepcopy(params)


def _flat_copy(source: Any) -> Any:
    """Returns a deep copy of parameters or cache statistics; None if a value is unusual."""
    copied = object.__new__(type(source))
    tensors = set()
    for name, value in vars(source).items():
        if type(value) in IMMUTABLE:
            twin = value
        elif type(value) is EmbeddingOffloadStats:
            twin = _flat_copy(value)
            if twin is None:
                return None
        elif _is_plain_tensor(value) and value.data_ptr() not in tensors:
            tensors.add(value.data_ptr())
            twin = value.clone()
        else:
            return None
        vars(copied)[name] = twin
    return copied


def _is_plain_tensor(value: Any) -> bool:
    """Whether a clone is a deep copy: nothing else is in the storage, and nothing hangs on it."""
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.is_contiguous()
        and not (value.requires_grad or value.is_complex() or vars(value))
        and value.untyped_storage().nbytes() == value.nbytes
    )


# A collection of the older generations is delayed until it is due this many times over, so that a
# process that only makes plans still frees its garbage.
_PATIENCE = 2
# Objects that were frozen count towards no later collection, so one must be asked for.
_FREEZES_PER_COLLECTION = 16
_freezes = itertools.count(1)


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
    """Resumes collection for user code that runs inside a pause.

    What exists before the block is not collected in it: the objects of a search space would make a
    full collection due, which takes longer than most searches.
    """
    enabled = gc.isenabled()
    freezes = not enabled and gc.get_freeze_count() == 0  # otherwise the freeze is not ours to end
    if freezes:
        if next(_freezes) % _FREEZES_PER_COLLECTION == 0:
            gc.collect()
        gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        if not enabled:
            gc.disable()


def _collect_youngest() -> None:
    """Collects the youngest objects, so that no collection is due immediately."""
    youngest, older, _ = gc.get_count()
    threshold, older_threshold, _ = gc.get_threshold()
    if 0 < threshold < youngest and older <= _PATIENCE * older_threshold:
        gc.collect(0)
