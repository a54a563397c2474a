"""Checks the types of arguments; errors name the argument."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def check_numbers(owner: Any, *names: str) -> None:
    """Raises TypeError if a field is neither a number nor None."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not isinstance(value, Real):
            raise TypeError(f"`{name}` must be a number, not {value!r}")


def check_whole_numbers(owner: Any, *names: str) -> None:
    """Raises TypeError if a field is neither a whole number nor None."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"`{name}` must be a whole number, not {value!r}")
