"""A result as a plan that files hold and reports show."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from fastplan import __version__
from fastplan.engine.layout import chosen_space, layout_of
from fastplan.engine.solve import OutOfRange
from fastplan.model.job import CannotPlan, Job, SpecJob
from fastplan.model.plan import Basis, Layout, Plan
from fastplan.model.record import BadRecord, PlanRecord
from fastplan.planning.result import Result
from fastplan.planning.shortage import shortage_of


def described(result: Result, notes: dict[str, str] | None = None) -> Plan:
    """The plan of a spec's job, with all that is known about it.

    Args:
        result: what planning the job returned.
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
            **(notes or {}),
        },
        basis=_basis(result, record),
    )


def basis_of(result: Result) -> Basis | str:
    """What a plan was made from; or why that is not known."""
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
        table._replace(settings=job.settings[number]) if job.settings[number] else table
        for table, number in zip(layout.tables, record.table.tolist(), strict=True)
    )
    return replace(layout, tables=tables)


def _proven(result: Result) -> dict[str, str]:
    bound, found = result.lower_bound, result.optimized
    notes = {} if bound is None else {"lower_bound": repr(bound)}
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
    assert job.request is not None
    pricing, objective = job.request.pricing, job.search.objective
    named = {} if pricing is None else {"cost": pricing.function.name}
    return named if objective is None else {**named, "objective": objective.name}
