"""Plans better than TorchRec's: the optimizer on top of a search that is all native."""

from __future__ import annotations

from typing import Any

from fastplan.bridge.native_search import NativeSearch
from fastplan.bridge.outcome import Outcome
from fastplan.bridge.run import Run
from fastplan.core.optimize import Optimized, OptimizeSettings, optimize
from fastplan.core.record import PlanRecord
from fastplan.core.solve import verify_plan


def is_asked_for(mode: str) -> bool:
    """Whether the planner's mode is to improve plans."""
    if mode not in ("parity", "optimize"):
        raise ValueError(f'`mode` must be "parity" or "optimize", not {mode!r}')
    return mode == "optimize"


def improve(run: Run, search: Any, outcome: Outcome, settings: OptimizeSettings) -> None:
    """Replaces the outcome's plan by a better one; where it does not, the run tells why."""
    if not isinstance(search, NativeSearch):
        run.not_optimized = f"a part of the search is Python: {run.reason}"
        return
    if search.listening:
        run.not_optimized = "the scale-up proposer resizes caches, which the optimizer does not"
        return
    found = optimize(search.problem, search.search, settings, start=search.solution)
    run.optimized(found)
    if not found.found:
        if outcome.found:
            run.not_optimized = "TorchRec's plan overfills a rank, and no plan was found that fits"
        return
    complaint = verify_plan(search.problem, found.options, found.ranks, found.rating)
    if complaint:
        run.not_optimized = f"the better plan is not sound, please report this: {complaint}"
        return
    _take(outcome, search, found)


def _take(outcome: Outcome, search: NativeSearch, found: Optimized) -> None:
    space, options, ranks, rating = search.space, found.options, found.ranks, found.rating
    outcome.found, outcome.rating = True, rating
    outcome.lower_bound = found.lower_bound
    outcome.cut_short = found.stopped_by == "interrupted"
    outcome.best_plan = lambda: space.chosen_options(options, ranks)
    outcome.sharding_plan = lambda topology: space.sharding_plan(options, ranks, topology)
    outcome.record = lambda: PlanRecord.of(search.problem.space, options, ranks, rating)
