"""Plans better than TorchRec's: the optimizer on top of a search that is all native."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from fastplan.cache.plan_cache import Candidate
from fastplan.engine.optimize import Optimized, OptimizeSettings, no_plan, optimize
from fastplan.engine.packed_certificate import pack_certificate, proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import OutOfRange, verify_plan
from fastplan.model.objectives import NO_OBJECTIVES, Objectives, RulesBroken
from fastplan.model.request import Cluster
from fastplan.torchrec.fallback import NotNative
from fastplan.torchrec.read import components
from fastplan.torchrec.read.space import EstimatedSpace, Space
from fastplan.torchrec.run import Run
from fastplan.torchrec.search.native import NativeSearch
from fastplan.torchrec.search.outcome import Outcome

_UNSAID = OptimizeSettings()


def settings_of(
    mode: str,
    time_budget: float | None,
    move_budget: int | None,
    seed: int,
    threads: int,
    objectives: Objectives | None,
) -> OptimizeSettings | None:
    """The settings of a planner whose mode is to improve plans; None for TorchRec's plans."""
    if mode not in ("parity", "optimize"):
        raise ValueError(f'`mode` must be "parity" or "optimize", not {mode!r}')
    settings = OptimizeSettings(
        time_budget=time_budget,
        move_budget=move_budget,
        seed=seed,
        threads=threads,
        objectives=objectives or NO_OBJECTIVES,
    )
    if mode == "optimize":
        return settings
    for name in (field.name for field in fields(settings)):
        if getattr(settings, name) != getattr(_UNSAID, name):
            raise ValueError(f'`{name}` needs `mode="optimize"`: TorchRec\'s plans have none')
    return None


def leave(run: Run, reason: str, settings: OptimizeSettings) -> None:
    """Notes why a plan is TorchRec's. Raises RulesBroken where that may not keep the rules."""
    if settings.objectives.rules:
        raise RulesBroken(f"pins and tables to keep together need the native search: {reason}")
    run.not_optimized = reason


def improve(run: Run, search: Any, outcome: Outcome, settings: OptimizeSettings) -> None:
    """Replaces the outcome's plan by a better one; where it does not, the run tells why."""
    if reason := _why_not(run, search):
        leave(run, reason, settings)
        return
    rules = settings.objectives.rules
    found = optimize(
        search.problem,
        search.search,
        settings,
        start=search.solution,
        names=_names(search.space) if rules else (),
    )
    run.optimized(found)
    if not found.found:
        if rules:
            raise RulesBroken(no_plan(found))
        if outcome.found:
            run.not_optimized = "TorchRec's plan overfills a rank, and no plan was found that fits"
        return
    complaint = verify_plan(search.problem, found.options, found.ranks, found.rating)
    if complaint:
        leave(run, f"the better plan is not sound, please report this: {complaint}", settings)
        return
    outcome.take(search.space, found.options, found.ranks, found.rating)
    outcome.lower_bound = found.lower_bound
    outcome.certificate = partial(_packed, search, found, settings)
    outcome.cut_short = found.stopped_by == "interrupted"


def _why_not(run: Run, search: Any) -> str:
    if not isinstance(search, NativeSearch):
        return f"a part of the search is Python: {run.reason}"
    if search.listening:
        return "the scale-up proposer resizes caches, which the optimizer does not"
    if search.search.objective is not None:
        return f"{search.search.objective.name} rates plans, and not their largest rank"
    return ""


def _names(space: Space) -> list[tuple[str, str]]:
    if not isinstance(space, EstimatedSpace):
        raise RulesBroken("tables can't be named where the search space is enumerated in Python")
    return [(table.path, table.name) for table in space.request.tables]


def _packed(search: NativeSearch, found: Optimized, settings: OptimizeSettings) -> bytes:
    if not isinstance(search.space, EstimatedSpace):
        return b""  # what Python has estimated is not kept
    objectives, names = settings.objectives, _names(search.space)
    return pack_certificate(found.certificate, search.problem, objectives, names)


def proof_of(
    planner: Any, space: EstimatedSpace, cluster: Cluster, kept: Candidate
) -> Callable[[], float | None] | None:
    """How to prove a bound for a plan from a cache; None where nothing can be proven.

    To prove it takes an estimate of every option, which a plan from a cache does not need.
    """
    settings = planner._fastplan.optimization
    if settings is None or not kept.certificate or space.extraction.estimators.custom:
        return None
    if any(map(components.listens, planner._proposers)):
        return None  # plans may have caches of other sizes
    try:
        if components.read_objective(planner._perf_model, len(cluster.rank_hbm)) is not None:
            return None
    except NotNative:
        return None

    def prove() -> float | None:
        try:
            problem = Problem(space.columns, cluster)
        except OutOfRange:
            return None
        packed, rating = kept.certificate, kept.record.rating
        return proven_bound(packed, rating, problem, settings.objectives, _names(space))

    return prove
