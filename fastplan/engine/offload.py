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
from fastplan.engine.optimize import Optimize, OptimizeResult, optimize_from, refine_again
from fastplan.engine.problem import Floats, Problem, SearchSpace
from fastplan.engine.solve import Options, Solution, estimate, placer, rate, verify_plan
from fastplan.engine.start_plans import StartPlans
from fastplan.engine.step import step_goal, step_of
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster, Partitioner, Request

# The parts of all memory that starts may use. Shards do not pack without gaps.
_FILLS = (0.98, 0.93, 0.85, 0.7, 0.5, 0.0)
_STARTS = 4  # enough of them
# The share of the budget for the rating, which brings another start.
_RATING_SHARE = 0.15
# The share of the budget for sizes of all kinds; the rest is for sizes near those found.
_FIRST_SHARE = 0.6


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


class _Sized(NamedTuple):
    """Options with several cache sizes, and what plans of them are compared by.

    Attributes:
        sized: the options.
        run_cost: of a shard, in the measure.
        goal: the measure for the optimizer.
    """

    sized: SizedSpace
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
    search = _Search(request, cluster, by_bytes=settings.objectives.measure == "link_bytes")
    options = search.options()
    totals = totals_of(options.sized.space, options.run_cost)
    problem = Problem(options.sized.space, cluster)
    starts = [
        Start(options.sized.own_options(own.space, plan.options), plan.ranks)
        for plan in plans
        if plan.found
    ]
    starts += _priced_starts(problem, totals)
    legal = [s for s in starts if not verify_plan(problem, s.options, s.ranks, math.nan)]
    rated = [(rate(problem, start.options, start.ranks), i) for i, start in enumerate(legal)]
    given = StartPlans(ratings, legal, legal[min(rated)[1]] if rated else None)
    first = _part_of(settings, _FIRST_SHARE)
    found = optimize_from(problem, given, first, began, share=_RATING_SHARE, goal=options.goal)
    if not found.found:
        return Offloaded(result=found, record=None)
    record = search.filled(options.sized, found)
    if _has_time(settings, began):
        found, record = search.with_near_sizes(found, record, settings, began)
    bound = offload_bound(options.sized, totals, cluster)
    if not search.by_bytes:
        bound /= len(cluster.rank_hbm)  # the slowest rank is not below the average
    return search.finished(replace(found, objective_bound=bound), record)


def _part_of(settings: Optimize, share: float) -> Optimize:
    """Returns the settings with a share of the budget."""
    seconds, moves = settings.time_budget, settings.move_budget
    return replace(
        settings,
        time_budget=None if seconds is None else seconds * share,
        move_budget=None if moves is None else max(int(moves * share), 1),
    )


def _has_time(settings: Optimize, began: float) -> bool:
    return settings.time_budget is None or time.perf_counter() - began < settings.time_budget


class _Search:
    """The parts of the search that depend on what is minimised."""

    def __init__(self, request: Request, cluster: Cluster, *, by_bytes: bool) -> None:
        self.request = request
        self.cluster = cluster
        self.by_bytes = by_bytes
        self._counting = counting_link_bytes(request)

    def options(self, near: PlanRecord | None = None) -> _Sized:
        """Returns the options, with sizes near those of a plan if there is one."""
        sized = sized_space(self.request, near)
        if not self.by_bytes:
            return _Sized(sized, _step_cost(sized.space), step_goal(sized.space))
        cost = run_link_bytes(estimate(counting_link_bytes(sized.request)))
        return _Sized(sized, cost, link_goal(self.request, sized.space, cost))

    def filled(self, sized: SizedSpace, found: OptimizeResult) -> PlanRecord:
        """Returns a plan as a record, with the rest of the memory given to its caches."""
        record = PlanRecord.of(sized.space, found.options, found.ranks, found.rating)
        record = replace(record, load_factor=sized.load_factor[found.options])
        request = self._counting if self.by_bytes else self.request
        return filled(request, self.cluster, record, balance=not self.by_bytes)

    def with_near_sizes(
        self, found: OptimizeResult, record: PlanRecord, settings: Optimize, began: float
    ) -> tuple[OptimizeResult, PlanRecord]:
        """Searches on from a plan with exact sizes, among sizes near them."""
        options = self.options(record)
        problem = Problem(options.sized.space, self.cluster)
        numbers = options.sized.options_of(self.request, record)
        start = replace(found, options=numbers, ranks=record.ranks)
        better = refine_again(problem, start, settings, began, options.goal)
        last = self.filled(options.sized, better)
        return better, min((record, last), key=self.value)

    def value(self, record: PlanRecord) -> float:
        """Returns the measure of a plan."""
        if self.by_bytes:
            return self.link_bytes(record)
        final = Problem(estimate(narrowed(self.request, record)), self.cluster)
        return step_of(final, np.arange(len(record.table), dtype=np.int32), record.ranks).ms

    def link_bytes(self, record: PlanRecord) -> float:
        return float(option_link_bytes(estimate(narrowed(self._counting, record))).sum())

    def finished(self, found: OptimizeResult, record: PlanRecord) -> Offloaded:
        """Estimates and verifies the plan again, with the sizes that it has now."""
        final = Problem(estimate(narrowed(self.request, record)), self.cluster)
        numbers = np.arange(len(record.table), dtype=np.int32)
        record = replace(record, rating=rate(final, numbers, record.ranks))
        found = replace(
            found,
            rating=record.rating,
            objective=self.value(record),
            # By bytes, what the search compared is a weighted sum.
            objective_before=None if self.by_bytes else found.objective_before,
            link_bytes=self.link_bytes(record),
        )
        wrong = verify_plan(final, numbers, record.ranks, record.rating)
        return Offloaded(result=found, record=record, wrong=wrong)


def _step_cost(space: SearchSpace) -> Floats:
    assert space.step is not None
    cost = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms + space.run_bwd_comms
    for phase, own in (
        ("input_exchange", space.run_input_dist_comms),
        ("prefetch", space.run_prefetch_compute),
    ):
        if phase not in space.step.hidden:
            cost = cost + own
    return cost


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
