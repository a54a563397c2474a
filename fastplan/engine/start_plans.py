"""Plans that the optimizer starts from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Options, Solution, measure_of, solve, verify, verify_plan
from fastplan.model.request import Search


class PlacedPlan(Protocol):
    """Options and the ranks of their shards."""

    @property
    def options(self) -> Options: ...
    @property
    def ranks(self) -> Options: ...


class StartPlans(NamedTuple):
    """Plans to start from.

    Attributes:
        ratings: of TorchRec's plans; infinite without a plan.
        legal: all plans that fit.
        best: the one with the best rating; None if none fits.
    """

    ratings: Mapping[str, float]
    legal: Sequence[PlacedPlan]
    best: PlacedPlan | None


class FoundPlan(PlacedPlan, Protocol):
    """What a search found, which may be nothing."""

    @property
    def found(self) -> bool: ...


def plan_columns(plan: PlacedPlan | None) -> _native.PlanColumns:
    """Returns a plan as the native core takes it; None is no plan."""
    none = np.zeros(0, np.int32)
    return {
        "options": none if plan is None else plan.options,
        "ranks": none if plan is None else plan.ranks,
    }


class TorchRecStartPlans:
    """TorchRec's plans (the default one, and one with shards sorted by cost), and given ones."""

    def __init__(
        self,
        problem: Problem,
        search: Search,
        default: Solution | None,
        also: Sequence[FoundPlan],
        by_step: bool,
    ) -> None:
        partitioner = replace(search.partitioner, sort_by_perf=True, memory_balanced=False)
        by_perf = replace(search, partitioner=partitioner)
        own = default if measure_of(problem, search) == "rating" else None
        plans = {
            "default": own or solve(problem, search, by="rating"),
            "perf_sorted": solve(problem, by_perf, by="rating"),
        }
        if by_step:
            also = [default or solve(problem, search), solve(problem, by_perf), *also]
        # TorchRec's memory-balanced partitioner may overfill ranks that are smaller than others.
        self.ratings = {
            name: plan.rating if plan.found and not verify(problem, plan) else math.inf
            for name, plan in plans.items()
        }
        rated: list[tuple[float, FoundPlan]] = [
            (self.ratings[name], plan) for name, plan in plans.items()
        ]
        for plan in also:
            # Its rating may be one by other costs.
            if plan.found and not verify_plan(problem, plan.options, plan.ranks, math.nan):
                rated.append((_native.rate(problem.handle, plan_columns(plan)), plan))
        self.legal = [plan for rating, plan in rated if math.isfinite(rating)]
        best, plan = min(rated, key=lambda pair: pair[0])
        self.best = plan if math.isfinite(best) else None
