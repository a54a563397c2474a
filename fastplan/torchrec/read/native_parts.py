"""TorchRec's own code inside custom enumerators and estimators, done by the core.

A custom part that subclasses one of TorchRec's calls TorchRec's code through `super()` or inherits
it. While such a part runs, its object gets a class with one more base, between the part's own class
and TorchRec's: `super().enumerate()` then finds the native method. The part's own code, its object
and TorchRec's classes stay what they are; only `type(self)` is a subclass of the part's class.
`self.__class__` is the part's class.

Each native method does what TorchRec's does to the last bit, or calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torchrec.distributed.planner import shard_estimators
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ShardingOption

from fastplan.engine.solve import OutOfRange
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences.estimates import MISSING, perf_estimators
from fastplan.torchrec.read.costs import stock_estimator
from fastplan.torchrec.read.option_estimates import OptionEstimates
from fastplan.torchrec.support import support
from fastplan.torchrec.support.watch import ESTIMATES

Enumerate = Callable[[Any, Any, list[Any]], list[ShardingOption]]

# The native enumeration of the call that runs in this thread; other threads run TorchRec's code.
_enumerate: ContextVar[Enumerate | None] = ContextVar("fastplan_enumerate", default=None)


class _NativeEnumerator(EmbeddingEnumerator):
    def enumerate(self, module: Any, sharders: list[Any]) -> list[ShardingOption]:
        enumerate_natively = _enumerate.get()
        if enumerate_natively is not None:
            try:
                return enumerate_natively(self, module, sharders)
            except (NotNative, OutOfRange):
                pass  # TorchRec lists the options, and the core still estimates them
        return super().enumerate(module, sharders)  # type: ignore[no-any-return]


def _estimated_by(kind: type) -> Any:
    """Returns the native `estimate` of one of TorchRec's estimators."""

    def estimate(self: Any, sharding_options: Any, *args: Any, **kwargs: Any) -> None:
        rest = sharding_options
        sharder_data = kwargs.get("sharder_data_map") or (args[0] if args else None)
        if _enumerate.get() is not None and type(sharder_data) is dict:
            try:
                with compat.paused():
                    estimates = OptionEstimates(_stock_twin(self, kind), sharder_data)
                    rest = estimates.estimate(sharding_options)
            except (NotNative, OutOfRange):
                rest = sharding_options
            if not rest:
                return
        kind.estimate(self, rest, *args, **kwargs)  # type: ignore[attr-defined]

    return estimate


def _stock_twin(part: Any, kind: type) -> Any:
    """Returns an estimator of TorchRec's own class with the state of `part`. Raises NotNative."""
    twin: Any = object.__new__(kind)
    twin.__dict__ = vars(part)
    working = stock_estimator(twin)
    if working is None:
        raise NotNative(f"{kind.__qualname__} was replaced by other code")
    return working


class _NativeStorage(shard_estimators.EmbeddingStorageEstimator):
    estimate = _estimated_by(shard_estimators.EmbeddingStorageEstimator)


class _NativeWrappedPerf(shard_estimators.EmbeddingPerfEstimator):
    estimate = _estimated_by(shard_estimators.EmbeddingPerfEstimator)


_NATIVE: dict[type, type] = {
    EmbeddingEnumerator: _NativeEnumerator,
    shard_estimators.EmbeddingStorageEstimator: _NativeStorage,
    shard_estimators.EmbeddingPerfEstimator: _NativeWrappedPerf,
}
if not MISSING:

    class _NativePerf(perf_estimators.EmbeddingPerfEstimator):
        estimate = _estimated_by(perf_estimators.EmbeddingPerfEstimator)

    _NATIVE[perf_estimators.EmbeddingPerfEstimator] = _NativePerf


@contextmanager
def native_parts(enumerator: Any, enumerate_natively: Enumerate) -> Iterator[None]:
    """Makes TorchRec's code inside an enumerator and its estimators native for a block.

    Without native estimates for this TorchRec, nothing changes.
    """
    if MISSING or support.why_not(ESTIMATES):
        yield
        return
    changed: list[tuple[Any, type]] = []
    token = _enumerate.set(enumerate_natively)
    try:
        for part in (enumerator, *_estimators(enumerator)):
            kind = type(part)
            native = _class_with_native_base(kind)
            if native is not None and _assign_class(part, native):
                changed.append((part, kind))
        yield
    finally:
        for part, kind in changed:
            _assign_class(part, kind)
        _enumerate.reset(token)


def _estimators(enumerator: Any) -> list[Any]:
    found = getattr(enumerator, "_estimators", None)
    return list(found) if isinstance(found, list | tuple) else []


def _assign_class(part: Any, kind: type) -> bool:
    try:
        object.__dict__["__class__"].__set__(part, kind)
    except TypeError:  # objects with `__slots__` can't get another class
        return False
    return True


def _class_with_native_base(kind: type) -> type | None:
    """Returns the class for a part's object; None if TorchRec's code must run."""
    stock = next((stock for stock in _NATIVE if issubclass(kind, stock)), None)
    if stock is None or issubclass(kind, _NATIVE[stock]) or type(kind) is not type(stock):
        return None
    if any("__init_subclass__" in vars(base) for base in kind.__mro__[:-1]):
        return None  # the new class would be announced as one of the user's
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__class__"] = property(lambda self: kind)
    bases = (_NATIVE[stock],) if kind is stock else (kind, _NATIVE[stock])
    metaclass: Any = type(kind)
    try:
        made: type = metaclass(kind.__name__, bases, names)
    except TypeError:  # no order of the bases is consistent
        return None
    return made
