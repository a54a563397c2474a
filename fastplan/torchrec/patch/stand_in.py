"""Things of ours under stock names, there as long as a patch wants them.

Patches come and go in any order and thread. Each takes and releases the stand-ins it needs; the
first one puts a stand-in into place, and the last one puts the stock thing back. What somebody else
has put over a stand-in, or had put there before, is left alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

# Held around everything here: whether a patch is the first or the last must not change meanwhile.
lock = threading.RLock()


class StandIn:
    """What stands for a stock thing, wherever the modules of a package hold it by its name."""

    def __init__(
        self, name: str, stock: Any, package: str, *, owner: Any = None, without: Any = None
    ) -> None:
        self.name = name
        self.stock = stock
        self.ours: Any = None
        self.patches = 0  # that want it
        self._package = package
        self._owner = owner  # holds it, too: a class, or the module that defines it
        self._without = without  # the module that keeps the stock thing
        self._kept: list[Any] = []  # held ours before

    def take(self) -> None:
        """For one more patch. Finds modules that were imported since the patch before, too."""
        if self.patches == 0:
            self._kept = [place for place in self._places() if self._held(place) is self.ours]
        self.patches += 1
        self._exchange(self.stock, self.ours)

    def release(self) -> None:
        """For one patch less."""
        self.patches -= 1
        if self.patches == 0:
            self._exchange(self.ours, self.stock)
            self._kept = []

    def _exchange(self, before: Any, after: Any) -> None:
        for place in list(self._places()):
            if self._held(place) is before and not any(place is kept for kept in self._kept):
                setattr(place, self.name, after)

    def _held(self, place: Any) -> Any:
        # Some modules make their attributes up, and some entries of sys.modules are none.
        return getattr(place, "__dict__", {}).get(self.name)

    def _places(self) -> Iterator[Any]:
        if self._owner is not None:
            yield self._owner
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self._package and module is not self._without:
                yield module


def faster_function(stand_in: StandIn, faster: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is the faster one while a patch wants that, and the stock one after.

    Others may hold it or wrap it, and go on to do so when no patch is left.
    """
    stock = stand_in.stock

    @wraps(stock)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (faster if stand_in.patches else stock)(*args, **kwargs)

    return call


def is_below(function: Any, above: Any) -> bool:
    """Whether it is what somebody has wrapped, however often, or not at all."""
    seen: set[int] = set()
    while above is not None and above is not function and id(above) not in seen:
        seen.add(id(above))
        above = getattr(above, "__wrapped__", None)
    return above is function
