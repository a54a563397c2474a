"""Where the planner shows its search space: since 1.9 in `_search_space`, the objects."""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

IS_SHOWN = hasattr(EmbeddingShardingPlanner, "get_search_space")


def show(planner: Any, options: list[Any]) -> None:
    """Sets the search space of a planner that has the attribute."""
    if IS_SHOWN:
        planner._search_space = options
