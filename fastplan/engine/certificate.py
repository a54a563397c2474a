"""Lower bounds on the rating of every plan of a problem, and the proof that comes with them.

Take any plan rated T. Let U be the cost on every rank of options that are on all ranks. Then no
other shard costs more than T - U, the mean cost of ranks is at most T, and the options together fit
the memory M of all ranks. A slab is an interval [low, high) of U with multipliers of these
conditions: `memory` (lambda >= 0) and `uniform` (mu). For plans of the slab below a threshold,

    T >= sum over tables of min { average + lambda memory + mu uniform : allowed options }
         - lambda M - max { mu U : low <= U < min(high, threshold) }

With `reward` (w), shards are worth w instead of their cost, and a rank is worth at most K, the
value of a knapsack. No such plan exists if the right side, less ranks x K, is above 0.
cpp/bound/certificate.h derives both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastplan.engine import _native
from fastplan.engine.problem import Floats, Problem
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX, UNIFORM_TYPES

# Ratings and prices are sums that are far more exact than this margin of a proof.
ROUNDING = 1e-11
# Products near the smallest floats lose all digits; a proof must also exceed this margin.
_UNDERFLOW = 1e-290
# Steps per rank that shards are rounded down to in the knapsack.
_GRID = 8192
_EVALUATIONS = 20_000  # at most, while a bound is searched
MOST_ON_RANK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """Multipliers for plans with U in [low, high)."""

    low: float
    high: float
    memory: tuple[float, float, float]  # price of a byte of hbm, ddr and ssd
    uniform: float  # price of U; negative when there must be some
    reward: Floats | None  # by option: what a shard on a rank is worth; None: its cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A proof that no plan is rated below `value`. The slabs rule out ratings below `threshold`."""

    value: float
    threshold: float
    slabs: tuple[Slab, ...]


@dataclass(frozen=True, slots=True)
class NoBound:
    """Why there is no bound."""

    reason: str


def lower_bound(
    problem: Problem,
    *,
    upper: float = math.inf,
    knapsacks: int = 2_000,
) -> Certificate | NoBound:
    """Returns the highest bound found within a limited effort.

    The bound is valid for uneven ranks, towers and grids.

    Args:
        problem: the problem.
        upper: the rating of some plan. The effort then goes to slabs whose bound is below it, and
            small problems also get a knapsack bound.
        knapsacks: the maximum number of knapsacks.

    Returns:
        The certificate; NoBound if the problem has no plan.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    found = _native.lower_bound(
        problem.handle, {"upper": upper, "evaluations": _EVALUATIONS, "knapsacks": knapsacks}
    )
    if found["value"] > found["most"] * (1 + 1e-6):
        return NoBound("there is no plan: the tables' options need more memory than the ranks have")
    return read_certificate(found)


def read_certificate(found: _native.CertificateColumns) -> Certificate:
    """Converts the native core's certificate."""
    columns = zip(
        found["low"],
        found["high"],
        found["memory"],
        found["uniform"],
        found["reward"],
        strict=True,
    )
    return Certificate(
        value=found["value"],
        threshold=found["threshold"],
        slabs=tuple(
            Slab(low=low, high=high, memory=(hbm, ddr, ssd), uniform=uniform, reward=reward)
            for low, high, (hbm, ddr, ssd), uniform, reward in columns
        ),
    )


def check_bound(problem: Problem, certificate: Certificate) -> float:
    """Verifies a certificate and returns the bound that it proves, at most its value.

    This takes one pass over slabs and options, without a search, and trusts no number.

    Args:
        problem: the problem that the bound is for.
        certificate: the proof, which may come from anywhere.

    Raises:
        ValueError: a multiplier is invalid.
    """
    threshold = certificate.threshold
    if math.isnan(certificate.value) or not 0 < threshold < math.inf:
        return 0.0
    rows = _OptionRows(problem)
    proven = min(certificate.value, threshold)
    covered = 0.0
    for slab in sorted(certificate.slabs, key=lambda slab: slab.low):
        _check_numbers(slab, rows.options)
        if slab.low > covered:
            return 0.0
        covered = max(covered, slab.high)
        proven = min(proven, rows.least_rating(slab, threshold))
    return max(proven, 0.0) if covered >= threshold * (1 + ROUNDING) else 0.0


def _check_numbers(slab: Slab, options: int) -> None:
    reward = np.zeros(0) if slab.reward is None else slab.reward
    if not all(map(math.isfinite, (slab.low, slab.uniform, *slab.memory))) or math.isnan(slab.high):
        raise ValueError(f"`uniform` and `memory` of the slab at {slab.low} must be numbers")
    if min(slab.memory) < 0:
        raise ValueError(f"`memory` of the slab at {slab.low} must not be negative")
    if slab.reward is not None and len(reward) != options:
        raise ValueError(f"`reward` of the slab at {slab.low} must have {options} entries")
    if not (np.isfinite(reward) & (reward >= 0)).all():
        raise ValueError(f"`reward` of the slab at {slab.low} must not be negative")


