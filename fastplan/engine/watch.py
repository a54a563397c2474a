"""Whether Python objects are still what they were.

The core compares the addresses of an object's attributes with those that it has seen, which takes a
fraction of the time of hashing the object. Up to Python 3.11 it first asks their
dictionaries whether they have changed at all. It knows no class.
"""

from __future__ import annotations

from fastplan.engine._native import ObjectWatch, read_parts

__all__ = ["ASSIGNED", "HASHED", "ITEMS", "OBJECT", "OBJECTS", "ObjectWatch", "read_parts"]

# How an attribute is followed; the numbers are those of cpp/python/watch.cpp. Attributes without a
# field are compared by address only.
ITEMS = 0  # a list of immutable values
OBJECT = 1  # an object, with the fields that follow
OBJECTS = 2  # a list of such objects
HASHED = 3  # an object that is known by its hash, or None
ASSIGNED = 4  # a value of an object in a list, which assign() sets
