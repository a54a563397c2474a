"""Offload plans: kernel, cache size and place of every table, for the shortest step or few bytes.

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
from fastplan.engine.goals import Goal
from fastplan.engine.layout import narrowed
from fastplan.engine.link_bytes import (
    counting_link_bytes,
    link_goal,
    option_link_bytes,
    run_link_bytes,
)
from fastplan.engine.memory_prices import Totals, cheapest, dual_bound, room_of, totals_of
from fastplan.engine.optimize import Optimize, OptimizeResult, StartPlans, optimize_from
from fastplan.engine.problem import Floats, Problem
from fastplan.engine.solve import Options, Solution, estimate, placer, rate, verify_plan
from fastplan.engine.step import step_goal, step_of
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster, Partitioner, Request

# The parts of all memory that starts may use. Shards do not pack without gaps.
_FILLS = (0.98, 0.93, 0.85, 0.7, 0.5, 0.0)
_STARTS = 4  # enough of them
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
            `record` or its bytes over host links, and `objective_bound` holds for caches of any
            size.
        record: the plan with its load factors; None if nothing fits.
        wrong: what verification says about the record; empty if it is sound.
    """

    result: OptimizeResult
    record: PlanRecord | None
    wrong: str = ""


class _Measure(NamedTuple):
    """What plans are compared by.

    Attributes:
        request: whose costs it is a sum of.
        run_cost: in the sized space.
        goal: for the optimizer.
    """

    request: Request
    run_cost: Floats
    goal: Goal


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
        settings: limits of the search; the objective is the step or the bytes over host links.
        own: the problem of the request itself.
        plans: plans of `own` to start from.
        ratings: the ratings of TorchRec's plans.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    began = time.perf_counter()
    sized = sized_space(request)
    problem = Problem(sized.space, cluster)
    by_bytes = settings.objectives.measure == "link_bytes"
    measure = _link_bytes(request, sized) if by_bytes else _step(request, sized)
    totals = totals_of(sized.space, measure.run_cost)
    starts = [
        Start(sized.own_options(own.space, plan.options), plan.ranks)
        for plan in plans
        if plan.found
    ]
    starts += _priced_starts(problem, totals)
    legal = [s for s in starts if not verify_plan(problem, s.options, s.ranks, math.nan)]
    rated = [(rate(problem, start.options, start.ranks), i) for i, start in enumerate(legal)]
    given = StartPlans(ratings, legal, legal[min(rated)[1]] if rated else None)
    found = optimize_from(problem, given, settings, began, share=_RATING_SHARE, goal=measure.goal)
    if not found.found:
        return Offloaded(result=found, record=None)
    record = filled(measure.request, cluster, _record(sized, found), balance=not by_bytes)
    bound = offload_bound(sized, totals, cluster)
    if not by_bytes:
        bound /= len(cluster.rank_hbm)  # the slowest rank is not below the average
    found = replace(found, objective_bound=bound)
    return _finished(request, measure, cluster, record, found)


def _step(request: Request, sized: SizedSpace) -> _Measure:
    space = sized.space
    assert space.step is not None
    cost = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms + space.run_bwd_comms
    for phase, own in (
        ("input_exchange", space.run_input_dist_comms),
        ("prefetch", space.run_prefetch_compute),
    ):
        if phase not in space.step.hidden:
            cost = cost + own
    return _Measure(request, cost, step_goal(space))


def _link_bytes(request: Request, sized: SizedSpace) -> _Measure:
    counting = counting_link_bytes(request)
    # The same options: sizes depend on the curves of misses, and not on costs.
    cost = run_link_bytes(sized_space(counting).space)
    return _Measure(counting, cost, link_goal(request, sized.space, cost))


def _record(sized: SizedSpace, found: OptimizeResult) -> PlanRecord:
    record = PlanRecord.of(sized.space, found.options, found.ranks, found.rating)
    return replace(record, load_factor=sized.load_factor[found.options])


def _finished(
    request: Request,
    measure: _Measure,
    cluster: Cluster,
    record: PlanRecord,
    found: OptimizeResult,
) -> Offloaded:
    """Estimates and verifies the plan again, with the sizes that it has now."""
    final = Problem(estimate(narrowed(request, record)), cluster)
    numbers = np.arange(len(record.table), dtype=np.int32)
    record = replace(record, rating=rate(final, numbers, record.ranks))
    if measure.request is request:
        value = step_of(final, numbers, record.ranks).ms
    else:
        value = float(option_link_bytes(estimate(narrowed(measure.request, record))).sum())
        found = replace(found, objective_before=None)  # it is one of the weighted sum
    return Offloaded(
        result=replace(found, rating=record.rating, objective=value),
        record=record,
        wrong=verify_plan(final, numbers, record.ranks, record.rating),
    )


def _priced_starts(problem: Problem, totals: Totals) -> Iterator[Start]:
    """Yields plans whose options are the cheapest under a price on memory."""
    hbm, ddr = room_of(problem.cluster)
    placers = [placer(problem, Partitioner(sort_by_perf=by_perf)) for by_perf in (True, False)]
    left = _STARTS
    for fill in _FILLS:
        options = cheapest(problem.space, totals, hbm * fill, ddr * max(fill, 0.5))
        for each in placers:
            placed = each.place(options.tolist())
            if placed is not None:
                yield Start(options, np.array(placed[0], np.int32))
                left -= 1
        if left <= 0:
            return


def offload_bound(sized: SizedSpace, totals: Totals, cluster: Cluster) -> float:
    """Returns a lower bound on the cost of every plan over all ranks, with caches of any size.

    A cache between two offered sizes takes no less memory than the smaller one and costs no less
    than the larger one.
    """
    return dual_bound(sized.space, totals._replace(hbm=_least_memory(sized, totals)), cluster)


def _least_memory(sized: SizedSpace, totals: Totals) -> Floats:
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
