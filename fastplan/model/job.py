"""A job: everything that one plan is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastplan.model.request import Cluster, Request, Search


class CannotPlan(ValueError):
    """A spec that can't be planned; the text names the table or field and the way out."""


class DoesNotFit(CannotPlan):
    """What is to be reserved leaves no memory for tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, the cluster that it is planned for, and how it is searched.

    Attributes:
        request: the tables and their options; None where Python has enumerated the options.
        cluster: the ranks and their memory, less what is reserved.
        search: proposers, partitioner and objective, as far as they are TorchRec's own.
        context: what else belongs to the cache key.
        custom: the fingerprints of parts that users wrote. Raises NoFingerprint.
        uncacheable: why no cache can keep the plan; None where one can.
        name: the model's name; empty where the job has none.
    """

    request: Request | None
    cluster: Cluster
    search: Search
    context: dict[str, Any]
    custom: Callable[[], list[Any]] = list
    uncacheable: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecJob(Job):
    """A job that was read from a spec.

    Attributes:
        device: the kind of the ranks' devices, such as cuda.
        settings: by table, what a plan file says of it beside its shards.
    """

    request: Request
    device: str
    settings: tuple[dict[str, Any], ...]
