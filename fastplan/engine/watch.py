"""Whether Python objects are still what they were.

To compare an object with what was seen of it takes a tenth of the time of hashing it. The core
follows attributes and lists, and compares the addresses of what it finds; it knows no class.
"""

from __future__ import annotations

from fastplan.engine._native import ObjectWatch

__all__ = ["HASHED", "ITEMS", "OBJECT", "OBJECTS", "ObjectWatch", "values"]

# How an attribute is followed; the numbers are those of cpp/python/watch.cpp.
_VALUE = 0  # an immutable value
ITEMS = 1  # a list of values
OBJECT = 2  # an object with the fields that follow
OBJECTS = 3  # a list of such objects
HASHED = 4  # an object that is known by its hash, or None

Field = tuple[str, int, tuple["Field", ...]]


def values(*names: str) -> tuple[Field, ...]:
    """Returns the fields of attributes with immutable values."""
    return tuple((name, _VALUE, ()) for name in names)
