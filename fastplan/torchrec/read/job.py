"""A planner's request as a job: what decides the plan, and what a cache keeps it under."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from fastplan.model.job import Job
from fastplan.model.request import Cluster
from fastplan.torchrec import versions
from fastplan.torchrec.fallback import describe
from fastplan.torchrec.read.components import Parts, own_fingerprint
from fastplan.torchrec.read.space import EstimatedSpace, Space


def read_job(planner: Any, space: Space, cluster: Cluster, parts: Parts) -> Job:
    """The job of one plan() of a planner, as it is before the search.

    Args:
        planner: the planner, whose reservation has been made.
        space: the search space; not estimated yet where that is native.
        cluster: what the reservation has left of the topology.
        parts: the planner's proposers, partitioner and perf model.
    """
    uncacheable = None
    if not isinstance(space, EstimatedSpace):
        uncacheable = "the search space is enumerated in Python"
    elif planner.plan_loader is not None:
        uncacheable = "a plan loader decides the plan"
    return Job(
        request=space.request if isinstance(space, EstimatedSpace) else None,
        cluster=cluster,
        search=parts.search,
        context={
            "torchrec": versions.VERSION,
            "deterministic": planner._fastplan.deterministic,
            "local_world_size": cluster.local_world_size,
            "group_size": cluster.group_size,
            "reservation": _reservation(planner._storage_reservation),
        },
        custom=partial(_fingerprints, space, parts),
        uncacheable=uncacheable,
    )


def _fingerprints(space: Space, parts: Parts) -> list[Any]:
    """What custom parts add to the cache key. Raises NoFingerprint."""
    assert isinstance(space, EstimatedSpace)
    space.check_cost()
    estimators = map(own_fingerprint, space.extraction.estimators.custom)
    return [*parts.fingerprints(), *estimators]


def _reservation(reservation: Any) -> dict[str, Any]:
    """Policy and result. What it leaves of the devices is compared with a tolerance."""
    parts: dict[str, Any] = {}
    for name in ("_percentage", "_hbm_reserved_bytes", "_margin_bytes", "_model_base_bytes"):
        value = getattr(reservation, name, None)
        if isinstance(value, int | float):
            parts[name.strip("_")] = value
    for name in ("_dense_storage", "_kjt_storage"):
        storage = getattr(reservation, name, None)
        if storage is not None:
            parts[name.strip("_")] = asdict(storage)
    return {"policy": describe(reservation), **parts}
