"""Reads a mapping of a spec field by field: each is checked, and errors say where and what else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import EllipsisType
from typing import Any, TypeVar

from fastplan.spec.document import Document
from fastplan.spec.limits import FASTEST, MOST, MOST_NUMBER, MOST_TEXT, SLOWEST
from fastplan.spec.nodes import Node, SpecError, below
from fastplan.spec.units import LARGEST, parse_bandwidth, parse_count, parse_size, shown

T = TypeVar("T")
D = TypeVar("D")

# YAML 1.1 takes 1e6 for a text, and JSON has no word for the others.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|-?inf", re.ASCII)
_MOST_LISTED = 40


class Fields:
    """The fields of one mapping. Every method raises SpecError for what is not as it should be.

    A field without a default is required. Null takes the default, so it can stand for a field
    that is left out; `in` tells them apart.
    """

    def __init__(self, document: Document, node: Node, place: str, *, known: Iterable[str]) -> None:
        self.document = document
        self.place = place
        self._mapping = node
        if not isinstance(node.value, dict):
            is_empty = not place and node.value is None
            problem = "is empty" if is_empty else f"must be a mapping, not {shown(node.value)}"
            raise self._error(place, node, problem)
        self._nodes = node.value
        names = tuple(known)
        for name, entry in self._nodes.items():
            if name not in names:
                line = document.line_of(entry, below(place, name))
                raise SpecError(document.file, line, place, _unknown(name, names))

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node(self, name: str) -> Node | None:
        """What stands in the field; None if it is left out or null."""
        found = self._nodes.get(name)
        return None if found is None or found.value is None else found

    def error(self, name: str | None, problem: str) -> SpecError:
        """For a caller's own checks of a field, or of the whole mapping."""
        if name is None:
            return self._error(self.place, self._mapping, problem)
        place = below(self.place, name)
        if name in self._nodes:
            return self._error(place, self._nodes[name], problem)
        line = self.document.line_of(self._mapping, self.place)
        return SpecError(self.document.file, line, place, problem)

    def text(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        choices: Iterable[str] | None = None,
    ) -> str | D:
        return self._one(name, default, _choosing(choices))

    def texts(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        choices: Iterable[str] | None = None,
    ) -> tuple[str, ...] | D:
        """A list of texts; a single one counts as a list of one."""
        return self._many(name, default, _choosing(choices))

    def whole(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> int | D:
        """A whole number, also as `40M` or `1e6`; at most what `limits` says."""
        return self._one(name, default, _counting(name, least, most))

    def wholes(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> tuple[int, ...] | D:
        """A list of whole numbers; a single one counts as a list of one."""
        return self._many(name, default, _counting(name, least, most))

    def number(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        least: float | None = None,
        most: float | None = None,
        allow_nonfinite: bool = False,
    ) -> float | D:
        """A number, at most what `limits` says; infinities and NaN only with `allow_nonfinite`, in
        JSON as texts."""
        return self._one(name, default, _measuring(name, least, most, allow_nonfinite))

    def numbers(
        self,
        name: str,
        default: D | EllipsisType = ...,
        *,
        least: float | None = None,
        most: float | None = None,
        allow_nonfinite: bool = False,
    ) -> tuple[float, ...] | D:
        """A list of numbers; a single one counts as a list of one."""
        return self._many(name, default, _measuring(name, least, most, allow_nonfinite))

    def flag(self, name: str, default: D | EllipsisType = ...) -> bool | D:
        return self._one(name, default, _flag)

    def size(self, name: str, default: D | EllipsisType = ...) -> int | D:
        """Bytes of a size such as `80GiB`, or plain bytes."""
        return self._one(name, default, parse_size)

    def sizes(self, name: str, default: D | EllipsisType = ...) -> tuple[int, ...] | D:
        """A list of sizes; a single one counts as a list of one."""
        return self._many(name, default, parse_size)

    def bandwidth(self, name: str, default: D | EllipsisType = ...) -> float | D:
        """Bytes per millisecond of a bandwidth such as `600GiB/s`, or plain ones."""
        return self._one(name, default, _bandwidth)

    def nested(self, name: str, known: Iterable[str]) -> Fields | None:
        """The fields of a mapping in this one; None if it is left out."""
        node = self.node(name)
        if node is None:
            return None
        return Fields(self.document, node, below(self.place, name), known=known)

    def each(self, name: str, known: Iterable[str]) -> list[Fields]:
        """The fields of each mapping in a list; none if it is left out."""
        node = self.node(name)
        if node is None:
            return []
        if not isinstance(node.value, list):
            raise self.error(name, f"must be a list of mappings, not {shown(node.value)}")
        names, place = tuple(known), below(self.place, name)
        return [
            Fields(self.document, item, below(place, i), known=names)
            for i, item in enumerate(node.value)
        ]

    def mapping(self, name: str) -> list[tuple[str, Node]]:
        """The entries of a mapping whose keys are free; none if it is left out."""
        node = self.node(name)
        if node is None:
            return []
        if not isinstance(node.value, dict):
            raise self.error(name, f"must be a mapping, not {shown(node.value)}")
        for key in node.value:
            self.check_text(name, key)
        return [*node.value.items()]

    def check_text(self, name: str, text: str) -> None:
        """Raises SpecError at the field for a text that is too long, wherever it stands below."""
        try:
            _check_length(text)
        except ValueError as error:
            raise self.error(name, str(error)) from error

    def _one(self, name: str, default: D | EllipsisType, read: Callable[[Any], T]) -> T | D:
        node = self.node(name)
        if node is None:
            return self._default(name, default)
        try:
            return read(node.value)
        except ValueError as error:
            raise self.error(name, str(error)) from error

    def _many(
        self, name: str, default: D | EllipsisType, read: Callable[[Any], T]
    ) -> tuple[T, ...] | D:
        node = self.node(name)
        if node is None:
            return self._default(name, default)
        if not isinstance(node.value, list):
            return (self._one(name, ..., read),)
        found = []
        for i, item in enumerate(node.value):
            try:
                found.append(read(item.value))
            except ValueError as error:
                place = below(below(self.place, name), i)
                raise self._error(place, item, str(error)) from error
        return tuple(found)

    def _default(self, name: str, default: D | EllipsisType) -> D:
        if isinstance(default, EllipsisType):
            raise self.error(name, "must not be null" if name in self else "is missing")
        return default

    def _error(self, place: str, node: Node, problem: str) -> SpecError:
        return SpecError(self.document.file, self.document.line_of(node, place), place, problem)


def _choosing(choices: Iterable[str] | None) -> Callable[[Any], str]:
    return partial(_text, choices=None if choices is None else tuple(choices))


def _unknown(name: str, names: tuple[str, ...]) -> str:
    quoted = f"`{name}`" if name.isprintable() and len(name) <= 60 else shown(name)
    nearest = _nearest(name, names)
    advice = f"did you mean `{nearest}`?" if nearest else _listed("known are", names)
    return f"unknown field {quoted}; {advice}"


def _text(value: Any, choices: tuple[str, ...] | None) -> str:
    if choices is not None and value not in choices:
        problem = f"must be {_listed('one of', choices)}, not {shown(value)}"
        nearest = _nearest(value, choices) if isinstance(value, str) else None
        raise ValueError(f"{problem}; did you mean `{nearest}`?" if nearest else problem)
    if not isinstance(value, str):
        advice = "; put it in quotes" if isinstance(value, (bool, int, float)) else ""
        raise ValueError(f"must be a text, not {shown(value)}{advice}")
    _check_length(value)
    return value


def _check_length(text: str) -> None:
    if len(text) > MOST_TEXT:
        raise ValueError(f"must be at most {MOST_TEXT} characters, not {shown(text)}")


def _counting(name: str, least: int, most: int | None) -> Callable[[Any], int]:
    return partial(_whole, least=least, most=int(MOST.get(name, LARGEST)) if most is None else most)


def _measuring(
    name: str, least: float | None, most: float | None, allow_nonfinite: bool
) -> Callable[[Any], float]:
    most = MOST.get(name) if most is None else most
    return partial(_number, least=least, most=most, allow_nonfinite=allow_nonfinite)


def _whole(value: Any, least: int, most: int) -> int:
    number = None
    with suppress(ValueError):
        number = parse_count(value)
    if number is not None and least <= number <= most:
        return number
    open_ended = most == LARGEST and (number is None or number < least)
    bounds = f"of at least {least}" if open_ended else f"from {least} to {most}"
    raise ValueError(f"must be a whole number {bounds}, not {shown(value)}")


def _number(value: Any, least: float | None, most: float | None, allow_nonfinite: bool) -> float:
    number = None
    if isinstance(value, str):
        number = float(value) if _NUMBER.fullmatch(value) else None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    if number is None or not (allow_nonfinite or math.isfinite(number)):
        raise ValueError(f"must be a number, not {shown(value)}")
    if math.isfinite(number):
        least = -MOST_NUMBER if least is None else least
        most = MOST_NUMBER if most is None else most
    if least is not None and number < least:
        raise ValueError(f"must be at least {least}, not {shown(value)}")
    if most is not None and number > most:
        raise ValueError(f"must be at most {most}, not {shown(value)}")
    return number


def _bandwidth(value: Any) -> float:
    found = parse_bandwidth(value)
    if not SLOWEST <= found <= FASTEST:
        bounds = f"from {SLOWEST} to {FASTEST} bytes per millisecond"
        raise ValueError(f"must be {bounds}, not {shown(value)}")
    return found


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {shown(value)}")
    return value


def _listed(introduction: str, names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"{introduction} {', '.join(names[:_MOST_LISTED])}{more}"


def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    """The one that may have been meant, whatever its case and dashes."""
    from difflib import get_close_matches  # only errors need it

    folded = {_fold(each): each for each in names}
    found = get_close_matches(_fold(name[:80]), folded, n=1)
    return folded[found[0]] if found else None


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
