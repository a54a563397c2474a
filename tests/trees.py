"""Plain data as a tree."""

from collections.abc import Iterator
from typing import Any

Node = tuple[Any, ...]


def nodes(value: Any, path: Node = ()) -> Iterator[Node]:
    """The paths of all values within a mapping or list, from the outside in."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from nodes(item, (*path, key))
