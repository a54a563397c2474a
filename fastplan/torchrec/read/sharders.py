"""Sharders that are asked for a module's tables once per plan.

Reservation, enumeration and validation all ask, and each time a sharder walks the whole module.
"""

from __future__ import annotations

from typing import Any


class CachedSharder:
    """A sharder that remembers its answers; everything else is the sharder's own."""

    def __init__(self, sharder: Any) -> None:
        self.sharder = sharder
        self.module_type = sharder.module_type
        self._answers: dict[
            int, tuple[Any, Any]
        ] = {}  # the module is kept, so its id stays its own

    def shardable_parameters(self, module: Any) -> Any:
        known = self._answers.get(id(module))
        if known is None:
            answer = self.sharder.shardable_parameters(module)
            known = self._answers[id(module)] = (module, answer)
        return known[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sharder, name)
