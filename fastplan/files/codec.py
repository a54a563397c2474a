"""Decodes documents into typed structs, and explains errors.

The annotations of a struct state names, types, limits and units. `decode` expands abbreviations
(`40M`, `80GiB`, one value for a list, null for a default), and msgspec does the rest. If msgspec
rejects a document, `_problem` finds the first error: msgspec's own messages have no keys of
mappings, no units and no nearest names.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT, UNSET, Struct, UnsetType, ValidationError, convert
from msgspec.structs import fields

from fastplan.files.document import Document, Step
from fastplan.files.kinds import REFUSED, Read, text_problem, too_long, unknown
from fastplan.model.limits import MOST_TEXT
from fastplan.model.units import shown

T = TypeVar("T", bound=Struct)
Steps = tuple[Step, ...]

# msgspec can't quote a string with a lone surrogate in its error.
_REFUSALS = (ValidationError, UnicodeEncodeError)


class Mismatch(ValueError):
    """A value that does not match a struct.

    Attributes:
        steps: Keys and indices from the value to the error.
        problem: The error there.
        line_of: The steps to the part of the file to show: an unknown field, or the mapping that
            lacks a field.
    """

    def __init__(self, steps: Steps, problem: str, line_of: Steps | None = None) -> None:
        super().__init__(problem)
        self.steps = steps
        self.problem = problem
        self.line_of = steps if line_of is None else line_of


def decode(document: Document, kind: type[T], steps: Steps = ()) -> T:
    """Decodes a document, or a part of it.

    Args:
        document: The document.
        kind: The struct.
        steps: Keys and indices to the part.

    Raises:
        SpecError: A field is unknown, missing or invalid. The message has the place, the value and
            what is allowed.
    """
    try:
        return decode_value(document.at(steps), kind)
    except Mismatch as error:
        own, line_of = (*steps, *error.steps), (*steps, *error.line_of)
        raise document.error(own, error.problem, line_of=line_of) from error


def decode_value(value: Any, kind: type[T]) -> T:
    """Decodes plain data.

    Raises:
        Mismatch: The data does not match the struct.
    """
    try:
        return convert(_prepared(kind, value), kind)
    except _REFUSALS as error:
        found = _problem(kind, value, ())
        raise (Mismatch((), str(error)) if found is None else found) from error


class _Field(NamedTuple):
    """A field of a struct, and how to read it from a file."""

    kind: Any
    read: Read | None  # None if it needs no preparation
    is_required: bool
    takes_null: bool  # for its default


@cache
def _fields_of(kind: type[Struct]) -> dict[str, _Field]:
    declared = _annotations(kind)
    defaults = kind.__struct_defaults__
    missing = (NODEFAULT,) * (len(declared) - len(defaults))
    found = {}
    for name, own, default in zip(
        kind.__struct_encode_fields__, kind.__struct_fields__, (*missing, *defaults), strict=True
    ):
        is_required = default is NODEFAULT
        takes_null = not is_required and default is not UNSET
        found[name] = _Field(declared[own], _reader(declared[own]), is_required, takes_null)
    return found


def _annotations(kind: type[Struct]) -> dict[str, Any]:
    """Returns the types of a struct's fields. msgspec's `fields` would evaluate them slowly."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found |= vars(each).get("__annotations__", {})
    own = {name: found.get(name, "") for name in kind.__struct_fields__}
    if any(isinstance(each, str) for each in own.values()):
        return {field.name: field.type for field in fields(kind)}
    return own


def _prepared(kind: type[Struct], value: Any) -> Any:
    """Returns the value with all abbreviations expanded."""
    if type(value) is not dict:
        return REFUSED
    known = _fields_of(kind)
    found = {}
    for name, each in value.items():
        field = known.get(name)
        if field is None:
            return REFUSED
        if each is not None:
            found[name] = each if field.read is None else field.read(each)
        elif not field.takes_null:
            found[name] = None
    return found


def _reader(kind: Any) -> Read | None:
    """Returns a function that prepares values of a type for msgspec."""
    kind, meta = _unwrapped(kind)
    if "read" in meta:
        read: Read = meta["read"]
        return read
    if _is_struct(kind):
        return partial(_prepared, kind)
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is dict:
        names = _unwrapped(arguments[0])[1].get("choices")
        return partial(_read_values, names, _reader(arguments[1]))
    if origin is not tuple:
        return None
    item = _reader(arguments[0])
    if arguments[1:] == (...,) and not _is_struct(_unwrapped(arguments[0])[0]):
        return partial(_read_one_or_more, item)
    return partial(_read_items, item)


