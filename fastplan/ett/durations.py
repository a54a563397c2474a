"""Times as people write them."""

from __future__ import annotations

import re

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|min|s|m|h|d)")


def seconds(text: str) -> float:
    """Seconds of `90`, `90s`, `250ms`, `15m`, `1h30m` or `3d`. Raises ValueError otherwise."""
    words = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d*)?|\.\d+", words):
        return float(words)
    parts = _PART.findall(words)
    if not parts or _PART.sub("", words).strip():
        raise ValueError(f"`{text}` must be a time such as 90s, 15m, 1h30m or 3d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
