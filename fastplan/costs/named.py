"""Costs and objectives by the names that specs and command lines give them."""

from __future__ import annotations

from typing import TypeVar

from fastplan.costs.errors import CostError
from fastplan.costs.functions import CustomFunction, PlanObjective, ShardCost
from fastplan.model.references import BadReference, find

F = TypeVar("F", bound=CustomFunction)


def find_cost(name: str) -> ShardCost:
    """The cost of that name. Raises CostError."""
    return _find(name, ShardCost, "shard_cost")


def find_objective(name: str) -> PlanObjective:
    """The objective of that name. Raises CostError."""
    return _find(name, PlanObjective, "plan_objective")


def _find(name: str, kind: type[F], decorator: str) -> F:
    try:
        found = find(name)
    except BadReference as error:
        raise CostError(str(error)) from error
    if not isinstance(found, kind):
        raise CostError(f"{name} is not a function with @fastplan.{decorator}")
    return found
