"""A list that is built when somebody first looks at it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any


class LazyList(list[Any]):
    """A real list for every user and every `isinstance`, whose items cost nothing until read."""

    def __init__(self, build: Callable[[], list[Any]], source: Any = None) -> None:
        super().__init__()
        self._build: Callable[[], list[Any]] | None = build
        self.source = source

    @property
    def is_built(self) -> bool:
        return self._build is None

    def _fill(self) -> None:
        if self._build is not None:
            items = self._build()
            self._build = None
            super().extend(items)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        self._fill()
        return [copy.deepcopy(item, memo) for item in list.__iter__(self)]

    def __copy__(self) -> list[Any]:
        self._fill()
        return list(list.__iter__(self))

    def __reduce__(self) -> tuple[Any, ...]:
        self._fill()
        return list, (list(list.__iter__(self)),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __iter__(self) -> Iterator[Any]:
        self._fill()
        return super().__iter__()


def _filled_first(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def call(self: LazyList, *args: Any, **kwargs: Any) -> Any:
        self._fill()
        return method(self, *args, **kwargs)

    call.__name__ = name
    return call


_READS_AND_WRITES = """
    __add__ __bool__ __contains__ __delitem__ __eq__ __ge__ __getitem__ __gt__ __iadd__ __imul__
    __le__ __len__ __lt__ __mul__ __ne__ __repr__ __reversed__ __rmul__ __setitem__
    append clear copy count extend index insert pop remove reverse sort
"""
for _name in _READS_AND_WRITES.split():
    if hasattr(list, _name):
        setattr(LazyList, _name, _filled_first(_name))


def _right_add(self: LazyList, other: list[Any]) -> list[Any]:
    return other + list(self)


# `[] + lazy` would otherwise read the list's storage before it is filled.
LazyList.__radd__ = _right_add  # type: ignore[attr-defined]
