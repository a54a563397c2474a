"""Compiles a custom function with numba, and explains compile errors in one line."""

from __future__ import annotations

import dis
import linecache
import re
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from fastplan.costs import loops
from fastplan.costs.disk import disk_cache
from fastplan.costs.errors import CostError
from fastplan.costs.extensions import EXTENSIONS
from fastplan.costs.identity import Frozen
from fastplan.engine import _native
from fastplan.files.private import DirectoryNotPrivate
from fastplan.model.log import escaped_logger

_log = escaped_logger(__name__)

# Python's semantics, to the bit: a division by zero or an index out of bounds raises, and no
# product and sum is contracted.
_OPTIONS = {"nopython": True, "fastmath": False, "error_model": "python", "boundscheck": True}


class Compiled(NamedTuple):
    """A function in machine code. The address is valid as long as this object exists."""

    address: int
    seconds: float  # time for compiling or loading
    from_disk: bool
    owner: Any
    not_kept: str | None = None  # why it is not cached on disk


def compile_cost(frozen: Frozen) -> Compiled:
    """Compiles a cost function.

    Raises:
        CostError: The function can't be compiled.
    """
    numba = load_numba()
    shard, cost = (numba.from_dtype(d) for d in (_native.SHARD_DTYPE, _native.COST_DTYPE))
    pointers = (numba.types.CPointer(shard), numba.types.CPointer(cost), numba.types.int64)
    return _compile(frozen, (shard, cost), loops.price_all, pointers)


def compile_objective(frozen: Frozen) -> Compiled:
    """Compiles an objective.

    Raises:
        CostError: The function can't be compiled.
    """
    numba = load_numba()
    rank = numba.from_dtype(_native.RANK_DTYPE)
    rating = numba.from_dtype(loops.RATING_DTYPE)
    ranks = numba.types.Array(rank, 1, "C")
    pointers = (numba.types.CPointer(rank), numba.types.int64, numba.types.CPointer(rating))
    return _compile(frozen, (ranks, rating), loops.rate_plan, pointers)


def _compile(frozen: Frozen, types: Any, loop: Callable[..., int], pointers: Any) -> Compiled:
    """Compiles the function and the loop around it into one library.

    A function is cached on disk only if it has a fingerprint.
    """
    numba = load_numba()
    function: Any = frozen.function  # else mypy treats it as a method
    from numba.core.ccallback import CFunc

    base: Any = CFunc  # untyped

    class Callback(base):
        def _compile_uncached(self) -> Any:
            # Compile the function alone first, so that errors are about it and not about the loop.
            for helper, signatures in frozen.declared:
                for signature in signatures:
                    helper.compile(signature)
                helper.disable_compile()
            inner.compile(types)
            _check_result(function, inner)
            return super()._compile_uncached()

    start = time.perf_counter()
    inner = numba.jit(**_OPTIONS)(function)
    # A global, and not a closure: numba writes closures into the keys of its cache.
    names = {**loop.__globals__, "carray": numba.carray, "call": inner}
    outer = FunctionType(loop.__code__, names, function.__name__)
    callback = Callback(outer, (pointers, numba.types.int64), locals={}, options=_OPTIONS)
    not_kept = _enable_disk_cache(callback, outer, frozen)
    try:
        callback.compile()
    except CostError:
        raise
    except Exception as error:
        raise CostError(reason_of(error, function)) from error
    took = time.perf_counter() - start
    return Compiled(callback.address, took, callback.cache_hits > 0, callback, not_kept)


def _enable_disk_cache(callback: Any, outer: FunctionType, frozen: Frozen) -> str | None:
    """Caches the function on disk, or returns the reason why not."""
    if frozen.unknown:
        EXTENSIONS.forget_compiled()
        return f"it can't be fingerprinted: {frozen.unknown[0]}"
    try:
        callback._cache = disk_cache(outer, frozen.digest)
    except (DirectoryNotPrivate, OSError) as why:
        _log.info("fastplan: %s is not cached on disk: %s", outer.__name__, why)
        return str(why)
    return None


def _check_result(function: FunctionType, inner: Any) -> None:
    result = inner.nopython_signatures[0].return_type
    if str(result) != "none":
        code = function.__code__
        raise CostError(
            f"{function.__qualname__} returns a {result}, which is ignored, "
            f"{code.co_filename}:{code.co_firstlineno}: set fields of `{code.co_varnames[1]}`"
        )


def load_numba() -> Any:
    """Imports numba.

    Raises:
        CostError: numba is not installed.
    """
    try:
        import numba
    except ImportError as error:
        raise CostError(
            "custom costs and objectives are compiled with numba, which is not installed: "
            "`pip install 'fastplan[numba]'`"
        ) from error
    return numba


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Numba's text around the reason: the name of a pass, an excerpt of the source, its call stack.
_HEAD = re.compile(r"^Failed in \w+ mode pipeline \(step: [^)]*\)\n")
_TAIL = re.compile(r"\n\s*(File \"|During: |There are \d+ candidate|This error may have been)")
_MOST_WORDS = 400


def reason_of(error: Exception, function: FunctionType) -> str:
    """Returns the message for an error that numba raised while it compiled the function."""
    code = function.__code__
    line: int | None = getattr(getattr(error, "loc", None), "line", None)
    text = _HEAD.sub("", _COLOUR.sub("", str(error)).strip())
    text = _TAIL.split(text, maxsplit=1)[0]
    if isinstance(error, KeyError) and error.args:
        # For a field that a record does not have, numba's message is only the name.
        field = str(error.args[0]).strip("'\"")
        line = _line_of(function, field)
        text = f"there is no field `{field}`"
    reason = " ".join(text.split())
    if len(reason) > _MOST_WORDS:
        reason = f"{reason[:_MOST_WORDS]} ..."
    place = f"{code.co_filename}:{line or code.co_firstlineno}"
    source = linecache.getline(code.co_filename, line).strip() if line else ""
    shown = f" in `{source}`" if source else ""
    return f"{function.__qualname__} can't be compiled, {place}{shown}: {reason}"


def _line_of(function: FunctionType, attribute: str) -> int | None:
    line = None
    for step in dis.get_instructions(function):
        line = step.starts_line or line
        if step.opname in ("LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD") and step.argval == attribute:
            return line
    return None
