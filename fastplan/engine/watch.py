"""Whether Python objects are still what they were.

The core compares the addresses of an object's attributes with those that it has seen, which takes a
fraction of the time of hashing the object. It knows no class.
"""

from __future__ import annotations

from fastplan.engine._native import ObjectWatch

__all__ = ["HASHED", "ITEMS", "OBJECT", "OBJECTS", "ObjectWatch"]

# How an attribute is followed; the numbers are those of cpp/python/watch.cpp. Attributes without a
# field are compared by address only.
ITEMS = 0  # a list of immutable values
OBJECT = 1  # an object, with the fields that follow
OBJECTS = 2  # a list of such objects
HASHED = 3  # an object that is known by its hash, or None
