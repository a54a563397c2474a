"""Upper limits for numbers from outside, and checks of the types of arguments."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

MOST_RANKS = 1 << 20
MOST_BATCH = 1 << 40  # of one rank
MOST_TEXT = 4096  # characters of a name, or of any other text
MOST_NUMBER = 1e18  # of either sign, for fields that are not in MOST
SLOWEST, FASTEST = 1e-6, 1e18  # bandwidths, in bytes per millisecond

# By the name of a field. The reader of a field checks the minimum.
MOST: dict[str, int | float] = {
    "batch_size": MOST_BATCH,
    "batch_sizes": MOST_BATCH,
    "world_size": MOST_RANKS,
    "world_sizes": MOST_RANKS,
    "local_world_size": MOST_RANKS,
    "ranks_per_host": MOST_RANKS,
    "hosts": MOST_RANKS,
    "pod_size": MOST_RANKS,
    "dim": 1 << 24,
    "min_partition": 1 << 24,
    "pooling": 1e9,
    "poolings": 1e9,
    "wire": 1e6,
    "passes": 1 << 20,
    "bwd_compute_multiplier": 1e6,
    "weighted_feature_bwd_compute_multiplier": 1e6,
    "price": 1e9,
    "percentage": 1,
    "load_factor": 1,
    "cache_load_factor": 1,
    "miss_rate": 1e6,
    "threshold": 1 << 30,
    "max_proposals": 1 << 30,
    "bins_per_device": 1 << 20,
    "max_search_count": 1 << 30,
    "tolerance": 1e6,
    "timeout_seconds": 1e9,
}


def check_numbers(owner: Any, *names: str) -> None:
    """Raises TypeError if a field is neither a number nor None."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not isinstance(value, Real):
            raise TypeError(f"`{name}` must be a number, not {value!r}")


def check_whole_numbers(owner: Any, *names: str) -> None:
    """Raises TypeError if a field is neither a whole number nor None."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"`{name}` must be a whole number, not {value!r}")
