"""The throughput that TorchRec's estimates of a plan amount to."""

from __future__ import annotations

import math


def estimated_qps(batch_size: int, world_size: int, critical_path_ms: float | None) -> float | None:
    """Returns the examples per second of the whole cluster, by TorchRec's estimate of a step.

        estimated_qps = batch_size * world_size * 1000 / critical_path_ms

    The critical path is TorchRec's estimate, in milliseconds, of one step of the embedding tables:
    forward and backward, compute and communication, where ranks wait for the slowest rank after
    each of these. It leaves out the dense part of the model, the distribution of inputs and the
    prefetch of cached rows, so the figure is an upper limit that ranks plans and SKUs. It is not
    the rating of a plan, which is the largest total of one rank without the waiting, or whatever
    a custom perf model returns.

    Args:
        batch_size: the examples of one rank in a step.
        world_size: the number of ranks.
        critical_path_ms: `critical_path_ms` of the result; None if TorchRec has none.

    Returns:
        The estimate; None if the critical path is unknown, zero or not finite.
    """
    if critical_path_ms is None or not math.isfinite(critical_path_ms) or critical_path_ms <= 0:
        return None
    return batch_size * world_size * 1000 / critical_path_ms
