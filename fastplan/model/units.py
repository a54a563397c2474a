"""Parses and formats sizes, counts, bandwidths and other scalars.

Parsing is exact: decimal digits are scaled as whole numbers, never through a float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress

Scalar = str | int | float | bool | None

LARGEST = 2**63 - 1
YAML_TAG = "tag:yaml.org,2002:"
NO_TAGS = "a spec has only mappings, lists, strings, numbers and booleans"

_BINARY = {"PiB": 2**50, "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_DECIMAL = {"PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZES = {"": 1, "B": 1, "KB": 10**3, **_BINARY, **_DECIMAL}
_COUNTS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
_BITS = {"Tbit": 10**12 // 8, "Gbit": 10**9 // 8, "Mbit": 10**6 // 8, "kbit": 10**3 // 8}
_RATES = {f"{unit}/s": size for unit, size in (_SIZES | _BITS).items() if unit}

# Long enough for any number that fits 64 bits, and short enough to parse fast.
_AMOUNT = re.compile(
    r"([+-]?)(\d{0,40})(?:\.(\d{0,40}))?(?:[eE]([+-]?\d{1,3}))?\s*([A-Za-z/]*)", re.ASCII
)
_FLAGS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Control, format (bidi marks, zero widths), surrogate, private use, unassigned; line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def parse_size(value: str | int | float) -> int:
    """Returns the bytes of a size such as `80GiB` (2^30), `80GB` (10^9), `1.5 MiB` or `1024`.

    Raises:
        ValueError: it is not a whole number of bytes from 0 to 2^63-1.
    """
    size = _whole(value, _SIZES)
    if size is None or not 0 <= size <= LARGEST:
        raise ValueError(f"must be a size such as 80GiB, 80GB or 512 MiB, not {shown(value)}")
    return size


def parse_count(value: str | int | float) -> int:
    """Returns a whole number, written as `40M`, `1.5k`, `2B`, `1e6` or plain. Raises ValueError."""
    count = _whole(value, _COUNTS)
    if count is None:
        raise ValueError(f"must be a whole number such as 40000000 or 40M, not {shown(value)}")
    return count


def parse_bandwidth(value: str | int | float) -> float:
    """Returns bytes per millisecond, TorchRec's unit, of `900GB/s`, `600GiB/s` or `50Gbit/s`.

    A plain number is bytes per millisecond. The result equals `600 * 1024**3 / 1000` in Python to
    the bit, because plans depend on it.

    Raises:
        ValueError: it is not finite or not above zero.
    """
    bandwidth = math.nan
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value.strip())
        if found and (found[2] or found[3]) and (not found[5] or found[5] in _RATES):
            digits = value.strip().removesuffix(found[5])
            number = float(digits) if found[3] is not None or found[4] else int(digits)
            bandwidth = number * _RATES[found[5]] / 1000 if found[5] else float(number)
    elif not isinstance(value, bool):
        with suppress(OverflowError, TypeError):
            bandwidth = float(value)
    if not 0 < bandwidth < math.inf:
        expected = "a bandwidth such as 900GB/s, 600GiB/s or 50Gbit/s, or bytes per millisecond"
        raise ValueError(f"must be {expected}, not {shown(value)}")
    return bandwidth


def format_size(size: int) -> str:
    """Formats a size: `80 GiB` if that is exact, else with a decimal, `74.5 GiB`."""
    sign, size = "-" * (size < 0), abs(size)
    for unit, scale in _BINARY.items():
        # Also if it would be rounded to 1024.0 of the smaller unit.
        if 20 * size + (scale >> 10) >= 20 * scale:
            whole, tenths = divmod((20 * size + scale) // (2 * scale), 10)
            exact = size == whole * scale
            return f"{sign}{whole} {unit}" if exact else f"{sign}{whole}.{tenths} {unit}"
    return f"{sign}{size} B"


def format_count(count: int, one: str, many: str | None = None) -> str:
    """Returns a count and its noun, such as `1 table` or `1,024 tables`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shown(value: object) -> str:
    """Quotes a value for errors: short and on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _whole(value: object, units: Mapping[str, int]) -> int | None:
    """Parses a whole number; None if the value is not one."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    found = _AMOUNT.fullmatch(value.strip())
    if not found or not (found[2] or found[3]) or found[5] not in units:
        return None
    sign, whole, decimals, exponent, unit = found.groups(default="")
    number = int(sign + whole + decimals) * units[unit]
    power = int(exponent or 0) - len(decimals)
    if power >= 0:
        return int(number * 10**power)
    number, rest = divmod(number, 10**-power)
    return None if rest else number


def read_whole(text: str) -> int | float:
    """Parses a string of digits; the result is a float if it is far beyond 64 bits."""
    # Python takes quadratic time for long strings, and refuses some.
    return int(text) if len(text) <= 20 else float(text)


def fitted(number: int) -> int | float:
    """Converts whole numbers beyond 64 bits to floats, because printing them can fail."""
    if -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf


def is_broken(text: str) -> bool:
    """Whether a string has a lone surrogate, from an escape; it could not be written to a file."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def escape_name(name: str) -> str:
    """Returns the name with characters that are invisible or move other text as escapes."""
    if name.isascii() and name.isprintable():
        return name
    from unicodedata import category  # few names need it

    return "".join(_escape(c) if category(c) in _HIDDEN else c for c in name)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def yaml_scalar(text: str, tag: str) -> Scalar:
    """Returns the value of a scalar as PyYAML reads it; dates and base 60 stay strings.

    Raises:
        ValueError: the tag is not plain data, or a number is invalid.
    """
    kind = tag.removeprefix(YAML_TAG) if tag.startswith(YAML_TAG) else ""
    if kind in ("int", "float") and ":" not in text:
        return _yaml_number(text, kind)
    if kind in ("str", "int", "float", "timestamp", "merge", "value"):
        if is_broken(text):
            raise ValueError(f"must be a string without lone surrogates, not {shown(text)}")
        return text
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in _FLAGS:
        return _FLAGS[text.lower()]
    raise ValueError(f"has the tag {shown(tag)} on {shown(text)}; {NO_TAGS}")


def _yaml_number(text: str, kind: str) -> int | float:
    plain = text.replace("_", "").lower()
    digits = plain.lstrip("+-")
    if kind == "int" and digits.isdecimal() and digits.startswith("0") and digits.strip("0"):
        raise ValueError(f"must not begin with 0, which some parsers read as octal: {shown(text)}")
    try:
        if kind == "float":
            number = float(plain.replace(".", "") if digits in (".inf", ".nan") else plain)
        else:
            number = read_whole(plain) if digits.isdecimal() else fitted(int(plain, 0))
    except ValueError:
        raise ValueError(f"must be a number, as its tag says, not {shown(text)}") from None
    if math.isinf(number) and "inf" not in digits:
        raise ValueError(f"must be a smaller number than {shown(text)}")
    return number
