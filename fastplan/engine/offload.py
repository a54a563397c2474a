"""Offload plans: kernel, cache size and place of every table, for the shortest step.

Tables have options of several cache sizes. Starts come from a price on memory: each table takes
the option with the least cost + price x bytes. The optimizer improves the best start, and what is
left of the memory then goes to the caches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastplan.engine.cache_filling import filled
from fastplan.engine.cache_sizes import SizedSpace, sized_space
from fastplan.engine.layout import narrowed
from fastplan.engine.optimize import Optimize, OptimizeResult, StartPlans, optimize_from
from fastplan.engine.problem import Floats, Problem, SearchSpace
from fastplan.engine.solve import Options, Solution, estimate, placer, rate, verify_plan
from fastplan.engine.step import step_of
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster, Partitioner, Request

# The parts of all memory that starts may use. Shards do not pack without gaps.
_FILLS = (0.98, 0.93, 0.85, 0.7, 0.5, 0.0)
_STARTS = 4  # enough of them
_BISECTIONS = 48
# The share of the budget for the rating, which brings another start.
_RATING_SHARE = 0.15


class Start(NamedTuple):
    """A plan to begin with."""

    options: Options
    ranks: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """An offload plan.

    Attributes:
        result: of the optimizer, in a space with several cache sizes. `objective` is the step of
            `record`, and `objective_bound` holds for caches of any size.
        record: the plan with its load factors; None if nothing fits.
        wrong: what verification says about the record; empty if it is sound.
    """

    result: OptimizeResult
    record: PlanRecord | None
    wrong: str = ""


def offload(
    request: Request,
    cluster: Cluster,
    settings: Optimize,
    *,
    own: Problem,
    plans: Sequence[Solution],
    ratings: Mapping[str, float],
) -> Offloaded:
    """Returns a plan with a kernel and a cache size for every table.

    Args:
        request: the request, with hardware costs and without a custom cost.
        cluster: the ranks.
        settings: limits of the search; objectives are those of the step.
        own: the problem of the request itself.
        plans: plans of `own` to start from.
        ratings: the ratings of TorchRec's plans.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    began = time.perf_counter()
    sized = sized_space(request)
    problem = Problem(sized.space, cluster)
    starts = [
        Start(sized.own_options(own.space, plan.options), plan.ranks)
        for plan in plans
        if plan.found
    ]
    starts += _priced_starts(problem)
    legal = [s for s in starts if not verify_plan(problem, s.options, s.ranks, math.nan)]
    rated = [(rate(problem, start.options, start.ranks), i) for i, start in enumerate(legal)]
    given = StartPlans(ratings, legal, legal[min(rated)[1]] if rated else None)
    found = optimize_from(problem, given, settings, began, share=_RATING_SHARE)
    if not found.found:
        return Offloaded(result=found, record=None)
    record = filled(request, cluster, _record(sized, found))
    space = estimate(narrowed(request, record))
    final, numbers = Problem(space, cluster), np.arange(len(record.table), dtype=np.int32)
    record = replace(record, rating=rate(final, numbers, record.ranks))
    wrong = verify_plan(final, numbers, record.ranks, record.rating)
    step = step_of(final, numbers, record.ranks).ms
    bound = offload_bound(sized, cluster)
    found = replace(found, rating=record.rating, objective=step, objective_bound=bound)
    return Offloaded(result=found, record=record, wrong=wrong)


def _record(sized: SizedSpace, found: OptimizeResult) -> PlanRecord:
    record = PlanRecord.of(sized.space, found.options, found.ranks, found.rating)
    return replace(record, load_factor=sized.load_factor[found.options])


class _Totals(NamedTuple):
    """What an option comes to on all ranks together."""

    cost: Floats  # ms in the phases that count
    hbm: Floats
    ddr: Floats


