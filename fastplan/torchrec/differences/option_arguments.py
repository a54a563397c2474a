"""Arguments of ShardingOption that not every version has."""

from __future__ import annotations

import inspect
from typing import Any

from torchrec.distributed.planner.types import ShardingOption

_KNOWN = frozenset(inspect.signature(ShardingOption.__init__).parameters)
_STASHES = "stash_weights" in _KNOWN  # since 1.9


def option_arguments(arguments: dict[str, Any], enumerator: Any, module: Any) -> dict[str, Any]:
    """Returns the arguments that this version takes, with those that it adds."""
    found = {name: value for name, value in arguments.items() if name in _KNOWN}
    if _STASHES:
        found["stash_weights"] = enumerator._get_stash_weights(arguments["name"], module)
    return found
