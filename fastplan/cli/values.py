"""Parses values of the command line: numbers, times, sizes, fractions.

Each function returns the value of a text, or raises a ValueError that shows the right form. READERS
has the functions by the metavar of the option.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)

_MOST_SCALE = 1 << 24
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_SECONDS = {
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 7 * 86400.0,
}
_TIME = re.compile(rf"({_NUMBER})\s*(ms|min|s|m|h|d|w)", re.ASCII)


def whole(text: str) -> int:
    """Parses a whole number, also a negative one: the command checks the range."""
    return _checked(int, text, "a whole number")


def count(text: str) -> int:
    """A whole number of at least 0."""
    return _checked(int, text, "a whole number of at least 0", 0)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _checked(int, text, "a whole number of at least 1", 1)


def replica_count(text: str) -> int | str:
    """A whole number of at least 1, or `auto`."""
    return text if text == "auto" else _checked(int, text, "a whole number from 1, or auto", 1)


def number(text: str) -> float:
    """Parses any number."""
    return _checked(float, text, "a number")


def rating(text: str) -> float:
    """Parses a positive number of milliseconds."""
    return _checked(float, text, "a positive number of milliseconds", math.ulp(0.0))


def _checked(
    read: Callable[[str], _Number], text: str, must: str, least: float | None = None
) -> _Number:
    """Parses a number that is at least `least`, if given."""
    try:
        value = read(text)
        if least is None or least <= value < math.inf:
            return value
    except ValueError:
        pass
    raise ValueError(f"must be {must}, not {text!r}")


def seconds(text: str) -> float:
    """Seconds of `90`, `90s`, `250ms`, `15m`, `1h30m`, `3d` or `2w`."""
    if re.fullmatch(_NUMBER, text.strip(), re.ASCII):
        return float(text)
    return age(text)


def age(text: str) -> float:
    """Parses a time with a unit: without one, a mistake could delete too much."""
    words = text.strip().lower()
    parts = _TIME.findall(words)
    if not parts or _TIME.sub("", words).strip():
        raise ValueError(f"must be a time such as 30d, 12h, 1h30m or 90s, not {text!r}")
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)


def part(text: str) -> float:
    """Parses a fraction: `5%` and `0.05` are the same, to the bit."""
    words = text.strip()
    number = words.removesuffix("%").rstrip()
    in_percent = words.endswith("%")
    try:
        value = float(f"{number}e-2" if in_percent else number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"must be a part such as 5% or 0.05, not {text!r}")
    if value > 1 and not in_percent:
        raise ValueError(f"{text!r} is more than the whole: write {number}% or {value / 100:g}")
    return value


def size(text: str) -> int:
    """Bytes of `1GiB`."""
    from fastplan.model.units import parse_size

    return parse_size(text)


def cache_place(text: str) -> str:
    """Parses the place of a cache.

    An empty text comes from an unset variable, and must not select the default cache.
    """
    if not text.strip():
        raise ValueError(
            "is empty; give a directory or URL, or omit the option for the default cache"
        )
    return text


def utf8_name(text: str) -> str:
    """Parses a name that is written into a page or a database, which can hold only UTF-8."""
    from fastplan.model.units import is_broken

    if is_broken(text):
        raise ValueError(f"must be a name in UTF-8, not {text!r}; rename it or choose another")
    return text


def pin(text: str) -> tuple[str, tuple[int, ...]]:
    """A table and the ranks of its shards: `users=3` or `users=3,4`."""
    table, _, ranks = text.rpartition("=")
    try:
        if not table:
            raise ValueError
        return table, tuple(int(rank) for rank in ranks.split(","))
    except ValueError:
        raise ValueError(f"{text!r} must be TABLE=RANK, such as users=3") from None


def names(text: str) -> tuple[str, ...]:
    """Parses names separated by commas."""
    return tuple(text.split(","))


def shard(text: str) -> tuple[int, int]:
    """Parses a part of a sweep and the number of parts: `0/16`."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ValueError(f"{text!r} must be I/N with I from 0 to N-1, such as 0/16")
    return int(part), int(parts)


def price(text: str) -> tuple[str, float]:
    """Parses a SKU and its price per rank and hour: `h100=2.5`."""
    name, _, cost = text.rpartition("=")
    try:
        if name:
            return name, _checked(float, cost, "", 0)
    except ValueError:
        pass
    raise ValueError(f"{text!r} must be SKU=PRICE, such as h100=2.5")


def device_sku(text: str) -> tuple[str, str]:
    """Parses the name of a device and its SKU: `H100 NVL=h100`."""
    device, _, sku = text.rpartition("=")
    if not device or not sku:
        raise ValueError(f"{text!r} must be GPU=SKU, such as 'H100 NVL=h100'")
    return device, sku


def times(text: str) -> float:
    """Parses a ratio of at least 1."""
    return _checked(float, text, "a number of at least 1", 1)


def scale(text: str) -> int | None:
    """Parses the divisor of tables' rows; None for `auto`."""
    if text == "auto":
        return None
    value = _checked(int, text, "`auto`, or a whole number of at least 1", 1)
    if value > _MOST_SCALE:
        raise ValueError(f"must be at most {_MOST_SCALE}, not {value}")
    return value


def link_rate(text: str) -> int:
    """Parses bits per second of `500Mbit`."""
    from fastplan.measure.hosts import parse_rate

    return parse_rate(text)


READERS: dict[str, Callable[[str], Any]] = {
    "A,B": names,
    "AGE": age,
    "GPU=SKU": device_sku,
    "I/N": shard,
    "N": whole,
    "PART": part,
    "R": times,
    "RATE": link_rate,
    "RATING": rating,
    "S": number,
    "SECONDS": number,
    "SIZE": size,
    "SKU=X": price,
    "TABLE=RANK": pin,
    "TIME": seconds,
}
