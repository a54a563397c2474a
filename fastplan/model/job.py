"""A planning job: request, cluster and search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastplan.model.hardware_costs import CostFigure
from fastplan.model.request import Cluster, Request, Search


class CannotPlan(ValueError):
    """A spec can't be planned. The message names the table or field and what to do."""


class DoesNotFit(CannotPlan):
    """The reservation leaves no memory for tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, its cluster and its search settings.

    Attributes:
        request: the tables and their options; None if Python has enumerated the options.
        cluster: the ranks and their memory after the reservation.
        search: proposers, partitioner and objective, without custom parts.
        context: other parts of the cache key.
        custom: the fingerprints of custom parts. Raises NoFingerprint.
        uncacheable: why a cache can't store the plan; None if it can.
        name: the model's name; empty if it has none.
        hardware: the name of the SKU; empty if it is not known.
        figures: the constants of the hardware costs, with where they come from.
    """

    request: Request | None
    cluster: Cluster
    search: Search
    context: dict[str, Any]
    custom: Callable[[], list[Any]] = list
    uncacheable: str | None = None
    name: str = ""
    hardware: str = ""
    figures: Mapping[str, CostFigure] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecJob(Job):
    """A job that was read from a spec.

    Attributes:
        device: the kind of the ranks' devices, such as cuda.
        settings: by table, the settings in plan files in addition to the shards.
    """

    request: Request
    device: str
    settings: tuple[dict[str, Any], ...]
