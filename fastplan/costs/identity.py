"""Fingerprints a function: a hash of its code and of every value that it reads.

The code is Python's bytecode, not the source file, which may have been edited since. Everything
that is hashed can also be copied, helpers and modules included. numba compiles the copy, so that it
reads no value outside the hash, and no helper's code that was compiled for older values.
"""

from __future__ import annotations

import builtins
import enum
import hashlib
import struct
import sys
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from fastplan.costs.bytecode import CodeFacts, read_code
from fastplan.costs.errors import NoFingerprint
from fastplan.costs.extensions import EXTENSIONS

_DIGEST_BYTES = 16
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
# Modules whose functions are identified by their names.
_STEADY = frozenset({"builtins", "math", "cmath", "operator", "_operator", "numpy", "numba"})
# Exceptions, with the reason.
_UNSTEADY = {
    "random": "returns different numbers on every call",
    "objmode": "runs Python code that can't be tracked",
}
_MISSING = object()


class Frozen(NamedTuple):
    """A snapshot of a function and of the values that it reads."""

    function: FunctionType  # a copy, with copies of all that it reads
    declared: list[tuple[Any, list[Any]]]  # its numba functions with declared signatures
    digest: str
    unknown: tuple[str, ...]  # values that can't be tracked; the digest does not cover them
    opaque: tuple[Any, ...]  # the objects of `unknown`

    def looks_like(self, other: Frozen) -> bool:
        """Returns whether no visible value differs between the two."""
        return (
            self.digest == other.digest
            and len(self.opaque) == len(other.opaque)
            and all(a is b for a, b in zip(self.opaque, other.opaque, strict=True))
        )


def digest(function: FunctionType) -> str:
    """Returns the hash of a function: functions with equal hashes compute the same.

    Raises:
        NoFingerprint: The function reads something that can't be fingerprinted.
    """
    found = look(function)
    if found.unknown:
        raise NoFingerprint(found.unknown[0])
    return found.digest


def look(function: FunctionType) -> Frozen:
    """Returns a snapshot for comparison: helpers and arrays are not copied."""
    return _Walk(copying=False).frozen(function)


def freeze(function: FunctionType) -> Frozen:
    """Returns a snapshot to compile, with copies of helpers and arrays."""
    return _Walk(copying=True).frozen(function)