def _totals(space: SearchSpace) -> _Totals:
    assert space.step is not None
    parts = {
        "input_exchange": space.run_input_dist_comms,
        "prefetch": space.run_prefetch_compute,
    }
    cost = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms + space.run_bwd_comms
    for phase, own in parts.items():
        if phase not in space.step.hidden:
            cost = cost + own
    runs = (cost, space.run_hbm.astype(np.float64), space.run_ddr.astype(np.float64))
    return _Totals(*(_by_option(space, each) for each in runs))


def _by_option(space: SearchSpace, runs: Floats) -> Floats:
    found: Floats = np.add.reduceat(runs * space.run_count, space.option_run_begin[:-1])
    return found


def _priced_starts(problem: Problem) -> Iterator[Start]:
    """Yields plans whose options are the cheapest under a price on memory."""
    space, cluster = problem.space, problem.cluster
    totals = _totals(space)
    room = _room(cluster)
    placers = [placer(problem, Partitioner(sort_by_perf=by_perf)) for by_perf in (True, False)]
    left = _STARTS
    for fill in _FILLS:
        options = _cheapest(space, totals, room[0] * fill, room[1] * max(fill, 0.5))
        for each in placers:
            placed = each.place(options.tolist())
            if placed is not None:
                yield Start(options, np.array(placed[0], np.int32))
                left -= 1
        if left <= 0:
            return


def _room(cluster: Cluster) -> tuple[float, float]:
    hbm, ddr = (
        float(sum(max(size, 0) for size in sizes)) for sizes in (cluster.rank_hbm, cluster.rank_ddr)
    )
    return hbm, ddr


def _cheapest(space: SearchSpace, totals: _Totals, hbm: float, ddr: float) -> Options:
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


def _within_hbm(space: SearchSpace, totals: _Totals, hbm: float, ddr_price: float) -> Options:
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


def offload_bound(sized: SizedSpace, cluster: Cluster) -> float:
    """Returns a lower bound on the step of every plan, with caches of any size, in milliseconds.

    With R ranks, prices p of HBM and q of host memory, and costs c summed over shards and phases,
        step >= 1 / R (sum over tables of min over options [c + p hbm + q ddr] - p HBM - q DDR)
    for any p and q: the slowest rank is not below the average. A cache between two offered sizes
    takes no less memory than the smaller one and no less time than the larger one.
    """
    space, totals = sized.space, _totals(sized.space)
    hbm = _least_memory(sized, totals)
    room, host = _room(cluster)
    ranks = len(cluster.rank_hbm)
    unit = float(totals.cost.max()) / max(room, 1.0)
    prices = [0.0, *(unit * 2.0 ** np.arange(-30, 6, 0.5)).tolist()]
    best: tuple[float, float]
    best = max((_dual(space, totals.cost + p * hbm) - p * room, p) for p in prices)
    for q in (best[1] * 2.0 ** np.arange(-8, 3)).tolist():
        value = _dual(space, totals.cost + best[1] * hbm + q * totals.ddr)
        best = max(best, (value - best[1] * room - q * host, best[1]))
    # Sums in another order differ by their last bits.
    return float(max(best[0], 0.0) / ranks * (1 - 1e-9))


def _dual(space: SearchSpace, values: Floats) -> float:
    return float(np.minimum.reduceat(values, space.table_option_begin[:-1]).sum())


def _least_memory(sized: SizedSpace, totals: _Totals) -> Floats:
    """Returns the HBM of each option; for a cache, that of the next smaller size."""
    found: Floats = totals.hbm.copy()
    resizable = ~np.isnan(sized.load_factor)
    by_kind: dict[tuple[int, int], list[int]] = {}
    for option in np.flatnonzero(resizable).tolist():
        key = int(sized.table[option]), int(sized.space.option_type[option])
        by_kind.setdefault(key, []).append(option)
    for options in by_kind.values():
        options.sort(key=lambda option: sized.load_factor[option])
        found[options] = np.concatenate([[0.0], totals.hbm[options[:-1]]])
    return found
