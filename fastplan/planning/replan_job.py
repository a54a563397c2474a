"""Plans one job so that it follows a previous plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.cache.plan_cache import CacheReport, PlanCache
from fastplan.engine.optimize import OptimizeSettings
from fastplan.engine.problem import Problem
from fastplan.engine.solve import OutOfRange
from fastplan.model.job import CannotPlan, Job
from fastplan.model.objectives import NO_OBJECTIVES
from fastplan.model.plan import Plan
from fastplan.model.record import PlanRecord
from fastplan.planning.plan import Laps, Planned, certificate_of, keep, keyed, searched, shortage_of
from fastplan.planning.policy import ReplanPolicy
from fastplan.planning.replan import Replan, Scratch


def replan_job(
    job: Job,
    previous: Plan,
    policy: ReplanPolicy,
    optimization: OptimizeSettings | None = None,
    cache: PlanCache | None = None,
) -> Planned:
    """Plans a job so that it follows a previous plan as far as the policy allows.

    The reference is TorchRec's plan from scratch, or the better one that `optimization` finds. As
    the planner's, the plan is kept in the cache, under a key of its own if it follows, but never
    taken from there: it depends on the previous plan. Raises WrongModel for a plan of another
    model, and CannotPlan as `plan_job` does or for an objective that plans can't follow others by.
    """
    if job.search.objective is not None:
        raise CannotPlan("an objective of your own rates plans, and no plan can follow another")
    if optimization is not None and optimization.objectives != NO_OBJECTIVES:
        raise CannotPlan("a plan can't follow another and keep other objectives, pins or groups")
    laps = Laps()
    replan = Replan(job.request, job.cluster, previous, policy)
    laps.end("request")
    if optimization is None and (planned := _quick(job, replan, cache, laps)) is not None:
        return planned
    job = keyed(job, optimization)
    space, solution, optimized = searched(job, optimization, laps)
    best = solution if optimized is None or not optimized.found else optimized
    scratch = Scratch(best.options, best.ranks, best.rating) if best.found else None
    found = replan.after(Problem(space, job.cluster), scratch)
    if not isinstance(found, str) and found[1].followed:
        # One that does not follow is the plan from scratch, under that one's key.
        job = _following(job, policy)
    laps.end("replan")
    planned = _planned(
        job,
        cache,
        laps,
        proposals=solution.proposals,
        lower_bound=None if optimized is None else optimized.lower_bound,
        certificate=certificate_of(job, space, optimized, optimization),
        optimized=optimized,
    )
    if isinstance(found, str):
        return replace(planned, shortage=shortage_of(job, space, solution.lowest))
    point, report = found
    record = PlanRecord.of(space, point.options, point.ranks, point.rating)
    planned = replace(planned, record=record, replan=report)
    keep(planned, cache)
    laps.end("cache")
    return planned


def _quick(job: Job, replan: Replan, cache: PlanCache | None, laps: Laps) -> Planned | None:
    """A plan that needs none from scratch to be judged by; None where there is none."""
    try:
        found = replan.quick_plan()
    except OutOfRange as error:
        raise CannotPlan(str(error)) from error
    laps.end("replan")
    if found is None:
        return None
    problem, point, report = found
    record = PlanRecord.of(problem.space, point.options, point.ranks, point.rating)
    planned = _planned(_following(job, replan.policy), cache, laps, record=record, replan=report)
    keep(planned, cache)
    laps.end("cache")
    return planned


def _following(job: Job, policy: ReplanPolicy) -> Job:
    return replace(job, context={**job.context, "replan": policy.describe()})


def _planned(job: Job, cache: PlanCache | None, laps: Laps, **results: Any) -> Planned:
    canonical = canonical_request(
        job.request, job.search, ranks=len(job.cluster.rank_hbm), context=job.context
    )
    key = fingerprint(canonical)
    return Planned(
        job=job,
        canonical=canonical,
        key=key,
        cache=_report(job, cache, key, canonical),
        seconds=laps.seconds,
        **{"record": None, **results},
    )


def _report(job: Job, cache: PlanCache | None, key: str, canonical: bytes) -> CacheReport:
    if cache is None or job.uncacheable is not None:
        status, reason = "off", job.uncacheable or "no cache is configured"
    else:
        status, reason = "miss", "it was not looked up"
    return CacheReport(status=status, reason=reason, fingerprint=key, request=canonical)
