"""Finds costs and objectives by their names in specs and on command lines."""

from __future__ import annotations

from typing import TypeVar

from fastplan.costs.errors import CostError
from fastplan.costs.functions import CustomFunction, PlanObjective, ShardCost
from fastplan.model.references import BadReference, find

F = TypeVar("F", bound=CustomFunction)


def find_cost(name: str) -> ShardCost:
    """Imports a cost by its name.

    Raises:
        CostError: The name can't be found, or is not a cost.
    """
    return _find(name, ShardCost, "shard_cost")


def find_objective(name: str) -> PlanObjective:
    """Imports an objective by its name.

    Raises:
        CostError: The name can't be found, or is not an objective.
    """
    return _find(name, PlanObjective, "plan_objective")


def _find(name: str, kind: type[F], decorator: str) -> F:
    try:
        found = find(name)
    except BadReference as error:
        raise CostError(str(error)) from error
    if not isinstance(found, kind):
        raise CostError(f"{name} is not a function with @fastplan.{decorator}")
    return found
