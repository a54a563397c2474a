"""What a function's code says: the bytes to hash, and the names that it reads."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import NamedTuple


class CodeFacts(NamedTuple):
    """What there is to know of a code object, with the code inside it."""

    static: bytes
    globals: tuple[str, ...]
    attributes: tuple[str, ...]  # that it may ask for, of whatever


class _Same:
    """A code object, equal to itself alone: Python takes codes for equal that differ, for instance
    in their flags. Keeps the object, whose id would go to another one otherwise."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.code is self.code

    def __hash__(self) -> int:
        return id(self.code)


def read_code(code: CodeType) -> CodeFacts:
    """The facts of a code object."""
    return _read(_Same(code))


@lru_cache(maxsize=256)
def _read(same: _Same) -> CodeFacts:
    code = same.code
    parts = [code.co_code, getattr(code, "co_exceptiontable", b"")]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    parts += [repr(shape).encode(), repr(code.co_varnames).encode()]
    parts += [repr((code.co_names, code.co_freevars, code.co_cellvars)).encode()]
    names = {
        step.argval: None
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    attributes = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = read_code(constant)
            parts.append(inner.static)
            names.update(dict.fromkeys(inner.globals))
            attributes.update(dict.fromkeys(inner.attributes))
            continue
        if isinstance(constant, frozenset):  # of `in {...}`: its order changes
            constant = tuple(sorted(map(repr, constant)))
        elif isinstance(constant, str) and "getattr" in code.co_names and constant.isidentifier():
            attributes[constant] = None
        parts.append(repr(constant).encode())
    static = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return CodeFacts(static, tuple(sorted(names)), tuple(sorted(attributes)))
