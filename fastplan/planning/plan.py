"""Plans one job. TorchRec's planner, the command line and sweeps all call this."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fastplan.cache.plan_cache import Cache, CacheReport
from fastplan.engine.optimize import Optimize, OptimizeResult, no_plan
from fastplan.engine.optimize import optimize as improve
from fastplan.engine.packed_certificate import pack_certificate
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Solution, estimate, solve, verify_plan
from fastplan.model.job import Job
from fastplan.model.objectives import ConstraintError
from fastplan.model.plan import Plan
from fastplan.model.request import Search
from fastplan.planning.caching import CacheSession
from fastplan.planning.policy import Replan, key_of
from fastplan.planning.run import Run
from fastplan.planning.search import Placement, Result, SearchBackend, Searched, table_names

if TYPE_CHECKING:
    from fastplan.planning.replan_session import ReplanSession

NO_CACHE = CacheReport(status="off", reason="no cache is configured")


def plan(
    job: Job,
    *,
    cache: Cache | None = None,
    optimize: Optimize | None = None,
    previous: Plan | None = None,
    replan: Replan | None = None,
    backend: SearchBackend | None = None,
    run: Run | None = None,
) -> Result:
    """Plans a job as TorchRec's planner does. A job that does not fit is a result, not an error.

    Args:
        job: the job to plan.
        cache: where plans are looked up and stored.
        optimize: the settings of the optimizer; None for TorchRec's plan. Ctrl-C ends the
            optimizer with the best plan so far, which is not stored.
        previous: a plan to follow. The new plan is stored in the cache but never read from it,
            because it depends on `previous`.
        replan: the policy for following `previous`, or else the nearest plan in the cache.
        backend: runs the search; by default the native core.
        run: records the seconds of each phase.

    Returns:
        The plan, with its cache report, its bound and the reasons for any fallback.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
        CostError: a custom cost or objective fails.
        ConstraintError: no plan was found that satisfies `pins` and `together`.
        PlanModelMismatch: `previous` is a plan of another model.
    """
    run = run or Run()
    backend = backend or SearchBackend(job)
    optimize = _for_costs(optimize, job)
    use, session = None, None
    if previous is not None or replan is not None:
        from fastplan.planning.replan_session import ReplanSession

        use = CacheSession(backend, cache, optimize)
        session = ReplanSession(backend, use, previous, replan, optimize, run)
    elif cache is not None:
        use = CacheSession(backend, cache, optimize)
    result = _known(use, session, run, given=previous is not None)
    if result is None:
        searched = backend.search(run)
        result = Result(
            job=job,
            engine=run.engine,
            reason=run.reason,
            make_key=partial(key_of, job, optimize),
            cache=NO_CACHE,
            placement=searched.placement,
            searched=searched,
        )
        if optimize is not None:
            with run.phase("optimize"):
                result = _optimized(result, searched, optimize, backend)
        if session is not None:
            result = session.follow(result, searched)
    return _stored(use, session, result, run)


def _for_costs(optimize: Optimize | None, job: Job) -> Optimize | None:
    """Returns the settings with the measure that they minimise under the job's costs.

    Raises:
        ConstraintError: the step is to be minimised, and the costs are TorchRec's.
    """
    if optimize is None:
        return None
    has_step = job.request is not None and job.request.hardware is not None
    minimize = optimize.objectives.minimize
    if optimize.offload and not has_step:
        raise ConstraintError("`offload` needs hardware costs: plan with `costs: hardware`")
    if minimize == "step" and not has_step:
        raise ConstraintError("`minimize: step` needs hardware costs, and these are TorchRec's")
    if minimize is not None or not has_step:
        return optimize
    return replace(optimize, objectives=replace(optimize.objectives, minimize="step"))


def _known(
    use: CacheSession | None, session: ReplanSession | None, run: Run, *, given: bool
) -> Result | None:
    """Returns a plan without a search: a stored one, or one that follows another."""
    if use is not None and not given:
        with run.phase("cache"):
            result = use.find()
        run.cache = use.report
        if result is not None:
            return result
    return None if session is None else session.begin()


def _optimized(
    result: Result, searched: Searched, settings: Optimize, backend: SearchBackend
) -> Result:
    """Returns an optimized plan, or TorchRec's plan with the reason."""
    if reason := _why_not_improved(searched):
        return _not_optimized(result, reason, settings)
    problem, solution = searched.problem, searched.solution
    assert problem is not None
    assert solution is not None
    if settings.offload:
        return _offloaded(result, searched, settings, backend)
    rules = settings.objectives.rules
    if rules and not backend.estimates_natively:
        raise ConstraintError("tables can't be named if Python enumerates the search space")
    names = table_names(result.job) if rules else ()
    found = improve(
        problem,
        searched.search,
        settings,
        start=solution,
        names=names,
        also=_torchrec_plans(result.job, searched.search, settings),
    )
    result = replace(result, optimized=found)
    if not found.found:
        if rules:
            raise ConstraintError(no_plan(found))
        overfull = "TorchRec's plan overfills a rank, and no plan was found that fits"
        return replace(result, not_optimized=overfull) if solution.found else result
    if complaint := verify_plan(problem, found.options, found.ranks, found.rating):
        unsound = f"the optimized plan failed verification; please report this: {complaint}"
        return _not_optimized(result, unsound, settings)
    assert searched.space is not None
    return replace(
        result,
        placement=Placement(searched.space, found.options, found.ranks, found.rating),
        bound=lambda: found.lower_bound,
        # Costs from Python are not stored, so the proof could not be checked later.
        proof=partial(_packed, result.job, problem, found, settings)
        if backend.estimates_natively
        else bytes,
    )


