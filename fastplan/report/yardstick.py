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
    states = _states(next(basis for basis in known if basis.request.hardware is costs))
    found = [_rated(plan, costs, states) for plan in plans]
    return found, any(new is not old for new, old in zip(found, plans, strict=True))


def _states(basis: Basis) -> dict[tuple[str, str], float]:
    assert basis.request.hardware is not None
    names = ((table.path, table.name) for table in basis.request.tables)
    return dict(zip(names, basis.request.hardware.states, strict=True))


def _rated(plan: Plan, costs: HardwareCosts, states: dict[tuple[str, str], float]) -> Plan:
    """Returns the plan with these costs; the same plan if it has them, or can't have them."""
    basis = plan.basis
    if basis is None:
        return plan
    names = [(table.path, table.name) for table in basis.request.tables]
    if not all(name in states for name in names):
        return plan
    own = replace(costs, states=tuple(states[name] for name in names))
    if own == basis.request.hardware:
        return plan
    request = replace(basis.request, hardware=own)
    try:
        _, space = chosen_space(request, basis.record)
    except (BadRecord, OutOfRange):
        return plan
    numbers = np.arange(len(basis.record.table), dtype=np.int32)
    rating = rate(Problem(space, basis.cluster), numbers, basis.record.ranks)
    record = replace(basis.record, rating=rating)
    # A bound that was proven under other costs says nothing here.
    notes = {name: note for name, note in plan.notes.items() if name != "lower_bound"}
    changed = replace(basis, request=request, record=record, certificate=b"")
    return replace(plan, basis=changed, notes=notes)
