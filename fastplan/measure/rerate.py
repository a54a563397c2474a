"""Estimates a layout again, with other constants or scaled tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastplan.engine.layout import narrowed, shard_ranks
from fastplan.engine.solve import OutOfRange, estimate
from fastplan.model.job import SpecJob
from fastplan.model.plan import (
    AS_REQUESTED,
    COLUMNS,
    RANK,
    BadRecord,
    Basis,
    Layout,
    Plan,
    PlanRecord,
)
from fastplan.model.request import Cluster, Request
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX, UNIFORM_TYPES
from fastplan.report.estimates import RATED, EstimateUnavailable

_BY_COLUMN = ("column_wise", "table_column_wise", "grid_shard")
_COLUMNS = {"prefetch": "run_prefetch_compute"}


def reestimate(plan: Plan, job: SpecJob) -> Plan:
    """Estimates a plan's layout again with the request of a job.

    Args:
        plan: The plan.
        job: The job, with other constants or another cluster.

    Returns:
        The plan with new estimates.

    Raises:
        EstimateUnavailable: The layout is not possible for the job.
    """
    return replace(plan, basis=basis_of(plan.layout, job.request, job.cluster), fingerprint=None)


def basis_of(layout: Layout, request: Request, cluster: Cluster) -> Basis:
    """Returns the basis of a layout's estimates.

    Raises:
        EstimateUnavailable: The layout is not possible for the request.
    """
    request = _with_column_widths(layout, request)
    record = _record(layout, request)
    ranks = len(cluster.rank_hbm)
    try:
        space = estimate(narrowed(request, record))
        shards = np.add.reduceat(space.run_count, space.option_run_begin[:-1])
        shard_rank = shard_ranks(record, shards, ranks)
    except (BadRecord, OutOfRange) as problem:
        raise EstimateUnavailable(str(problem)) from problem
    run_total = sum(getattr(space, _COLUMNS.get(part, f"run_{part}")) for part in RATED)
    totals = np.bincount(shard_rank, np.repeat(run_total, space.run_count), ranks)
    return Basis(
        canonical=b"",
        request=request,
        cluster=cluster,
        record=replace(record, rating=float(totals.max())),
    )


def _with_column_widths(layout: Layout, request: Request) -> Request:
    """Returns the request with the column widths of the layout."""
    widths = {
        (table.path, table.name): int(table.shards[0, COLUMNS])
        for table in layout.tables
        if table.sharding_type in _BY_COLUMN and len(table.shards)
    }
    tables = (
        table._replace(min_partition=widths.get((table.path, table.name), table.min_partition))
        for table in request.tables
    )
    return replace(request, tables=tuple(tables))


def _record(layout: Layout, request: Request) -> PlanRecord:
    numbers = {(table.path, table.name): i for i, table in enumerate(request.tables)}
    for table in layout.tables:
        if (table.path, table.name) not in numbers:
            raise EstimateUnavailable(f"table {table.name} is not in the model")
    placed = [
        table.shards[:, RANK] for table in layout.tables if table.sharding_type not in UNIFORM_TYPES
    ]
    return PlanRecord(
        table=np.array([numbers[table.path, table.name] for table in layout.tables], np.int32),
        sharding_type=np.array(
            [SHARDING_TYPE_INDEX[table.sharding_type] for table in layout.tables], np.uint8
        ),
        kernel=np.array([KERNEL_INDEX[table.kernel] for table in layout.tables], np.uint8),
        load_factor=np.full(len(layout.tables), AS_REQUESTED),
        ranks=np.concatenate([np.zeros(0, np.int64), *placed]).astype(np.int32),
        rating=0.0,
    )