def _offloaded(
    result: Result, searched: Searched, settings: Optimize, backend: SearchBackend
) -> Result:
    """Returns a plan with cache sizes of its own, or TorchRec's plan with the reason."""
    from fastplan.engine.offload import offload

    job, problem, solution = result.job, searched.problem, searched.solution
    assert job.request is not None
    assert problem is not None
    assert solution is not None
    if not backend.estimates_natively or job.request.pricing is not None:
        return replace(result, not_optimized="`offload` needs the hardware costs alone")
    default = solution.rating if solution.found else math.inf
    made = offload(
        job.request,
        job.cluster,
        settings,
        own=problem,
        plans=[solution, *_torchrec_plans(job, searched.search, settings)],
        ratings={"default": default},
    )
    result = replace(result, optimized=made.result)
    if made.record is None:
        return result
    if made.wrong:
        unsound = f"the offload plan failed verification; please report this: {made.wrong}"
        return replace(result, not_optimized=unsound)
    record = made.record
    numbers = np.arange(len(record.table), dtype=np.int32)
    placed = Placement(backend.chosen(record), numbers, record.ranks, record.rating, record)
    return replace(result, placement=placed)


def _torchrec_plans(job: Job, search: Search, settings: Optimize) -> tuple[Solution, ...]:
    """Returns the plan under TorchRec's costs if the rating does not count, as one more start.

    Options have the same numbers under all costs.
    """
    request = job.request
    free = settings.objectives.ignores_rating
    if not free or request is None or request.pricing is not None:
        return ()
    stock = solve(Problem(estimate(replace(request, hardware=None)), job.cluster), search)
    return (stock,) if stock.found else ()


def _why_not_improved(searched: Searched) -> str:
    if searched.fixed:
        return searched.fixed
    objective = searched.search.objective
    if objective is None:
        return ""
    return f"{objective.name} is a custom objective, which the optimizer does not support"


def _not_optimized(result: Result, reason: str, settings: Optimize) -> Result:
    """Returns TorchRec's plan and the reason. Raises ConstraintError if it may break a rule."""
    if settings.objectives.rules:
        raise ConstraintError(f"`pins` and `together` need the native search: {reason}")
    return replace(result, not_optimized=reason)


def _packed(job: Job, problem: Problem, found: OptimizeResult, settings: Optimize) -> bytes:
    names = table_names(job)
    return pack_certificate(found.certificate, problem, settings.objectives, names)


def _stored(
    use: CacheSession | None, session: ReplanSession | None, result: Result, run: Run
) -> Result:
    """Stores the result under the key of how it was found, and returns it."""
    if use is None or result.cache.status == "hit":
        run.cache = result.cache
        return result
    kept = use if session is None else session.use_for(result)
    with run.phase("cache"):
        kept.keep(result)
    run.cache = kept.report
    return replace(result, cache=kept.report, make_key=lambda: kept.key)
