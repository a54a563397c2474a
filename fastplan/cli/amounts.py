"""Times and parts of a whole, as people write them on a command line."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError

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


def seconds(text: str) -> float:
    """Seconds of `90`, `90s`, `250ms`, `15m`, `1h30m`, `3d` or `2w`."""
    if re.fullmatch(_NUMBER, text.strip(), re.ASCII):
        return float(text)
    return age(text)


def age(text: str) -> float:
    """The same, but always with a unit: a limit in the wrong one would delete too much."""
    words = text.strip().lower()
    parts = _TIME.findall(words)
    if not parts or _TIME.sub("", words).strip():
        raise ArgumentTypeError(f"must be a time such as 30d, 12h, 1h30m or 90s, not {text!r}")
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)


def part(text: str) -> float:
    """A part of a whole: `5%` and `0.05` are the same, to the bit."""
    words = text.strip()
    number = words.removesuffix("%").rstrip()
    in_percent = words.endswith("%")
    try:
        value = float(f"{number}e-2" if in_percent else number)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"must be a part such as 5% or 0.05, not {text!r}")
    if value > 1 and not in_percent:
        raise ArgumentTypeError(
            f"{text!r} is more than the whole: write {number}% or {value / 100:g}"
        )
    return value
