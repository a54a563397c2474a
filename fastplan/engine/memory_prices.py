"""Prices on memory: an option for each table that fits in the memory of all ranks together.

With costs c of options, prices p of HBM and q of host memory, every plan costs at least
    sum over tables of min over options [c + p hbm + q ddr] - p HBM - q DDR.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastplan.engine.problem import Floats, SearchSpace
from fastplan.engine.solve import Options
from fastplan.model.request import Cluster

_BISECTIONS = 48


class Totals(NamedTuple):
    """What each option comes to on all ranks together."""

    cost: Floats
    hbm: Floats
    ddr: Floats


def totals_of(space: SearchSpace, run_cost: Floats) -> Totals:
    """Returns the sums over the shards of each option.

    Args:
        space: the options.
        run_cost: the cost of a shard of each run.
    """
    runs = (run_cost, space.run_hbm.astype(np.float64), space.run_ddr.astype(np.float64))
    begin = space.option_run_begin[:-1]
    return Totals(*(np.add.reduceat(each * space.run_count, begin) for each in runs))


def room_of(cluster: Cluster) -> tuple[float, float]:
    """Returns the HBM and the host memory of all ranks together."""
    hbm, ddr = (
        float(sum(max(size, 0) for size in sizes)) for sizes in (cluster.rank_hbm, cluster.rank_ddr)
    )
    return hbm, ddr


def cheapest(space: SearchSpace, totals: Totals, hbm: float, ddr: float) -> Options:
    """Returns an option per table that fits in the memory of all ranks together, if one does.

    Prices are found by bisection, that of host memory only if it is short.
    """
    price = 0.0
    for attempt in range(_BISECTIONS):
        options = _within_hbm(space, totals, hbm, price)
        if totals.ddr[options].sum() <= ddr:
            break
        price = float(totals.cost.max()) / max(ddr, 1.0) * 2.0 ** (attempt - 24)
    return options


def _within_hbm(space: SearchSpace, totals: Totals, hbm: float, ddr_price: float) -> Options:
    cost = totals.cost + ddr_price * totals.ddr
    low, high = -60.0, 60.0  # of log2(price x room / largest cost)
    unit = float(cost.max()) / max(hbm, 1.0)
    best = _least(space, cost)
    if totals.hbm[best].sum() <= hbm:
        return best
    best = _least(space, totals.hbm)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        options = _least(space, cost + unit * 2.0**middle * totals.hbm)
        if totals.hbm[options].sum() <= hbm:
            best, high = options, middle
        else:
            low = middle
    return best


def _least(space: SearchSpace, values: Floats) -> Options:
    """Returns the option of each table with the least value."""
    begin = space.table_option_begin
    least = np.repeat(np.minimum.reduceat(values, begin[:-1]), np.diff(begin))
    where = np.flatnonzero(values == least)
    first = np.searchsorted(where, begin[:-1])
    return np.asarray(where[first], np.int32)


def dual_bound(space: SearchSpace, totals: Totals, cluster: Cluster) -> float:
    """Returns a lower bound on the cost of every plan, all its shards together.

    Args:
        space: the options.
        totals: what they come to; a memory below the true one keeps the bound valid.
        cluster: the ranks.
    """
    room, host = room_of(cluster)
    unit = float(totals.cost.max()) / max(room, 1.0)
    prices = [0.0, *(unit * 2.0 ** np.arange(-30, 6, 0.5)).tolist()]

    def least(p: float, q: float = 0.0) -> float:
        values = totals.cost + p * totals.hbm + q * totals.ddr
        sums = np.minimum.reduceat(values, space.table_option_begin[:-1]).sum()
        return float(sums) - p * room - q * host

    best, price = max((least(p), p) for p in prices)
    best = max([best, *(least(price, q) for q in (price * 2.0 ** np.arange(-8, 3)).tolist())])
    # Sums in another order differ by their last bits.
    return max(best, 0.0) * (1 - 1e-9)
