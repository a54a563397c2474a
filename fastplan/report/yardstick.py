"""Rates plans that were made with different costs by the same costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastplan.engine.layout import chosen_space
from fastplan.engine.problem import Problem
from fastplan.engine.solve import OutOfRange, rate
from fastplan.model.plan import BadRecord, Basis, Plan
from fastplan.model.request import HardwareCosts


def with_one_yardstick(plans: Sequence[Plan]) -> tuple[list[Plan], bool]:
    """Returns the plans with the hardware costs of the first plan that has some.

    Args:
        plans: Plans of one model. Those without a basis stay as they are.

    Returns:
        The plans, and whether the costs of one of them have changed.
    """
    known = [plan.basis for plan in plans if plan.basis is not None]
    costs = next((basis.request.hardware for basis in known if basis.request.hardware), None)
    if costs is None:
        return list(plans), False
    own = _numbers(next(basis for basis in known if basis.request.hardware is costs))
    found = [_rated(plan, costs, own) for plan in plans]
    return found, any(new is not old for new, old in zip(found, plans, strict=True))


def _numbers(basis: Basis) -> dict[tuple[str, str], int]:
    """Returns the numbers of the tables that the costs are for."""
    return {(table.path, table.name): i for i, table in enumerate(basis.request.tables)}


def _rated(plan: Plan, costs: HardwareCosts, numbers: dict[tuple[str, str], int]) -> Plan:
    """Returns the plan with these costs; the same plan if it has them, or can't have them."""
    basis = plan.basis
    if basis is None:
        return plan
    names = [(table.path, table.name) for table in basis.request.tables]
    if not all(name in numbers for name in names):
        return plan
    own = costs.for_tables(numbers[name] for name in names)
    if own == basis.request.hardware:
        return plan
    request = replace(basis.request, hardware=own)
    try:
        _, space = chosen_space(request, basis.record)
    except (BadRecord, OutOfRange):
        return plan
    options = np.arange(len(basis.record.table), dtype=np.int32)
    rating = rate(Problem(space, basis.cluster), options, basis.record.ranks)
    record = replace(basis.record, rating=rating)
    # A bound that was proven under other costs says nothing here.
    notes = {name: note for name, note in plan.notes.items() if name != "lower_bound"}
    changed = replace(basis, request=request, record=record, certificate=b"")
    return replace(plan, basis=changed, notes=notes)
