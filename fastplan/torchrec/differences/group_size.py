"""The ranks that table-row-wise shards span: since 1.6 a pod of hosts, before that a host."""

from __future__ import annotations

from typing import Any


def group_size(topology: Any) -> int:
    """Returns the ranks of a group of a topology."""
    return getattr(topology, "intra_group_size", topology.local_world_size)  # type: ignore[no-any-return]