def _read_values(names: tuple[str, ...] | None, read: Read | None, value: Any) -> Any:
    if type(value) is not dict or (names is not None and not value.keys() <= {*names}):
        return REFUSED
    return value if read is None else {name: read(each) for name, each in value.items()}


def _read_items(read: Read | None, value: Any) -> Any:
    if read is None or type(value) is not list:
        return value
    return [read(each) for each in value]


def _read_one_or_more(read: Read | None, value: Any) -> Any:
    return _read_items(read, value if type(value) is list else [value])


def _unwrapped(kind: Any) -> tuple[Any, dict[str, Any]]:
    """Returns a type without None and annotations, and the content of the annotations."""
    meta: dict[str, Any] = {}
    while True:
        origin = get_origin(kind)
        if origin is Annotated:
            kind, *notes = get_args(kind)
            for note in notes:
                meta |= note.extra or {}
        elif origin in (Union, UnionType):
            kind = next(each for each in get_args(kind) if each not in (type(None), UnsetType))
        else:
            return kind, meta


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


# Explaining errors


def _problem(kind: Any, value: Any, steps: Steps) -> Mismatch | None:
    """Returns the first error of a value that msgspec rejects.

    It follows only rejected parts, so an error in a large file takes no longer than reading it.
    """
    plain, meta = _unwrapped(kind)
    if value is None:
        is_empty = not steps and _is_struct(plain)
        return Mismatch(steps, "is empty" if is_empty else "must not be null")
    if _is_struct(plain):
        return _struct_problem(plain, value, steps)
    origin, arguments = get_origin(plain), get_args(plain)
    if origin is dict:
        return _mapping_problem(arguments[0], arguments[1], value, steps)
    if origin is tuple:
        return _tuple_problem(plain, meta, value, steps)
    if origin is list:
        if not isinstance(value, list):
            return Mismatch(steps, f"must be a list, not {shown(value)}")
        return _item_problem(arguments[0], enumerate(value), steps)
    if "problem" in meta:
        return Mismatch(steps, meta["problem"](value))
    if plain is bool:
        return Mismatch(steps, f"must be true or false, not {shown(value)}")
    return Mismatch(steps, text_problem(value))


def _struct_problem(kind: type[Struct], value: Any, steps: Steps) -> Mismatch | None:
    if not isinstance(value, dict):
        return Mismatch(steps, f"must be a mapping, not {shown(value)}")
    known = _fields_of(kind)
    for name in value:
        if name not in known:
            return Mismatch(steps, unknown(name, known), (*steps, name))
    for name, field in known.items():
        if name not in value:
            if field.is_required:
                return Mismatch((*steps, name), "is missing", steps)
        elif (value[name] is not None or not field.takes_null) and _is_refused(
            field.read, field.kind, value[name]
        ):
            return _problem(field.kind, value[name], (*steps, name))
    return None


def _mapping_problem(names: Any, kind: Any, value: Any, steps: Steps) -> Mismatch | None:
    if not isinstance(value, dict):
        return Mismatch(steps, f"must be a mapping, not {shown(value)}")
    known = _unwrapped(names)[1].get("choices")
    for name in value:
        if known is not None and name not in known:
            return Mismatch(steps, unknown(name, known), (*steps, name))
        if len(name) > MOST_TEXT:
            return Mismatch(steps, too_long(name))
    return _item_problem(kind, value.items(), steps)


def _tuple_problem(kind: Any, meta: Any, value: Any, steps: Steps) -> Mismatch | None:
    item, *others = get_args(kind)
    is_open = others == [...]
    if not isinstance(value, list) and is_open:
        if _is_struct(_unwrapped(item)[0]):
            return Mismatch(steps, f"must be a list of mappings, not {shown(value)}")
        return _problem(item, value, steps)
    if isinstance(value, list):
        found = _item_problem(item, enumerate(value), steps)
        if found is not None:
            return found
    return None if is_open else Mismatch(steps, meta["problem"](value))


def _item_problem(kind: Any, items: Iterable[tuple[Step, Any]], steps: Steps) -> Mismatch | None:
    read = _reader(kind)
    for step, item in items:
        if _is_refused(read, kind, item):
            return _problem(kind, item, (*steps, step))
    return None


def _is_refused(read: Read | None, kind: Any, value: Any) -> bool:
    try:
        convert(value if read is None or value is None else read(value), kind)
    except _REFUSALS:
        return True
    return False
