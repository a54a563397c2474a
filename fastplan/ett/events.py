"""The events of a job in memory: phases that are open, sums of short ones, and values as JSON.

Values come from the code of the job. They may contain themselves, be endless, or raise when they
are read. Nothing here raises because of them; only KeyboardInterrupt and the like pass.
"""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Integral, Real
from operator import index
from typing import TYPE_CHECKING, Any

from fastplan.model.log import escaped_logger
from fastplan.report.terminal import escape_name

if TYPE_CHECKING:
    from fastplan.ett.recorder import Recorder

_CUT = "…"  # replaces what is cut off
_LONGEST_TEXT = 2000  # characters
_MOST_CHARACTERS = 20_000  # of all details of a phase
_VALUE_SIZE = 8  # characters that a value counts for, at least
_DEEPEST = 16
_MOST_BITS = 64
_INT64_LIMIT = 1 << 63
_SERIES = (list, tuple, set, frozenset)
_MOST_NAMES = 1000  # of short phases in a line
_OTHER_NAMES = "(other names)"

Sums = dict[str, list[int]]  # short phases by name: their count, and their own nanoseconds

logger = escaped_logger(__name__)


def warn(text: str, *details: Any) -> None:
    """Logs a warning, and ignores a log that can't be written."""
    with suppress(Exception):
        logger.warning(f"fastplan.ett: {text}", *(escape_name(to_text(d)) for d in details))


def to_text(value: Any, most: int = _LONGEST_TEXT) -> str:
    """Returns the value as text of at most `most` characters."""
    try:
        if issubclass(type(value), (dict, *_SERIES)):
            value = to_json(value)
        elif issubclass(type(value), bytes | bytearray):
            value = value[:most]
        text = str.__str__(value if issubclass(type(value), str) else str(value))
    except Exception:
        text = _repr_failed(value)
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def to_int(value: Any) -> int:
    """Returns the number of a step or rank.

    Raises:
        ValueError: if the value is not a whole number, or has more than 64 bits.
    """
    try:
        number = int(index(value))
    except Exception as error:
        raise ValueError(f"{to_text(value, 100)} is not a whole number") from error
    if abs(number) >= _INT64_LIMIT:
        raise ValueError("the number of a step or rank has more than 64 bits")
    return number


def to_json(value: Any) -> Any:
    """Returns the value as JSON types. What is too long or too deep is cut off and marked."""
    return _Converter().convert(value, 0)


def _repr_failed(value: Any) -> str:
    return f"({object.__repr__(value)} can't be shown)"


class _Converter:
    """Converts one value, within a number of characters."""

    def __init__(self) -> None:
        self._left = _MOST_CHARACTERS

    def convert(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self._left -= _VALUE_SIZE
        try:
            if value is None or kind is bool:
                return value
            if issubclass(kind, dict):
                return _CUT if depth == _DEEPEST else self._object(value, depth + 1)
            if issubclass(kind, _SERIES):
                return _CUT if depth == _DEEPEST else self._list(value, depth + 1)
            if issubclass(kind, Integral):
                number = int(value)
                bits = number.bit_length()
                return number if bits <= _MOST_BITS else f"(a number of {bits} bits)"
            if issubclass(kind, Real):
                real = float(value)
                return real if math.isfinite(real) else str(real)
        except Exception:
            return _repr_failed(value)
        return self._text(value)

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self._left <= 0:
                found[_CUT] = _CUT
                break
            name = self._text(key)
            found[name] = self.convert(item, depth)
        return found

    def _list(self, value: Any, depth: int) -> list[Any]:
        found: list[Any] = []
        for item in value:
            if self._left <= 0:
                found.append(_CUT)
                break
            found.append(self.convert(item, depth))
        return found

    def _text(self, value: Any) -> str:
        text = to_text(value, max(1, min(_LONGEST_TEXT, self._left)))
        self._left -= len(text)
        return text


class Frame:
    """A phase while it is open."""

    __slots__ = ("announced", "begin", "inner", "more", "name", "recorder", "stack", "sums")

    recorder: Recorder | None
    stack: Stack
    begin: int
    inner: int  # nanoseconds in phases within this one
    sums: Sums | None  # short phases within this one
    announced: bool

    def __init__(self, name: str, more: dict[str, Any] | None = None) -> None:
        self.name = name
        self.more = more


class Stack(list[Frame]):
    """The open phases of a thread, and the sums of its short phases without an outer phase."""

    __slots__ = ("background", "late", "since", "sums")

    def __init__(self, background: bool) -> None:
        self.background = background
        self.sums: Sums = {}
        self.late: Sums = {}  # phases that began after the step at `since`
        self.since = 0

    def add(self, frame: Frame, took: int, since: int) -> None:
        """Adds a short phase; `since` is when the last step ended."""
        if frame.begin < since:
            add_to_sums(self.sums, frame, took)
        else:
            if self.since != since:
                self.catch_up(since)
            add_to_sums(self.late, frame, took)

    def catch_up(self, since: int) -> None:
        """Moves phases that began after a step into the next step's line, once that has ended."""
        if self.since != since:
            self.since = since
            if self.late:
                merge_sums(self.sums, self.late)
                self.late = {}


def add_to_sums(sums: Sums, frame: Frame, took: int) -> None:
    """Adds a short phase, and the shorter ones within it."""
    entry = sums.get(frame.name)
    if entry is None:
        entry = _entry(sums, frame.name)
    entry[0] += 1
    entry[1] += took - frame.inner
    if frame.sums is not None:
        merge_sums(sums, frame.sums)


def merge_sums(sums: Sums, more: Sums) -> None:
    """Adds sums to others, by name."""
    for name, (count, own) in more.items():
        entry = sums.get(name) or _entry(sums, name)
        entry[0] += count
        entry[1] += own


def _entry(sums: Sums, name: str) -> list[int]:
    """A new entry; with too many names, one entry for all others."""
    return sums.setdefault(name if len(sums) < _MOST_NAMES else _OTHER_NAMES, [0, 0])
