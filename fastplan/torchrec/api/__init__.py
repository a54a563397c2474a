"""fastplan as a backend of TorchRec's planner API, which came with TorchRec 1.9.

The classes have the methods of TorchRec's protocols. They don't inherit from these protocols, so
that they can be imported, documented and type-checked with any TorchRec.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torchrec

_PACKAGE = "torchrec.distributed.planner"


def api_module(name: str, user: str) -> Any:
    """Returns a module of TorchRec's planner API.

    Args:
        name: the module, such as "provider".
        user: the class of fastplan that needs it, for the message.

    Raises:
        ImportError: TorchRec does not have it.
    """
    module = f"{_PACKAGE}.{name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{_PACKAGE}."):
            raise
        version = getattr(torchrec, "__version__", "unknown")
        raise ImportError(
            f"fastplan.{user} needs {error.name}, which TorchRec {version} does not have. It is "
            "part of the planner API that came with TorchRec 1.9. Install a TorchRec that has it, "
            "or use fastplan.EmbeddingShardingPlanner, which works without it.",
            name=error.name,
        ) from error
