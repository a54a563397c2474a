"""Optimizes plans under TorchRec's cost model, with a proven bound."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from fastplan.engine import _native
from fastplan.engine.certificate import (
    Certificate,
    NoBound,
    Slab,
    check_bound,
    lower_bound,
    read_certificate,
)
from fastplan.engine.fewer_kernels import with_fewer_kernels
from fastplan.engine.goals import Goal, goal_of
from fastplan.engine.problem import Problem
from fastplan.engine.rules import ConstrainedProblem
from fastplan.engine.solve import Options, Solution
from fastplan.engine.start_plans import PlacedPlan, StartPlans, TorchRecStartPlans, plan_columns
from fastplan.engine.step import step_bound, step_goal
from fastplan.model.limits import check_numbers, check_whole_numbers
from fastplan.model.objectives import NO_OBJECTIVES, ConstraintError, Objectives
from fastplan.model.request import Search

__all__ = [
    "Certificate",
    "ConstraintError",
    "NoBound",
    "Objectives",
    "Optimize",
    "OptimizeResult",
    "Slab",
    "UnsupportedObjective",
    "check_bound",
    "lower_bound",
    "no_plan",
    "optimize",
    "relative_gap",
]

StoppedBy = Literal["optimal", "time", "moves", "interrupted"]
# In the order of the native core's numbers.
STOPS: tuple[StoppedBy, ...] = ("optimal", "time", "moves", "interrupted")
_NO_LIMIT = 2**62
_MOST_THREADS = 256
# The share of a budget for the rating, if another measure is minimised after it: within a limit on
# the rating, or whatever the rating is. Of six shares from 0.1 to 0.8, 0.35 gave the shortest steps
# on 70 drawn models.
_RATING_SHARE = 0.5
_FREE_SHARE = 0.35


class UnsupportedObjective(ValueError):
    """The search does not rate plans by their largest rank, or the step needs hardware costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize:
    """Search limits. With only a move budget, the same settings give the same plan, if the order of
    options is the same: with `deterministic=True`, or from TorchRec 1.9 on.

    Args:
        time_budget: seconds in total; None for no limit.
        move_budget: the number of moves that all threads together may try; None for no limit.
        seed: the random seed of the search.
        threads: the number of threads of the search.
        objectives: what to minimise, and constraints on placement.
        offload: also choose the sizes of caches. See docs/offload.md.

    Raises:
        TypeError, ValueError: a value is not allowed, or both budgets are None.
    """

    time_budget: float | None = 1.0
    move_budget: int | None = None
    seed: int = 0
    threads: int = 1
    objectives: Objectives = NO_OBJECTIVES
    offload: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, "time_budget")
        check_whole_numbers(self, "move_budget", "seed", "threads")
        if self.time_budget is None and self.move_budget is None:
            raise ValueError("`time_budget` or `move_budget` must be given")
        if self.time_budget is not None and not 0 < self.time_budget < math.inf:
            raise ValueError(f"`time_budget` must be a positive number, not {self.time_budget}")
        if self.move_budget is not None and not 0 < self.move_budget < _NO_LIMIT:
            raise ValueError(f"`move_budget` must be a positive number, not {self.move_budget}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"`seed` must be between 0 and 2**64 - 1, not {self.seed}")
        if not 1 <= self.threads <= _MOST_THREADS:
            raise ValueError(f"`threads` must be between 1 and {_MOST_THREADS}, not {self.threads}")
        known = self.objectives.minimize in (None, "step", "link_bytes")
        if self.offload and (self.objectives.rules or not known):
            raise ValueError(
                "`offload` minimises the step or the link_bytes, without `pins` and `together`"
            )
        if self.objectives.minimize == "link_bytes" and not self.offload:
            raise ValueError("`minimize` can be 'link_bytes' only with `offload`: set `offload`")

    def describe(self) -> dict[str, Any]:
        """Returns the settings as JSON for cache keys."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        if not self.offload:
            del own["offload"]  # as before there was such a setting
        return {**own, "objectives": self.objectives.describe()}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """The best plan found, with a bound on all plans."""

    found: bool
    rating: float  # infinite without a plan
    options: Options  # by plan position: numbers of the search space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    lower_bound: float  # on the rating of every plan that satisfies the constraints
    gap: float  # how far the rating is above the bound, as a share of the bound
    # "optimal": no plan is better, by the bound or because all were seen, which leaves `gap` as it
    # is; without a plan, no plan exists
    stopped_by: StoppedBy
    moves: int
    restarts: int
    trace: tuple[tuple[float, float], ...]  # seconds since the call, rating
    start_ratings: Mapping[str, float]  # of TorchRec's plans; infinite without a plan
    certificate: Certificate  # of the bound; with `pins` or `together`, for the constrained problem
    best_rating: float  # of all plans found; the objective may allow a higher one
    objective: float | None = None  # the minimised measure of this plan, if not the rating
    # and of the plan with the best rating; with "step", of the best start; not with "link_bytes"
    objective_before: float | None = None
    # on the measure of every plan; only with "step" and "link_bytes"
    objective_bound: float | None = None
    link_bytes: float | None = None  # of an offload plan, over all host links in a step


def optimize(
    problem: Problem,
    search: Search,
    settings: Optimize,
    *,
    start: Solution | None = None,
    names: Sequence[tuple[str, str]] = (),
    also: Sequence[Solution | OptimizeResult] = (),
) -> OptimizeResult:
    """Improves the better of TorchRec's default plan and its plan with shards sorted by cost.

    Without an objective, the result is never worse than either. It satisfies every rule of
    TorchRec's own plans and is rated as TorchRec rates it. Ctrl-C ends the search with the best
    plan so far.

    With the objective "step", the start with the best step is improved: one of TorchRec's plans, of
    `also`, or the plan with the best rating, which takes half of the budget at most. The result is
    not worse by the step than any of them.

    Args:
        problem: the problem.
        search: TorchRec's search.
        settings: the search limits and objectives.
        start: the plan that `solve` finds, if already known.
        names: path and name of the tables, for objectives that name tables.
        also: other plans to start from. Those that don't fit are left out; with rules, all are.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
        ConstraintError: no plan can satisfy `pins` and `together`.
        UnsupportedObjective: the search does not rate plans by their largest rank, or the step is
            to be minimised without hardware costs.
    """
    if search.objective is not None:
        raise UnsupportedObjective(
            f"optimize improves a plan's largest rank, and {search.objective.name} rates plans "
            "otherwise: leave out the objective, or plan without optimize"
        )
    objectives = settings.objectives
    if objectives.measure == "step" and problem.space.step is None:
        raise UnsupportedObjective(
            "`minimize` can be 'step' only with hardware costs: plan with hardware costs, or "
            "minimise 'critical_path'"
        )
    began = time.perf_counter()
    by_step = objectives.measure == "step"
    starts = TorchRecStartPlans(problem, search, start, also, by_step)
    if not objectives.rules:
        found = _improve(problem, starts, settings, began)
        return _refine(problem, starts, found, settings, began)
    ruled = ConstrainedProblem(problem, objectives, names)
    own = TorchRecStartPlans(ruled.problem, search, None, (), by_step=False)
    found = _improve(ruled.problem, own, settings, began)
    found = _refine(ruled.problem, own, found, settings, began, ruled)
    options, ranks = ruled.to_original_plan(found.options, found.ranks)
    rating = math.inf
    if found.found:
        rating = _native.rate(problem.handle, {"options": options, "ranks": ranks})
    return replace(
        found,
        options=options,
        ranks=ranks,
        rating=rating,
        gap=relative_gap(found.lower_bound, rating),
        start_ratings=starts.ratings,
    )


def optimize_from(
    problem: Problem,
    starts: StartPlans,
    settings: Optimize,
    began: float,
    *,
    share: float,
    goal: Goal,
) -> OptimizeResult:
    """Improves the best of given plans by a measure, whatever its rating.

    Args:
        problem: the problem.
        starts: the plans.
        settings: the search limits.
        began: when the budget began, by time.perf_counter().
        share: of the budget, for the rating.
        goal: the measure.
    """
    found = _improve(problem, starts, settings, began, share)
    return _refine(problem, starts, found, settings, began, goal=goal)


def refine_again(
    problem: Problem, found: OptimizeResult, settings: Optimize, began: float, goal: Goal
) -> OptimizeResult:
    """Improves a plan by a measure with what is left of a budget.

    Args:
        problem: the problem, which may have other options than the one that `found` is from.
        found: the plan, with options of `problem`, and the moves made so far.
        settings: the search limits of all moves together.
        began: when the budget began, by time.perf_counter().
        goal: the measure.
    """
    none = StartPlans({}, [], None)
    return _refine(problem, none, found, settings, began, goal=goal)


def _improve(
    problem: Problem,
    starts: TorchRecStartPlans | StartPlans,
    settings: Optimize,
    began: float,
    share: float | None = None,
) -> OptimizeResult:
    """Returns the plan with the best rating found."""
    spent = time.perf_counter() - began
    if settings.objectives.measure == "rating":
        share = 1.0
    elif share is None:
        share = _FREE_SHARE if settings.objectives.ignores_rating else _RATING_SHARE
    result = _native.optimize(
        problem.handle, _limits(settings, spent, share), plan_columns(starts.best)
    )
    certificate = read_certificate(result["certificate"])
    return OptimizeResult(
        found=result["found"],
        rating=result["rating"],
        options=result["options"],
        ranks=result["ranks"],
        lower_bound=certificate.value,
        gap=relative_gap(certificate.value, result["rating"]),
        stopped_by=STOPS[result["stopped_by"]],
        moves=result["moves"],
        restarts=result["restarts"],
        trace=tuple((spent + at, rating) for at, rating in result["trace"]),
        start_ratings=starts.ratings,
        certificate=certificate,
        best_rating=result["rating"],
    )


def _refine(
    problem: Problem,
    starts: TorchRecStartPlans | StartPlans,
    found: OptimizeResult,
    settings: Optimize,
    began: float,
    ruled: ConstrainedProblem | None = None,
    goal: Goal | None = None,
) -> OptimizeResult:
    """Returns a plan that is better by the objective or a given goal, within the allowed rating."""
    objectives = settings.objectives
    free = objectives.ignores_rating
    interrupted = found.stopped_by == "interrupted"
    if objectives.measure == "rating" or not found.found or (interrupted and not free):
        return found
    given = ruled.given if ruled is not None else problem
    if goal is None:
        goal = step_goal(given.space) if free else goal_of(given.space, objectives.measure)
    own = (goal if ruled is None else ruled.goal(goal)).columns()
    start: PlacedPlan = found
    if free:
        start = _best_by(problem, [found, *starts.legal], own)
    limit = math.inf if free else found.rating * (1 + objectives.within)
    left = replace(settings, move_budget=_moves_left(settings, found.moves))
    limits = _limits(left, time.perf_counter() - began)
    if interrupted:
        limits["moves"] = 0
    columns = plan_columns(start)
    before = _native.tally(problem.handle, columns, own)["value"]
    if free and ruled is None:
        columns["options"] = with_fewer_kernels(problem, start.options, start.ranks, own)
    result = _native.refine(problem.handle, limits, columns, limit, own)
    if free and ruled is None:
        _take_fewer_kernels(problem, result, own)
    return replace(
        found,
        rating=result["rating"],
        options=result["options"],
        ranks=result["ranks"],
        gap=relative_gap(found.lower_bound, result["rating"]),
        stopped_by="interrupted" if interrupted else STOPS[result["stopped_by"]],
        moves=found.moves + result["moves"],
        objective=result["value"] / goal.scale,
        objective_before=before / goal.scale,
        objective_bound=step_bound(given) if free else None,
    )


def _take_fewer_kernels(
    problem: Problem, result: _native.RefineResult, goal: _native.GoalColumns
) -> None:
    """Improves a result by changes that single moves do not find."""
    plan: _native.PlanColumns = {"options": result["options"], "ranks": result["ranks"]}
    plan["options"] = with_fewer_kernels(problem, plan["options"], plan["ranks"], goal)
    result["options"] = plan["options"]
    result["value"] = _native.tally(problem.handle, plan, goal)["value"]
    result["rating"] = _native.rate(problem.handle, plan)


def _best_by(problem: Problem, plans: list[PlacedPlan], goal: _native.GoalColumns) -> PlacedPlan:
    return min(
        plans, key=lambda plan: _native.tally(problem.handle, plan_columns(plan), goal)["value"]
    )


def _limits(settings: Optimize, spent: float, share: float = 1.0) -> _native.OptimizeLimits:
    seconds, moves = math.inf, _NO_LIMIT
    if settings.time_budget is not None:
        seconds = max(settings.time_budget * share - spent, 0.0)
    if settings.move_budget is not None:
        moves = max(int(settings.move_budget * share), 1)
    return {
        "seconds": seconds,
        "moves": moves,
        "seed": settings.seed,
        "threads": settings.threads,
    }


def _moves_left(settings: Optimize, made: int) -> int | None:
    return None if settings.move_budget is None else max(settings.move_budget - made, 1)


def no_plan(found: OptimizeResult) -> str:
    """Returns the message for constraints without a plan."""
    if found.stopped_by == "optimal":
        return "no plan satisfies `pins` and `together`"
    return (
        "no plan that satisfies `pins` and `together` was found within the budget; "
        "a larger budget may find one"
    )


def relative_gap(bound: float, rating: float) -> float:
    """Returns how far a rating is above the bound, as a share of the bound."""
    if rating <= bound:
        return 0.0
    return (rating - bound) / bound if bound > 0 else math.inf
