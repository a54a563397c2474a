"""Costs and objectives to use or to copy. Each function returns one."""

# numba's decorators and records have no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastplan.costs.compiling import load_numba
from fastplan.costs.functions import PlanObjective, ShardCost, plan_objective, shard_cost
from fastplan.costs.names import Kernel, ShardingType

njit = load_numba().njit


@njit
def values_looked_up(shard: Any) -> float:
    """How many values one step looks up in a shard, as TorchRec counts them."""
    if shard.sharding_type == ShardingType.DATA_PARALLEL:
        return shard.inputs
    batch = shard.inputs * shard.world_size
    if shard.sharding_type == ShardingType.ROW_WISE:
        return batch / shard.world_size
    if shard.sharding_type in (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value):
        return batch / shard.group_size
    return batch


def measured_lookup(sizes: ArrayLike, milliseconds: ArrayLike) -> ShardCost:
    """Returns a cost that takes the time of lookups in device memory from measurements.

    Values between two measurements are interpolated linearly, and the last slope continues.
    Backward keeps TorchRec's ratio to forward.

    Args:
        sizes: Bytes that a shard looks up, increasing.
        milliseconds: The measured time for each size.

    Raises:
        ValueError: The lists don't have the same length, or are not sorted.
    """
    known, times = np.array(sizes, np.float64), np.array(milliseconds, np.float64)
    if known.ndim != 1 or known.shape != times.shape or len(known) < 2:
        raise ValueError("`sizes` and `milliseconds` must be two lists of at least two numbers")
    if not (np.diff(known) > 0).all() or not (np.diff(times) >= 0).all() or times[0] < 0:
        raise ValueError("`sizes` must increase, and `milliseconds` must not decrease")
    slope = (times[-1] - times[-2]) / (known[-1] - known[-2])
    largest, longest = known[-1], times[-1]

    @shard_cost
    def cost(shard: Any, out: Any) -> None:
        if shard.kernel != Kernel.FUSED or shard.stock.fwd_compute == 0:
            return
        size = values_looked_up(shard) * shard.dim * shard.element_size
        if size > largest:
            out.fwd_compute = longest + (size - largest) * slope
        else:
            out.fwd_compute = np.interp(size, known, times)
        ratio = out.fwd_compute / shard.stock.fwd_compute
        out.bwd_compute = shard.stock.bwd_compute * ratio

    return cost


def cache_aware_lookup(cache_bytes: float, speedup: float) -> ShardCost:
    """Returns a cost in which rows in the device's cache are read `speedup` times as fast.

    It assumes that a shard has the whole cache, and that all rows are read equally often.

    Args:
        cache_bytes: The size of the cache.
        speedup: How much faster cached rows are read.

    Raises:
        ValueError: `cache_bytes` is negative, or `speedup` is below 1.
    """
    if cache_bytes < 0 or speedup < 1:
        raise ValueError("`cache_bytes` must not be negative, and `speedup` must be at least 1")

    @shard_cost
    def cost(shard: Any, out: Any) -> None:
        if shard.kernel != Kernel.FUSED:
            return
        size = shard.rows * shard.dim * shard.element_size
        held = 1.0 if size <= cache_bytes else cache_bytes / size
        out.fwd_compute = shard.stock.fwd_compute * (1.0 - held + held / speedup)

    return cost


def straggler(rank: int, factor: float) -> PlanObjective:
    """Returns an objective in which one rank computes `factor` times as long as the others.

    Args:
        rank: The slow rank.
        factor: How much longer it computes.

    Raises:
        ValueError: `rank` is negative, or `factor` is not positive.
    """
    if rank < 0 or factor <= 0:
        raise ValueError("`rank` must not be negative, and `factor` must be positive")

    @plan_objective
    def objective(ranks: Any, out: Any) -> None:
        rating = ranks.total.max()
        if rank < len(ranks):
            slow = ranks[rank]
            compute = slow.fwd_compute + slow.bwd_compute + slow.prefetch_compute
            rating = max(rating, slow.total + (factor - 1.0) * compute)
        out.rating = rating

    return objective


def energy(compute_watts: float, comms_watts: float, idle_watts: float) -> PlanObjective:
    """Returns an objective that rates the energy of a step in millijoules.

    Args:
        compute_watts: Power of a rank while it computes.
        comms_watts: Power of a rank while it communicates.
        idle_watts: Power of a rank while it waits for the slowest one.

    Raises:
        ValueError: A value is negative.
    """
    if min(compute_watts, comms_watts, idle_watts) < 0:
        raise ValueError("watts must not be negative")

    @plan_objective
    def objective(ranks: Any, out: Any) -> None:
        step = ranks.total.max()
        used = 0.0
        for i in range(len(ranks)):
            rank = ranks[i]
            compute = rank.fwd_compute + rank.bwd_compute + rank.prefetch_compute
            comms = rank.fwd_comms + rank.bwd_comms
            waiting = max(step - compute - comms, 0.0)
            used += compute * compute_watts + comms * comms_watts + waiting * idle_watts
        out.rating = used

    return objective


def critical_path() -> PlanObjective:
    """Returns an objective: the slowest computation plus the slowest communication.

    All ranks wait for each other in between.
    """

    @plan_objective
    def objective(ranks: Any, out: Any) -> None:
        compute = (ranks.fwd_compute + ranks.bwd_compute + ranks.prefetch_compute).max()
        out.rating = compute + (ranks.fwd_comms + ranks.bwd_comms).max()

    return objective
