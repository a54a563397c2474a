"""Plans better than TorchRec's under its own cost model, and how good they are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fastplan.core import _native
from fastplan.core.certificate import (
    Certificate,
    NoBound,
    Slab,
    check_bound,
    lower_bound,
    read_certificate,
)
from fastplan.core.problem import Problem
from fastplan.core.solution import Options, Solution
from fastplan.core.solve import solve, verify
from fastplan.spec.request import Search

__all__ = [
    "Certificate",
    "NoBound",
    "OptimizeSettings",
    "Optimized",
    "Slab",
    "check_bound",
    "gap_above",
    "lower_bound",
    "optimize",
]

StoppedBy = Literal["optimal", "time", "moves", "interrupted"]
# In the order of the native core's numbers.
_STOPS: tuple[StoppedBy, ...] = ("optimal", "time", "moves", "interrupted")
_NO_LIMIT = 2**62
_MOST_THREADS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """How long to search. With a budget of moves alone, the same settings give the same plan."""

    time_budget: float | None = 1.0  # seconds, all in all
    move_budget: int | None = None  # over all threads
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if self.time_budget is None and self.move_budget is None:
            raise ValueError("`time_budget` or `move_budget` must be given")
        if self.time_budget is not None and not 0 < self.time_budget < math.inf:
            raise ValueError(f"`time_budget` must be a positive number, not {self.time_budget}")
        if self.move_budget is not None and not 0 < self.move_budget < _NO_LIMIT:
            raise ValueError(f"`move_budget` must be a positive number, not {self.move_budget}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"`seed` must be between 0 and 2**64 - 1, not {self.seed}")
        if not 1 <= self.threads <= _MOST_THREADS:
            raise ValueError(f"`threads` must be between 1 and {_MOST_THREADS}")

    def describe(self) -> dict[str, Any]:
        """As a cache key has them, in JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """The best plan found, and what is known about better ones."""

    found: bool
    rating: float  # infinite when there is none
    options: Options  # by plan position: numbers of the search space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    lower_bound: float  # no plan is rated below
    gap: float  # how far the rating is above the bound, as a part of the bound
    stopped_by: StoppedBy  # "optimal" without a plan: there is none
    moves: int
    restarts: int
    trace: tuple[tuple[float, float], ...]  # seconds since the call, rating
    start_ratings: Mapping[str, float]  # of TorchRec's plans; infinite where there is none
    certificate: Certificate


def optimize(
    problem: Problem,
    search: Search,
    settings: OptimizeSettings,
    *,
    start: Solution | None = None,
) -> Optimized:
    """Improves on the better of TorchRec's default plan and its plan with shards sorted by cost.

    `start` is TorchRec's default plan where that is known already. The result is never worse than
    either, keeps every rule of TorchRec's own plans and is rated as TorchRec rates it. Ctrl-C ends
    the search with the best plan so far. Raises OutOfRange like solve().
    """
    began = time.perf_counter()
    starts = {"default": start or solve(problem, search), "perf_sorted": _by_perf(problem, search)}
    # TorchRec's memory-balanced partitioner may overfill ranks that are smaller than others.
    ratings = {
        name: plan.rating if plan.found and not verify(problem, plan) else math.inf
        for name, plan in starts.items()
    }
    best = min(ratings, key=lambda name: ratings[name])
    first = starts[best] if math.isfinite(ratings[best]) else None
    spent = time.perf_counter() - began
    seconds = math.inf
    if settings.time_budget is not None:
        seconds = max(settings.time_budget - spent, 0.0)
    none = np.zeros(0, np.int32)
    result = _native.optimize(
        problem.columns(),
        {
            "seconds": seconds,
            "moves": settings.move_budget or _NO_LIMIT,
            "seed": settings.seed,
            "threads": settings.threads,
        },
        {
            "options": none if first is None else first.options,
            "ranks": none if first is None else first.ranks,
        },
    )
    certificate = read_certificate(result["certificate"])
    return Optimized(
        found=result["found"],
        rating=result["rating"],
        options=result["options"],
        ranks=result["ranks"],
        lower_bound=certificate.value,
        gap=gap_above(certificate.value, result["rating"]),
        stopped_by=_STOPS[result["stopped_by"]],
        moves=result["moves"],
        restarts=result["restarts"],
        trace=tuple((spent + at, rating) for at, rating in result["trace"]),
        start_ratings=ratings,
        certificate=certificate,
    )


def _by_perf(problem: Problem, search: Search) -> Solution:
    partitioner = replace(search.partitioner, sort_by_perf=True, memory_balanced=False)
    return solve(problem, replace(search, partitioner=partitioner))


def gap_above(bound: float, rating: float) -> float:
    """How far a rating is above the bound, as a part of the bound."""
    if rating <= bound:
        return 0.0
    return (rating - bound) / bound if bound > 0 else math.inf
