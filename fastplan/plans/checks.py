"""Values of a plan file, checked: an error says where in the file, and what should be there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from fastplan.files.codec import Mismatch, decode_value
from fastplan.files.document import below as below
from fastplan.model.units import LARGEST as LARGEST

T = TypeVar("T", bound=Struct)


class PlanFileError(ValueError):
    """A file that is no plan file, or a plan that a file can't hold.

    `path` is the file, `place` where in its JSON, `problem` what is wrong there.
    """

    def __init__(self, path: str, place: str, problem: str) -> None:
        super().__init__(f"{path}: {place}: {problem}" if place else f"{path}: {problem}")
        self.path = path
        self.place = place
        self.problem = problem


class BadValue(ValueError):
    """A value that a plan file can't hold or should not have, with its place in the file."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def inside(self, place: str) -> BadValue:
        """The same of an object at a place, where `place` was told from the object on."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return BadValue(f"{place}{joint}{self.place}", self.problem)


def refuse(place: str, expected: str, value: Any) -> NoReturn:
    """Raises BadValue: what was expected, and what is there."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    raise BadValue(place, f"must be {expected}, not {text}")


def as_struct(value: Any, kind: type[T]) -> T:
    """The struct of an object. Raises BadValue, whose place begins at the object."""
    try:
        return decode_value(value, kind)
    except Mismatch as error:
        steps = max(error.steps, error.line_of, key=len)  # names a field that is unknown, too
        raise BadValue(reduce(below, steps, ""), error.problem) from error


def as_text(value: Any, place: str) -> str:
    if type(value) is not str:
        refuse(place, "a text", value)
    return value


def as_whole(value: Any, place: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= LARGEST:
        refuse(place, f"a whole number from {least} to 2^63-1", value)
    return value


def as_wholes(value: Any, place: str) -> list[int]:
    return [as_whole(item, f"{place}[{i}]") for i, item in enumerate(as_list(value, place))]


def as_object(value: Any, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        refuse(place, "an object", value)
    return value


def as_list(value: Any, place: str) -> list[Any]:
    if type(value) is not list:
        refuse(place, "a list", value)
    return value


def check_fields(
    fields: Mapping[str, Any], known: Iterable[str], place: str, required: Iterable[str] = ()
) -> None:
    """Raises BadValue for a field that means nothing here, and for a required one not there."""
    for name in fields:
        if name not in known:
            raise BadValue(below(place, name), f"is unknown; known are {', '.join(known)}")
    for name in required:
        if name not in fields:
            raise BadValue(below(place, name), "is missing")