class _Walk:
    """Adds a function, and everything that it reads, to a hash, and copies the values."""

    def __init__(self, *, copying: bool) -> None:
        self._words: list[str | bytes] = []
        self._copying = copying
        # By id, with the objects: a module may create an attribute on demand, and the id of a
        # deleted object can be reused.
        self._seen: dict[tuple[int, Any], tuple[int, Any, Any]] = {}
        self._declared: list[tuple[Any, list[Any]]] = []
        self._unknown: list[str] = []
        self._opaque: list[Any] = []

    def frozen(self, function: FunctionType) -> Frozen:
        """Returns the snapshot of a function."""
        EXTENSIONS.refresh()
        copy = self._new_function(function)
        try:
            self._fill(function, copy)
        except RecursionError:
            self._unknown.append("its values are nested too deeply")
        if EXTENSIONS.operators is not None:
            self._not_followed("an operator", _is_registered_with_numba(EXTENSIONS.operators))
        found = tuple(self._unknown), tuple(self._opaque)
        return Frozen(copy, self._declared, self._digest(), *found)

    def _new_function(self, function: FunctionType) -> FunctionType:
        """Returns a copy with its defaults. `_fill` adds its names."""
        names = {"__builtins__": builtins, "__name__": function.__globals__.get("__name__")}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(function.__code__, names, function.__name__, None, cells)
        copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
        self._keep(function, copy)
        facts = read_code(function.__code__)
        self._say("function", facts.static, "defaults")
        copy.__defaults__ = self._value("default", tuple(function.__defaults__ or ()), facts)
        named = sorted((function.__kwdefaults__ or {}).items())
        copy.__kwdefaults__ = {name: self._value(name, value, facts) for name, value in named}
        return copy

    def _fill(self, function: FunctionType, copy: FunctionType) -> None:
        facts = read_code(function.__code__)
        cells = zip(function.__closure__ or (), copy.__closure__ or (), strict=True)
        for name, (cell, own) in zip(function.__code__.co_freevars, cells, strict=True):
            self._say("closure", name)
            try:
                value = cell.cell_contents
            except ValueError:
                self._not_followed(f"`{name}`", "has no value yet")
            else:
                own.cell_contents = self._value(name, value, facts)
        for name in facts.globals:
            found = function.__globals__
            if name in found or hasattr(builtins, name):
                self._say("global", name)
                value = found[name] if name in found else getattr(builtins, name)
                copy.__globals__[name] = self._value(name, value, facts)
        for name in facts.attributes if EXTENSIONS.names else ():
            if name in EXTENSIONS.names:
                self._not_followed(f"`{name}`", _is_registered_with_numba(EXTENSIONS.names[name]))

    def _value(self, name: str, value: Any, facts: CodeFacts) -> Any:
        kind = type(value)
        if isinstance(value, ModuleType):
            return self._module(name, value, facts)
        if isinstance(value, enum.Enum):
            self._say("member", kind.__qualname__, value.name)
            self._value(name, value.value, facts)
        elif kind in _PLAIN:
            self._say(kind.__name__, _bits(value))
        elif kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            self._say(kind.__name__, repr(getattr(kind, "_fields", "")), str(len(value)))
            items = [self._value(name, item, facts) for item in value]
            return tuple(items) if kind is tuple else kind(*items)
        elif kind in (np.ndarray, np.recarray) or isinstance(value, np.generic):
            return self._array(name, value)
        elif isinstance(value, type) and issubclass(value, enum.Enum):
            self._members(value, facts)
        elif _is_compiled_by_numba(value):
            return self._numba_function(name, value, facts)
        else:
            self._function_of_name(name, value)
        return value

    def _members(self, value: type[enum.Enum], facts: CodeFacts) -> None:
        """Adds an enumeration. Members count under all of their names."""
        if self._is_known(value):
            return
        self._keep(value, value)
        self._say("enum", value.__qualname__)
        for name, member in value.__members__.items():
            self._say(name)
            self._value(name, member, facts)

    def _function_of_name(self, name: str, value: Any) -> None:
        """Adds a function that numba supports, or that an extension registered."""
        module = EXTENSIONS.of_value(value) if callable(value) else None
        if module is not None:
            self._not_followed(f"`{name}`", _is_registered_with_numba(module), value)
        elif _is_stable(value):
            self._say("steady", value.__module__, value.__name__)
        elif isinstance(value, FunctionType):
            if not self._is_known(value):
                self._fill(value, self._new_function(value))
        else:
            self._not_followed(f"`{name}`", f"is a {type(value).__name__}", value)

    def _module(self, name: str, value: ModuleType, facts: CodeFacts) -> ModuleType:
        """Returns a copy of a module with only the attributes that the code may read.

        The code does not show which attribute belongs to which module.
        """
        self._say("module", value.__name__)
        if _home(value.__name__) in _STEADY:
            for attribute, why in _UNSTEADY.items():
                if attribute in facts.attributes and hasattr(value, attribute):
                    self._not_followed(f"`{name}.{attribute}`", why)
            return value
        if self._is_known(value, facts.attributes):
            known: ModuleType = self._copy_of(value, facts.attributes)
            return known
        copy = ModuleType(value.__name__)
        self._keep(value, copy, facts.attributes)
        for attribute in facts.attributes:
            found = getattr(value, attribute, _MISSING)  # once: it may be created on demand
            if found is not _MISSING:
                self._say("attribute", attribute)
                setattr(copy, attribute, self._value(f"{name}.{attribute}", found, facts))
        return copy

    def _numba_function(self, name: str, value: Any, facts: CodeFacts) -> Any:
        """Adds a helper: its options, its declared signatures and its Python function."""
        if self._is_known(value):
            return self._copy_of(value)
        signatures = [] if value._can_compile else [c.signature for c in value.overloads.values()]
        self._say("options", *map(str, signatures))
        for option, setting in sorted(value.targetoptions.items()):
            if isinstance(setting, set):  # option fastmath
                setting = tuple(sorted(setting))
            self._say(option)
            self._value(f"{name}, {option}", setting, facts)
        for local, kind in sorted(value.locals.items()):
            self._say(local, str(kind))
        function = self._new_function(value.py_func)
        copy = value
        if self._copying:
            copy = type(value)(function, dict(value.locals), dict(value.targetoptions))
            if signatures:
                self._declared.append((copy, signatures))
        self._keep(value, copy)
        self._fill(value.py_func, function)
        return copy

    def _array(self, name: str, value: Any) -> Any:
        if value.dtype.hasobject:
            self._not_followed(f"`{name}`", f"is a {type(value).__name__} of objects", value)
            return value
        self._say(type(value).__name__, repr(value.dtype.descr), repr(value.shape))
        self._say(value.tobytes())
        return value.copy() if self._copying else value

    def _not_followed(self, name: str, why: str, *values: Any) -> None:
        self._say("unknown", name, why)
        self._unknown.append(f"{name} {why}")
        self._opaque.extend(values)

    def _is_known(self, value: Any, more: Any = None) -> bool:
        """Returns whether the value was added before. If so, adds its number to the hash."""
        known = self._seen.get((id(value), more))
        if known is not None:
            self._say("again", str(known[0]))
        return known is not None

    def _keep(self, value: Any, copy: Any, more: Any = None) -> None:
        self._seen[id(value), more] = len(self._seen), value, copy

    def _copy_of(self, value: Any, more: Any = None) -> Any:
        return self._seen[id(value), more][2]

    def _say(self, *words: str | bytes) -> None:
        self._words += words

    def _digest(self) -> str:
        found = [word.encode() if isinstance(word, str) else word for word in self._words]
        lengths = np.array([*map(len, found)], "<u8").tobytes()
        return hashlib.blake2b(lengths + b"".join(found), digest_size=_DIGEST_BYTES).hexdigest()


def _bits(value: Any) -> bytes:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    return repr(value).encode()


def _is_compiled_by_numba(value: Any) -> bool:
    """Returns whether it is an @njit function.

    Other numba functions contain code that was compiled earlier, or that a custom pipeline or
    Python creates during compilation.
    """
    if "numba" not in sys.modules or not hasattr(value, "py_func"):
        return False
    from numba.core.compiler import Compiler
    from numba.core.registry import CPUDispatcher

    return type(value) is CPUDispatcher and value._compiler.pipeline_class is Compiler


def _is_stable(value: Any) -> bool:
    """Returns whether it is a function or type with a name in a stable module."""
    home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(value, np.ufunc):
        home = "numpy"  # old ones have no module
    if not isinstance(home, str) or not isinstance(name, str) or _home(home) not in _STEADY:
        return False
    return getattr(sys.modules.get(home), name, None) is value


def _is_registered_with_numba(module: str) -> str:
    return f"is registered with numba.extending in {module}"


def _home(module: str) -> str:
    return module.partition(".")[0]
