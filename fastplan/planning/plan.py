"""Plans one job, from the cache if it is there."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastplan import __version__
from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.cache.plan_cache import CacheReport, Candidate, PlanCache, StoreError, smaller
from fastplan.engine.layout import layout_of
from fastplan.engine.narrow import narrowed
from fastplan.engine.optimize import Optimized, OptimizeSettings, no_plan, optimize
from fastplan.engine.packed_certificate import pack_certificate, proven_bound
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.reachable import check_reachable
from fastplan.engine.solve import OutOfRange, estimate, solve, verify_plan
from fastplan.model.job import CannotPlan, Job
from fastplan.model.objectives import RulesBroken
from fastplan.model.plan import Basis, Plan
from fastplan.model.record import BadRecord, PlanRecord
from fastplan.model.solution import Solution
from fastplan.planning.replan import ReplanReport

_CUT_BY_ROWS = frozenset({"row_wise", "table_row_wise", "grid_shard"})
_IN_HOST_MEMORY = frozenset({"fused_uvm", "fused_uvm_caching", "quant_uvm", "quant_uvm_caching"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why nothing fits: the proposal that needs least, against what there is, in bytes."""

    needed: dict[str, int]  # by tier, over all ranks
    available: dict[str, int]
    largest_table: str  # the table with the largest shard of that proposal
    largest_shard: int
    largest_rank: int  # what the roomiest rank has of the tier that is short
    tier: str
    # what that table is not allowed and what would make its shards smaller there, in words
    forbidden: tuple[str, ...] = ()

    @property
    def largest(self) -> str:
        """The table that is hardest to place, and what to do if no rank can hold a shard of it."""
        from fastplan.spec.units import format_size

        told = (
            f"the largest shard is {format_size(self.largest_shard)} of table "
            f"{self.largest_table} in {self.tier.upper()}, and a rank has "
            f"{format_size(self.largest_rank)} there"
        )
        if self.largest_shard > self.largest_rank and self.forbidden:
            told += f": allow that table {', or '.join(self.forbidden)}"
        return told

    def __str__(self) -> str:
        from fastplan.spec.units import format_size

        needed, there = self.needed[self.tier], self.available[self.tier]
        if needed > there:
            return (
                f"short of {format_size(needed - there)} {self.tier.upper()}: at least "
                f"{format_size(needed)} are needed on all ranks together, and there are "
                f"{format_size(there)}"
            )
        if self.largest_shard > self.largest_rank:
            return (
                f"table {self.largest_table} needs {format_size(self.largest_shard)} of "
                f"{self.tier.upper()} on one rank, and the largest rank has "
                f"{format_size(self.largest_rank)}"
            )
        return (
            f"{format_size(needed)} of {format_size(there)} {self.tier.upper()} would be needed, "
            "but the shards do not pack onto the ranks"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What came of a job. Without a record nothing fits, and `shortage` tells by how much."""

    job: Job
    canonical: bytes = field(repr=False)
    key: str
    cache: CacheReport
    record: PlanRecord | None
    shortage: Shortage | None = None
    proposals: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    replan: ReplanReport | None = None  # what came of a previous plan
    lower_bound: float | None = None  # no plan is rated below, where that was proven
    certificate: bytes = field(default=b"", repr=False)  # what proves it, packed
    optimized: Optimized | None = None  # what came of improving TorchRec's plan

    @property
    def rating(self) -> float | None:
        """The plan's cost in TorchRec's unit; None where nothing fits."""
        return None if self.record is None else self.record.rating

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search for a better plan."""
        return self.optimized is not None and self.optimized.stopped_by == "interrupted"

    def plan(self, notes: dict[str, str] | None = None) -> Plan:
        """The plan with all that is known about it."""
        if self.record is None:
            raise CannotPlan(f"nothing fits: {self.shortage}")
        job = self.job
        layout = layout_of(job.request, job.cluster, self.record, device=job.device)
        tables = tuple(
            table._replace(settings=job.settings[number]) if job.settings[number] else table
            for table, number in zip(layout.tables, self.record.table.tolist(), strict=True)
        )
        return Plan(
            name=job.name,
            layout=type(layout)(
                tables=tables, device=layout.device, ranks_per_host=layout.ranks_per_host
            ),
            fingerprint=self.key,
            notes={
                "model": job.name,
                "engine": "native",
                "cache": self.cache.status,
                "fastplan": __version__,
                "torchrec": str(job.context["torchrec"]),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **self._proven(),
                **_functions(job),
                **(notes or {}),
            },
            basis=Basis(
                canonical=self.canonical,
                request=job.request,
                cluster=job.cluster,
                record=self.record,
                certificate=self.certificate,
            ),
        )

    def _proven(self) -> dict[str, str]:
        notes = {} if self.lower_bound is None else {"lower_bound": repr(self.lower_bound)}
        found = self.optimized
        if found is not None:
            notes["stopped_by"] = found.stopped_by
            notes |= {
                f"torchrec_{name}": repr(rating)
                for name, rating in found.start_ratings.items()
                if math.isfinite(rating)
            }
        return notes


def _functions(job: Job) -> dict[str, str]:
    """The names of custom functions that took part."""
    pricing, objective = job.request.pricing, job.search.objective
    named = {} if pricing is None else {"cost": pricing.function.name}
    return named if objective is None else {**named, "objective": objective.name}


def plan_job(
    job: Job, cache: PlanCache | None = None, optimization: OptimizeSettings | None = None
) -> Planned:
    """Plans a job as fastplan's planner would inside TorchRec. Infeasible is an answer, no error.

    With `optimization`, TorchRec's plan is improved; Ctrl-C ends that with the best plan so far,
    which is not cached. Raises CannotPlan for numbers beyond exact arithmetic and for a better plan
    that fails verification, and RulesBroken for pins and the like that are not kept.
    """
    job = keyed(job, optimization)
    laps = Laps()
    cluster = job.cluster
    canonical = canonical_request(
        job.request, job.search, ranks=len(cluster.rank_hbm), context=job.context
    )
    key = fingerprint(canonical)
    report = CacheReport(status="off", fingerprint=key, request=canonical)
    laps.end("request")
    known = _cached(job, key, cache, report, optimization)
    bound = None if known is None else _bound_of(known, job, optimization)
    laps.end("cache")
    if known is not None:
        return Planned(
            job=job,
            canonical=canonical,
            key=key,
            cache=report,
            record=known.record,
            seconds=laps.seconds,
            lower_bound=bound,
            certificate=b"" if bound is None else known.certificate,
        )
    space, solution, optimized = searched(job, optimization, laps)
    best = solution if optimized is None or not optimized.found else optimized
    record = shortage = None
    if best.found:
        record = PlanRecord.of(space, best.options, best.ranks, best.rating)
    else:
        shortage = shortage_of(job, space, solution.lowest)
    planned = Planned(
        job=job,
        canonical=canonical,
        key=key,
        cache=report,
        record=record,
        shortage=shortage,
        proposals=solution.proposals,
        seconds=laps.seconds,
        lower_bound=optimized.lower_bound if optimized is not None and best.found else None,
        certificate=certificate_of(job, space, optimized, optimization),
        optimized=optimized,
    )
    keep(planned, cache)
    laps.end("cache")
    return planned


def keyed(job: Job, optimization: OptimizeSettings | None) -> Job:
    """The job as a cache key has it: better plans are not TorchRec's."""
    if optimization is None:
        return job
    return replace(job, context={**job.context, "optimize": optimization.describe()})


class Laps:
    """Seconds by phase, from the end of one to the end of the next."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._clock
        self._clock = now


def searched(
    job: Job, optimization: OptimizeSettings | None, laps: Laps
) -> tuple[SearchSpace, Solution, Optimized | None]:
    """The search space, TorchRec's plan, and a better one where that is asked for."""
    optimized = None
    try:
        space = estimate(job.request)
        laps.end("estimate")
        problem = Problem(space, job.cluster)
        solution = solve(problem, job.search)
        laps.end("search")
        if optimization is not None:
            optimized = _improved(job, problem, solution, optimization)
            laps.end("optimize")
    except OutOfRange as error:
        raise CannotPlan(str(error)) from error
    return space, solution, optimized


def _improved(job: Job, problem: Problem, start: Solution, settings: OptimizeSettings) -> Optimized:
    names = [(table.path, table.name) for table in job.request.tables]
    found = optimize(problem, job.search, settings, start=start, names=names)
    if not found.found:
        if settings.objectives.rules:
            raise RulesBroken(no_plan(found))
        return found
    complaint = verify_plan(problem, found.options, found.ranks, found.rating)
    if complaint:
        raise CannotPlan(
            f"the better plan is not sound, please report this: {complaint}; without "
            "optimization there is TorchRec's plan"
        )
    return found


def _cached(
    job: Job,
    key: str,
    cache: PlanCache | None,
    report: CacheReport,
    optimization: OptimizeSettings | None,
) -> Candidate | None:
    """The stored plan, verified; what came of it is told in the report."""
    if cache is None or job.uncacheable is not None:
        report.reason = job.uncacheable or "no cache is configured"
        return None

    def accept(candidate: Candidate) -> Candidate:
        record = candidate.record
        space = estimate(narrowed(job.request, record))
        numbers = np.arange(len(record.table), dtype=np.int32)
        problem, objective = Problem(space, job.cluster), job.search.objective
        if complaint := verify_plan(problem, numbers, record.ranks, record.rating, objective):
            raise BadRecord(complaint)
        slack = 0.0 if optimization is None else optimization.objectives.slack
        if not candidate.trusted and math.isfinite(slack):
            solved = Problem(estimate(job.request), smaller(job.cluster, candidate.capacities))
            check_reachable(record, solved, job.search, slack=slack)
        return candidate

    try:
        known, reason = cache.find(key, job.cluster, accept)
    except StoreError as problem:
        report.status, report.reason = "failed", str(problem)
        return None
    report.status, report.reason = ("miss", reason) if known is None else ("hit", None)
    return known


def _bound_of(known: Candidate, job: Job, optimization: OptimizeSettings | None) -> float | None:
    """The bound that a stored plan's certificate proves on these devices."""
    if optimization is None or not known.certificate or job.search.objective is not None:
        return None
    try:
        problem = Problem(estimate(job.request), job.cluster)
    except OutOfRange:
        return None
    rating, objectives = known.record.rating, optimization.objectives
    return proven_bound(known.certificate, rating, problem, objectives, _names(job))


def certificate_of(
    job: Job,
    space: SearchSpace,
    optimized: Optimized | None,
    optimization: OptimizeSettings | None,
) -> bytes:
    """What proves the bound of a better plan, packed; none where there is none."""
    if optimized is None or optimization is None or not optimized.found:
        return b""
    problem, objectives = Problem(space, job.cluster), optimization.objectives
    return pack_certificate(optimized.certificate, problem, objectives, _names(job))


def _names(job: Job) -> list[tuple[str, str]]:
    return [(table.path, table.name) for table in job.request.tables]


def keep(planned: Planned, cache: PlanCache | None) -> None:
    """Stores a plan that the cache lacks, unless its search was interrupted; what came of it is
    told in the plan's report."""
    job, record, report = planned.job, planned.record, planned.cache
    if cache is None or record is None or report.status != "miss" or planned.interrupted:
        return
    facts: dict[str, Any] = {
        "torchrec": job.context["torchrec"],
        "tables": len(record.table),
        "ranks": len(job.cluster.rank_hbm),
        "engine": "native",
        "model": job.name,
    }
    plan = record, job.cluster, planned.canonical, facts, planned.certificate
    try:
        cache.put(planned.key, *plan)
    except StoreError as problem:
        report.status, report.reason = "failed", str(problem)


def shortage_of(job: Job, space: SearchSpace, options: Any) -> Shortage:
    """What the proposal that needs least storage lacks."""
    cluster = job.cluster
    ranks = {"hbm": cluster.rank_hbm, "ddr": cluster.rank_ddr, "ssd": cluster.rank_ssd}
    chosen = np.asarray(options, np.int64)
    begin, end = space.option_run_begin[chosen], space.option_run_begin[chosen + 1]
    runs = np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)])
    owner = np.repeat(chosen, end - begin)
    needed, available, pressure = {}, {}, {}
    for tier, capacity in ranks.items():
        size = getattr(space, f"run_{tier}")[runs]
        needed[tier] = int((size * space.run_count[runs]).sum())
        available[tier] = int(sum(max(0, n) for n in capacity))
        room = max(max(capacity), 1)
        pressure[tier] = max(needed[tier] / max(available[tier], 1), int(size.max()) / room)
    tier = max(pressure, key=lambda name: pressure[name])
    size = getattr(space, f"run_{tier}")[runs]
    largest = int(size.argmax())
    table = int(np.searchsorted(space.table_option_begin, owner[largest], side="right")) - 1
    return Shortage(
        needed=needed,
        available=available,
        largest_table=job.request.tables[table].name,
        largest_shard=int(size[largest]),
        largest_rank=max(ranks[tier]),
        tier=tier,
        forbidden=tuple(_forbidden(job, table, tier)),
    )


def _forbidden(job: Job, table: int, tier: str) -> Iterator[str]:
    """What the menu of a table lacks that would need less of a tier on a rank."""
    request = job.request
    menu = request.menus[request.tables[table].menu]
    if not _CUT_BY_ROWS & {item.sharding_type for item in menu}:
        yield "sharding types that cut it"
    if tier == "hbm" and not _IN_HOST_MEMORY & {item.kernel for item in menu}:
        yield "kernels in host memory"