class _OptionRows:
    """A problem's options in the terms of the conditions."""

    def __init__(self, problem: Problem) -> None:
        space, cluster = problem.space, problem.cluster
        self.ranks = len(cluster.rank_hbm)
        self.options = space.options
        self.table_begin = space.table_option_begin
        first = space.option_run_begin[:-1]
        total = space.run_fwd_compute + space.run_bwd_compute
        total = total + space.run_fwd_comms + space.run_bwd_comms + space.run_prefetch_compute
        self.shards = np.add.reduceat(space.run_count, first)
        self.average = np.add.reduceat(space.run_count * total, first) / self.ranks
        runs = np.stack([space.run_hbm, space.run_ddr, space.run_ssd], axis=1)
        self.memory = np.add.reduceat(space.run_count[:, None] * runs, first).astype(np.float64)
        capacity = np.stack([cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd], axis=1)
        # A rank with less than no memory takes no room from the others.
        self.capacity = np.maximum(capacity, 0).sum(axis=0).astype(np.float64)
        fits = np.zeros(len(runs), bool)
        for own in np.unique(capacity, axis=0):
            fits |= (runs <= own).all(axis=1)
        self.possible = np.logical_and.reduceat(fits, first)
        self._place(problem, np.minimum.reduceat(total, first), np.maximum.reduceat(total, first))

    def _place(self, problem: Problem, smallest: Floats, largest: Floats) -> None:
        """Separates options on every rank from options on some ranks."""
        kind, group = problem.space.option_type, problem.cluster.group_size
        uniform = np.isin(kind, [SHARDING_TYPE_INDEX[name] for name in UNIFORM_TYPES])
        blocks = np.isin(kind, [SHARDING_TYPE_INDEX[n] for n in ("table_row_wise", "grid_shard")])
        self.possible &= ~uniform | (self.shards == self.ranks)
        columns = np.where(blocks, self.shards // group, 1)
        everywhere = uniform | (blocks & (self.ranks == group))  # a block fills its host
        self.uniform = np.where(everywhere, smallest * columns, 0.0)
        self.largest = np.where(everywhere, 0.0, largest)
        self.smallest = smallest
        apart = (kind == SHARDING_TYPE_INDEX["column_wise"]) & (
            problem.space.option_kernel == KERNEL_INDEX["key_value"]
        )
        self.most = np.where(blocks, np.maximum(columns, 1), np.where(apart, 1, self.shards))
        self.most[everywhere] = 0

    # Multipliers may be any numbers; an overflow shows in the result.
    @np.errstate(over="ignore", invalid="ignore")
    def least_rating(self, slab: Slab, threshold: float) -> float:
        """Bounds the rating of plans below the threshold with U in the slab; never NaN."""
        ceiling = threshold * (1 + ROUNDING)
        allowed = self.possible & (self.largest <= ceiling - slab.low)
        if not np.logical_or.reduceat(allowed, self.table_begin[:-1]).all():
            return math.inf  # a table has no option, so no such plan exists
        prices = self.memory @ np.array(slab.memory)
        if slab.reward is None:
            prices += self.average
            filled = 0.0
        else:
            prices += np.where(self.most > 0, self.shards * slab.reward, 0.0)
            filled = self.ranks * self._most_reward(slab.reward, allowed, ceiling - slab.low)
        uniform = slab.uniform * self.uniform
        sizes = prices + np.abs(uniform)
        prices = np.where(allowed, prices + uniform - ROUNDING * sizes, np.inf)
        least = np.minimum.reduceat(prices, self.table_begin[:-1])
        edge = slab.uniform * (min(slab.high, ceiling) if slab.uniform > 0 else slab.low)
        memory = float(self.capacity @ np.array(slab.memory))
        taken = float(np.abs(least).sum()) + filled + abs(edge) + memory
        if not math.isfinite(taken):
            return 0.0
        left = float(least.sum()) - filled - edge - memory - 2 * ROUNDING * taken - _UNDERFLOW
        if slab.reward is None:
            return left * (1 - ROUNDING)
        return threshold if left > 0 else 0.0

    def _most_reward(self, reward: Floats, allowed: NDArray[np.bool_], room: float) -> float:
        """Returns the most that shards on one rank can be worth, with one option per table."""
        best = np.zeros(_GRID + 1)
        for begin, end in zip(self.table_begin[:-1], self.table_begin[1:], strict=True):
            before = best.copy()
            for option in range(begin, end):
                if not allowed[option] or not self.most[option] or not reward[option]:
                    continue
                # A shard without cost fits even if no space is left.
                part = self.smallest[option] / room if self.smallest[option] else 0.0
                for count in range(1, min(self.most[option], MOST_ON_RANK) + 1):
                    steps = int(part * count * (1 - ROUNDING) * _GRID)
                    if steps > _GRID:
                        break
                    # If that many fit, all fit.
                    worth = self.most[option] if count == MOST_ON_RANK else count
                    gain = before[: _GRID + 1 - steps] + worth * reward[option]
                    np.maximum(best[steps:], gain, out=best[steps:])
        return float(best[-1])
