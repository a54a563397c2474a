"""What a job tells the recorder, as a line can hold it: plain, short, and never an error.

Values come from the job's own code. They may hold themselves, be endless, or raise when they are
looked at: only KeyboardInterrupt and the like pass.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from numbers import Integral, Real
from operator import index
from typing import Any

from fastplan.report.names import visible

CUT = "…"  # stands where something is left out
LONGEST_TEXT = 2000  # characters
_ROOM = 20_000  # characters of all that is told about a phase
_VALUE = 8  # characters that a value counts for, at least
_DEEPEST = 16
_MOST_BITS = 64
_FAR = 1 << 63
_SERIES = (list, tuple, set, frozenset)

logger = logging.getLogger(__name__)


def warn(text: str, *details: Any) -> None:
    """Logs a warning. A log that can't be written is no reason to stop a job."""
    with suppress(Exception):
        told = [visible(shown(detail)) for detail in details]
        logger.warning(f"fastplan.ett: {text}", *told)


def shown(value: Any, most: int = LONGEST_TEXT) -> str:
    """The value as text of at most so many characters."""
    try:
        if issubclass(type(value), (dict, *_SERIES)):
            value = plain(value)
        elif issubclass(type(value), bytes | bytearray):
            value = value[:most]
        text = str.__str__(value if issubclass(type(value), str) else str(value))
    except Exception:
        text = _unshown(value)
    return text if len(text) <= most else text[: most - len(CUT)] + CUT


def whole(value: Any) -> int:
    """The number of a step or rank. Raises ValueError for what is none, or has over 64 bits."""
    try:
        number = int(index(value))
    except Exception as error:
        raise ValueError(f"{shown(value, 100)} is not a whole number") from error
    if abs(number) >= _FAR:
        raise ValueError("a number of a step or rank has more than 64 bits")
    return number


def plain(value: Any) -> Any:
    """The value made of what JSON has. What is too long or too deep is cut off and marked."""
    return _Walk().plain(value, 0)


def _unshown(value: Any) -> str:
    return f"({object.__repr__(value)} can't be shown)"


class _Walk:
    """One value, and the room that is left for it."""

    def __init__(self) -> None:
        self._room = _ROOM

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self._room -= _VALUE
        try:
            if value is None or kind is bool:
                return value
            if issubclass(kind, dict):
                return CUT if depth == _DEEPEST else self._object(value, depth + 1)
            if issubclass(kind, _SERIES):
                return CUT if depth == _DEEPEST else self._list(value, depth + 1)
            if issubclass(kind, Integral):
                number = int(value)
                bits = number.bit_length()
                return number if bits <= _MOST_BITS else f"(a number of {bits} bits)"
            if issubclass(kind, Real):
                share = float(value)
                return share if math.isfinite(share) else str(share)
        except Exception:
            return _unshown(value)
        return self._text(value)

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self._room <= 0:
                found[CUT] = CUT
                break
            name = self._text(key)
            found[name] = self.plain(item, depth)
        return found

    def _list(self, value: Any, depth: int) -> list[Any]:
        found: list[Any] = []
        for item in value:
            if self._room <= 0:
                found.append(CUT)
                break
            found.append(self.plain(item, depth))
        return found

    def _text(self, value: Any) -> str:
        text = shown(value, max(1, min(LONGEST_TEXT, self._room)))
        self._room -= len(text)
        return text
