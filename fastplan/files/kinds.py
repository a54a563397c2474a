"""Types of fields in files: limits, units, accepted spellings and error messages.

Each function returns the metadata of an annotation, as in `Annotated[int, whole(1)]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from fastplan.model.limits import FASTEST, MOST_NUMBER, MOST_TEXT, SLOWEST
from fastplan.model.units import LARGEST, parse_bandwidth, parse_count, parse_size, shown

Read = Callable[[Any], Any]

# YAML 1.1 reads 1e6 as a string, and JSON does not have the others.
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|-?inf"
_MOST_LISTED = 40
REFUSED = object()  # has no type that msgspec accepts

Text = Annotated[str, Meta(max_length=MOST_TEXT)]


def whole(least: int = 0, most: int | float = LARGEST) -> Meta:
    """A whole number, also as `40M` or `1e6`."""
    most = int(most)

    def problem(value: Any) -> str:
        number = _whole(value)
        is_open = most == LARGEST and (type(number) is not int or number < least)
        bounds = f"of at least {least}" if is_open else f"from {least} to {most}"
        return f"must be a whole number {bounds}, not {shown(value)}"

    return Meta(
        ge=least,
        le=most,
        extra={"read": _whole, "problem": problem},
        extra_json_schema={"description": "an integer, or a string", "examples": ["40M", "10k"]},
    )


def plain_whole() -> Meta:
    """A whole number of 64 bits, without abbreviations."""
    expected = "must be a whole number from 0 to 2^63-1"
    problem = {"problem": lambda value: f"{expected}, not {shown(value)}"}
    return Meta(ge=0, le=LARGEST, extra=problem)


def size() -> Meta:
    """Bytes, also as `80GiB`."""
    return Meta(
        ge=0,
        le=LARGEST,
        extra={"read": _size, "problem": partial(_refusal, parse_size)},
        extra_json_schema={"description": "bytes, or a string", "examples": ["80GiB", "64GB"]},
    )


def bandwidth() -> Meta:
    """Bytes per millisecond, also as `600GiB/s`."""
    return Meta(
        ge=SLOWEST,
        le=FASTEST,
        extra={"read": partial(_parsed, parse_bandwidth), "problem": _bandwidth_problem},
        extra_json_schema={
            "description": "bytes per millisecond, or a string",
            "examples": ["900GB/s", "50Gbit/s"],
        },
    )


def number(least: float = -MOST_NUMBER, most: float = MOST_NUMBER) -> Meta:
    """A finite number."""
    return Meta(
        ge=least, le=most, extra={"read": _number, "problem": partial(_number_problem, least, most)}
    )


def any_number() -> Meta:
    """A number of usual size, an infinity or NaN; in JSON the latter two are strings."""

    def read(value: Any) -> Any:
        found = _number(value)
        is_huge = isinstance(found, float) and math.isfinite(found) and abs(found) > MOST_NUMBER
        return REFUSED if is_huge else found

    return Meta(
        extra={"read": read, "problem": partial(_number_problem, -MOST_NUMBER, MOST_NUMBER)}
    )


def choice(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> Meta:
    """One of several strings, also by another name for it."""
    known = tuple(names)
    others = {name: means for name, means in (aliases or {}).items() if means in known}

    def read(value: Any) -> Any:
        named = others.get(value, value) if isinstance(value, str) else value
        return named if named in known else REFUSED

    return Meta(
        extra={
            "read": read,
            "problem": lambda value: choice_problem(value, known),
            "choices": known,
        },
        extra_json_schema={"enum": [*known, *others]},
    )


def with_problem(problem: str) -> Meta:
    """Sets the error message for a list with the wrong number of entries."""
    return Meta(extra={"problem": lambda value: problem})


def unknown(name: str, names: Iterable[str]) -> str:
    """Returns the message for an unknown field."""
    known = tuple(names)
    quoted = f"`{name}`" if name.isprintable() and len(name) <= 60 else shown(name)
    nearest = _nearest(name, known)
    advice = f"did you mean `{nearest}`?" if nearest else _listed("known are", known)
    return f"unknown field {quoted}; {advice}"


def too_long(text: str) -> str:
    """Returns the message for a string over the limit."""
    return f"must be at most {MOST_TEXT} characters, not {shown(text)}"


def choice_problem(value: Any, choices: Iterable[str]) -> str:
    """Returns the message for a value that is not one of the choices."""
    known = tuple(choices)
    problem = f"must be {_listed('one of', known)}, not {shown(value)}"
    nearest = _nearest(value, known) if isinstance(value, str) else None
    return f"{problem}; did you mean `{nearest}`?" if nearest else problem


def text_problem(value: Any) -> str:
    """Returns the message for a value that is not a valid string."""
    if isinstance(value, str):
        return too_long(value)
    advice = "; put it in quotes" if isinstance(value, (bool, int, float)) else ""
    return f"must be a string, not {shown(value)}{advice}"


def _number_problem(least: float, most: float, value: Any) -> str:
    found = _number(value)
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not math.isfinite(found):
        return f"must be a number, not {shown(value)}"
    if found < least:
        return f"must be at least {least}, not {shown(value)}"
    return f"must be at most {most}, not {shown(value)}"


def _bandwidth_problem(value: Any) -> str:
    if _parsed(parse_bandwidth, value) is REFUSED:
        return _refusal(parse_bandwidth, value)
    return f"must be from {SLOWEST} to {FASTEST} bytes per millisecond, not {shown(value)}"


def _refusal(parse: Read, value: Any) -> str:
    try:
        parse(value)
    except (ValueError, TypeError) as error:
        return str(error)
    raise AssertionError(f"{value!r} can be parsed")


def _listed(introduction: str, names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"{introduction} {', '.join(names[:_MOST_LISTED])}{more}"


def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    """Returns the nearest name, ignoring case and dashes."""
    from difflib import get_close_matches  # only errors need it

    folded = {_fold(each): each for each in names}
    found = get_close_matches(_fold(name[:80]), folded, n=1)
    return folded[found[0]] if found else None


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def _whole(value: Any) -> Any:
    return value if type(value) is int else _parsed(parse_count, value)


def _size(value: Any) -> Any:
    return value if type(value) is int else _parsed(parse_size, value)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and re.fullmatch(_NUMBER, value) else value


def _parsed(parse: Read, value: Any) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError):
        return REFUSED
