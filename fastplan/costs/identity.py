"""What a function computes, as a hash: its code, and every value it reads from outside.

The code is what Python has compiled, and not the source file, which may have been edited since.
"""

from __future__ import annotations

import dis
import enum
import hashlib
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fastplan.costs.errors import CannotTell

_DIGEST_BYTES = 16
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
# Modules whose functions do the same whenever they have the same name.
_STEADY = frozenset({"builtins", "math", "cmath", "operator", "numpy", "numba", "fastplan"})


def digest(function: FunctionType) -> str:
    """Equal for functions that compute the same. Raises CannotTell."""
    walk = _Walk()
    walk.function(function)
    return walk.hash.hexdigest()


class _Walk:
    """Feeds a function, and all that it reads, to a hash."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._seen: dict[int, int] = {}

    def function(self, function: FunctionType) -> None:
        if self._met(function):
            return
        static, names, attributes = _read(function.__code__)
        self._say("function", static)
        self._say("defaults")
        self._value("default", tuple(function.__defaults__ or ()))
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self._say("closure", name)
            try:
                self._value(name, cell.cell_contents)
            except ValueError:
                raise CannotTell(f"`{name}` has no value yet") from None
        for name in names:
            if name in function.__globals__:
                self._say("global", name)
                self._global(name, function.__globals__[name], attributes)

    def _global(self, name: str, value: Any, attributes: tuple[str, ...]) -> None:
        if not isinstance(value, ModuleType):
            self._value(name, value)
            return
        self._say("module", value.__name__)
        if _home(value.__name__) in _STEADY or self._met(value):
            return
        # Which attribute belongs to which module is for the compiler to find out.
        for attribute in attributes:
            if hasattr(value, attribute):
                self._say("attribute", attribute)
                own = f"{name}.{attribute}"
                self._global(own, getattr(value, attribute), attributes)

    def _value(self, name: str, value: Any) -> None:
        if isinstance(value, enum.Enum):
            self._say("member", type(value).__qualname__, value.name)
            self._value(name, value.value)
        elif isinstance(value, _PLAIN):
            self._say(type(value).__name__, repr(value))
        elif isinstance(value, tuple):
            self._say(type(value).__name__, str(len(value)))
            for item in value:
                self._value(name, item)
        elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            self._say("array", repr(value.dtype.descr), repr(value.shape), value.tobytes())
        elif isinstance(value, type) and issubclass(value, enum.Enum):
            self._say("enum", value.__qualname__)
            for member in value:
                self._value(name, member)
        elif (function := _python_function(value)) is not None:
            options = getattr(value, "targetoptions", {})  # of a numba function: fastmath and such
            self._say("options", repr(sorted(options.items(), key=str)))
            self.function(function)
        elif _is_steady(value):
            self._say("steady", getattr(value, "__module__", None) or "", value.__name__)
        else:
            raise CannotTell(f"`{name}` is a {type(value).__name__}")

    def _met(self, value: Any) -> bool:
        """Whether it has been walked before; then its number stands for it."""
        if id(value) in self._seen:
            self._say("again", str(self._seen[id(value)]))
            return True
        self._seen[id(value)] = len(self._seen)
        return False

    def _say(self, *words: str | bytes) -> None:
        for word in words:
            data = word.encode() if isinstance(word, str) else word
            self.hash.update(len(data).to_bytes(8, "little"))
            self.hash.update(data)


def _python_function(value: Any) -> FunctionType | None:
    """The Python function in a numba function or in one of ours."""
    for name in ("py_func", "__wrapped__"):
        inner = getattr(value, name, None)
        if isinstance(inner, FunctionType):
            return inner
    return value if isinstance(value, FunctionType) else None


def _is_steady(value: Any) -> bool:
    if isinstance(value, np.ufunc):
        return True
    if not isinstance(value, type | BuiltinFunctionType):
        return False
    return _home(value.__module__ or "builtins") in _STEADY


def _home(module: str) -> str:
    return module.partition(".")[0]


@lru_cache(maxsize=256)
def _read(code: CodeType) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """A code object as bytes, the global names it reads, and the attributes it asks for."""
    parts: list[bytes] = [code.co_code, repr(code.co_varnames).encode()]
    parts += [repr((code.co_names, code.co_freevars, code.co_cellvars)).encode()]
    names = {
        step.argval: None
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    attributes = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, inner_names, inner_attributes = _read(constant)
            parts.append(inner)
            names.update(dict.fromkeys(inner_names))
            attributes.update(dict.fromkeys(inner_attributes))
        else:
            if isinstance(constant, frozenset):  # of `in {...}`: its order changes
                constant = tuple(sorted(map(repr, constant)))
            parts.append(repr(constant).encode())
    static = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return static, tuple(sorted(names)), tuple(sorted(attributes))
