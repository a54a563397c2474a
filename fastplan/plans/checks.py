"""Checks values of a plan file. Errors name the place in the file and the expected value."""

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
    """A malformed plan file, or a plan that a file can't represent.

    Attributes:
        path: The file.
        place: The place in its JSON.
        problem: The error there.
    """

    def __init__(self, path: str, place: str, problem: str) -> None:
        super().__init__(f"{path}: {place}: {problem}" if place else f"{path}: {problem}")
        self.path = path
        self.place = place
        self.problem = problem


class BadValue(ValueError):
    """An invalid value in a plan file, with its place in the file."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def inside(self, place: str) -> BadValue:
        """Returns the same error with `place` in front of its place, which is relative to it."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return BadValue(f"{place}{joint}{self.place}", self.problem)


def refuse(place: str, expected: str, value: Any) -> NoReturn:
    """Raises BadValue with the expected and the actual value."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    raise BadValue(place, f"must be {expected}, not {text}")


def as_struct(value: Any, kind: type[T]) -> T:
    """Decodes an object.

    Raises:
        BadValue: The object does not match the struct. Its place is relative to the object.
    """
    try:
        return decode_value(value, kind)
    except Mismatch as error:
        steps = max(error.steps, error.line_of, key=len)  # includes the name of an unknown field
        raise BadValue(reduce(below, steps, ""), error.problem) from error


def as_text(value: Any, place: str) -> str:
    """Returns a string. Raises BadValue for any other value."""
    if type(value) is not str:
        refuse(place, "a string", value)
    return value


def as_whole(value: Any, place: str, least: int = 0) -> int:
    """Returns an integer of at least `least`. Raises BadValue for any other value."""
    if type(value) is not int or not least <= value <= LARGEST:
        refuse(place, f"a whole number from {least} to 2^63-1", value)
    return value


def as_wholes(value: Any, place: str) -> list[int]:
    """Returns a list of integers. Raises BadValue for any other value."""
    return [as_whole(item, f"{place}[{i}]") for i, item in enumerate(as_list(value, place))]


def as_object(value: Any, place: str) -> dict[str, Any]:
    """Returns a JSON object. Raises BadValue for any other value."""
    if type(value) is not dict:
        refuse(place, "an object", value)
    return value


def as_list(value: Any, place: str) -> list[Any]:
    """Returns a list. Raises BadValue for any other value."""
    if type(value) is not list:
        refuse(place, "a list", value)
    return value


def check_fields(
    fields: Mapping[str, Any], known: Iterable[str], place: str, required: Iterable[str] = ()
) -> None:
    """Raises BadValue for unknown and for missing fields."""
    for name in fields:
        if name not in known:
            raise BadValue(below(place, name), f"is unknown; known are {', '.join(known)}")
    for name in required:
        if name not in fields:
            raise BadValue(below(place, name), "is missing")
