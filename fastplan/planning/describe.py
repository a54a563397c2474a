"""Converts a result to a plan for files and reports."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastplan import __version__
from fastplan.engine.layout import chosen_space, layout_in, layout_of
from fastplan.engine.solve import OutOfRange
from fastplan.model.job import CannotPlan, Job, SpecJob
from fastplan.model.plan import BadRecord, Basis, Layout, Plan, PlanRecord
from fastplan.model.request import Request
from fastplan.planning.policy import why_no_key
from fastplan.planning.search import Result


def described(result: Result, notes: dict[str, str] | None = None) -> Plan:
    """Returns the plan of a spec's job, with its notes and its basis.

    Args:
        result: the result of planning the job.
        notes: more notes for the plan.

    Raises:
        CannotPlan: nothing fits.
    """
    job, record = result.job, result.record
    assert isinstance(job, SpecJob)
    if record is None:
        raise CannotPlan(f"nothing fits: {shortage_of(result)}")
    return Plan(
        name=job.name,
        layout=_layout(job, record),
        fingerprint=result.key.fingerprint,
        notes={
            "model": job.name,
            "engine": result.engine,
            "cache": result.cache.status,
            "fastplan": __version__,
            "torchrec": str(job.context["torchrec"]),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **_proven(result),
            **_functions(job),
            **({} if result.replication is None else result.replication.notes),
            **(notes or {}),
        },
        basis=_basis(result, record),
    )


def basis_of(result: Result) -> Basis | str:
    """Returns the basis of a plan, or the reason why it has none."""
    job, record = result.job, result.record
    if job.request is None or record is None:
        return result.reason or job.uncacheable or "the plan can't be written as a record"
    unusable = job.uncacheable or result.key.unusable
    if unusable is not None:
        return unusable
    try:
        chosen_space(job.request, record)
    except (OutOfRange, BadRecord) as why:
        return str(why)
    return _basis(result, record)


def plan_to_follow(result: Result, *, estimated: bool = False) -> Plan | str:
    """Returns a plan for a job that follows it, or the reason why there is none.

    It has no canonical request and no certificate, which take longer than to follow it.

    Args:
        result: the result with the plan.
        estimated: whether the core has estimated the plan's space from the job's request.
    """
    job, record = result.job, result.record
    if job.request is None or record is None:
        return result.reason or job.uncacheable or "the plan can't be written as a record"
    if unusable := why_no_key(job):
        return unusable
    placement = result.placement
    try:
        if estimated and placement is not None and placement.stored is None:
            columns, options = placement.space.columns, placement.options
            layout = layout_in(job.request, job.cluster, record, columns, options)
        else:
            layout = layout_of(job.request, job.cluster, record)
    except (OutOfRange, BadRecord) as why:
        return str(why)
    basis = Basis(canonical=b"", request=job.request, cluster=job.cluster, record=record)
    return Plan(name="previous plan", layout=layout, basis=basis)


def _basis(result: Result, record: PlanRecord) -> Basis:
    job = result.job
    assert job.request is not None
    return Basis(
        canonical=result.key.request,
        request=job.request,
        cluster=job.cluster,
        record=record,
        certificate=b"" if result.lower_bound is None else result.certificate,
    )


def _layout(job: SpecJob, record: PlanRecord) -> Layout:
    layout = layout_of(job.request, job.cluster, record, device=job.device)
    tables = tuple(
        table._replace(settings=_with_size(job.settings[number], factor))
        for table, number, factor in zip(
            layout.tables, record.table.tolist(), record.load_factor.tolist(), strict=True
        )
    )
    return replace(layout, tables=tables)


def _with_size(settings: dict[str, Any], load_factor: float) -> dict[str, Any]:
    """Returns the settings of a table, with the size that the plan gives its cache."""
    if math.isnan(load_factor):
        return settings
    cache = {**settings.get("cache_params", {}), "load_factor": load_factor}
    return {**settings, "cache_params": cache}


def _proven(result: Result) -> dict[str, str]:
    bound, found = result.lower_bound, result.optimized
    notes = {} if bound is None else {"lower_bound": repr(bound)}
    if found is not None:
        notes["stopped_by"] = found.stopped_by
        if found.link_bytes is not None:
            notes["link_bytes"] = f"{found.link_bytes:.0f}"
        notes |= {
            f"torchrec_{name}": repr(rating)
            for name, rating in found.start_ratings.items()
            if math.isfinite(rating)
        }
    return notes


def _functions(job: Job) -> dict[str, str]:
    """Returns the names of the custom functions of a job."""
    assert job.request is not None
    pricing, objective = job.request.pricing, job.search.objective
    named = {} if pricing is None else {"cost": pricing.function.name}
    if job.request.hardware is not None:
        named["costs"] = "hardware"
    return named if objective is None else {**named, "objective": objective.name}


_CUT_BY_ROWS = frozenset({"row_wise", "table_row_wise", "grid_shard"})
_IN_HOST_MEMORY = frozenset({"fused_uvm", "fused_uvm_caching", "quant_uvm", "quant_uvm_caching"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The missing memory, in bytes: the smallest proposal against the cluster's capacity."""

    needed: dict[str, int]  # by tier, over all ranks
    available: dict[str, int]
    largest_table: str  # the table with the largest shard of that proposal
    largest_shard: int
    largest_rank: int  # capacity of the largest rank, in the tier that is short
    tier: str
    # options that the table does not allow and that would make its shards smaller there
    forbidden: tuple[str, ...] = ()

    @property
    def largest(self) -> str:
        """Names the hardest table to place, and what to do if its shard fits on no rank."""
        from fastplan.model.units import format_size

        text = (
            f"the largest shard is {format_size(self.largest_shard)} of table "
            f"{self.largest_table} in {self.tier.upper()}, and a rank has "
            f"{format_size(self.largest_rank)} there"
        )
        if self.largest_shard > self.largest_rank and self.forbidden:
            text += f": allow that table {', or '.join(self.forbidden)}"
        return text

    def __str__(self) -> str:
        from fastplan.model.units import format_size

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


def shortage_of(result: Result) -> Shortage:
    """Returns the memory that the smallest proposal lacks, for a job that does not fit.

    Args:
        result: the result of a native search without a plan.
    """
    searched, request = result.searched, result.job.request
    assert searched is not None
    assert searched.problem is not None
    assert searched.solution is not None
    assert request is not None
    space, cluster = searched.problem.space, searched.problem.cluster
    ranks = {"hbm": cluster.rank_hbm, "ddr": cluster.rank_ddr, "ssd": cluster.rank_ssd}
    chosen = np.asarray(searched.solution.lowest, np.int64)
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
        largest_table=request.tables[table].name,
        largest_shard=int(size[largest]),
        largest_rank=max(ranks[tier]),
        tier=tier,
        forbidden=tuple(_forbidden(request, table, tier)),
    )


def _forbidden(request: Request, table: int, tier: str) -> Iterator[str]:
    """Yields the options missing from a table's menu that need less of a tier on a rank."""
    menu = request.menus[request.tables[table].menu]
    if not _CUT_BY_ROWS & {item.sharding_type for item in menu}:
        yield "sharding types that split it"
    if tier == "hbm" and not _IN_HOST_MEMORY & {item.kernel for item in menu}:
        yield "kernels in host memory"
