"""A job: everything that one plan is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.model.request import Cluster, Request, Search


class CannotPlan(ValueError):
    """A spec that can't be planned; the text names the table or field and the way out."""


class DoesNotFit(CannotPlan):
    """What is to be reserved leaves no memory for tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, where it is to be placed and how it is searched.

    `context` is what else belongs to the fingerprint, as fastplan's planner writes it.
    """

    name: str  # of the model
    request: Request
    cluster: Cluster
    search: Search
    context: dict[str, Any]
    device: str
    settings: tuple[dict[str, Any], ...]  # by table, what the plan carries along
    uncacheable: str | None = None  # why no cache can keep the plan
