"""The loops around a custom function, compiled together with it.

The compiler sets the globals `call` and `carray`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RATING_DTYPE = np.dtype([("rating", np.float64)])

call: Any = None
carray: Any = None


def price_all(shards: Any, costs: Any, count: int) -> int:
    """Prices every shard; returns how many were priced before one raised."""
    shard = carray(shards, count)
    cost = carray(costs, count)
    for i in range(count):
        try:
            call(shard[i], cost[i])
        except Exception:
            return i
    return count


def rate_plan(ranks: Any, count: int, rating: Any) -> int:
    """Rates a plan; returns whether it did not raise."""
    try:
        call(carray(ranks, count), carray(rating, 1)[0])
    except Exception:
        return 0
    return 1
