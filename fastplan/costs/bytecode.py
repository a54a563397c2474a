"""Reads code objects: the bytes to hash, and the names that the code reads."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import NamedTuple


class CodeFacts(NamedTuple):
    """The facts of a code object and of the code objects inside it."""

    static: bytes
    globals: tuple[str, ...]
    attributes: tuple[str, ...]  # that it may read, of any object


class _ByIdentity:
    """A code object that is compared by identity, as a key of the cache.

    Python compares code objects by value and ignores some differences, such as flags. The reference
    keeps the object alive, because its id could be reused otherwise.
    """

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.code is self.code

    def __hash__(self) -> int:
        return id(self.code)


def read_code(code: CodeType) -> CodeFacts:
    """Returns the facts of a code object."""
    return _read(_ByIdentity(code))


@lru_cache(maxsize=256)
def _read(same: _ByIdentity) -> CodeFacts:
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
        if isinstance(constant, frozenset):  # from `in {...}`: its order changes
            constant = tuple(sorted(map(repr, constant)))
        elif isinstance(constant, str) and "getattr" in code.co_names and constant.isidentifier():
            attributes[constant] = None
        parts.append(repr(constant).encode())
    static = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return CodeFacts(static, tuple(sorted(names)), tuple(sorted(attributes)))
