"""Gives all tables of one kernel another kernel at once.

A rank pays the latency of a kernel once for all its tables, so a single table that changes its
kernel saves nothing, and a search by single changes does not get there.
"""

from __future__ import annotations

import numpy as np

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import Options, verify_plan


def with_fewer_kernels(
    problem: Problem, options: Options, ranks: Options, goal: _native.GoalColumns
) -> Options:
    """Returns the options of the best plan on the same ranks, by the goal.

    Args:
        problem: the problem.
        options: by plan position: numbers of the search space's options.
        ranks: of the shards that are not uniform, in plan order.
        goal: the measure.
    """
    best, value = options, _value(problem, options, ranks, goal)
    kernels = np.unique(problem.space.option_kernel)
    improved = True
    while improved:
        improved = False
        for old in kernels:
            for new in kernels:
                changed = _changed(problem, best, int(old), int(new))
                if changed is None:
                    continue
                found = _value(problem, changed, ranks, goal)
                if found < value and not verify_plan(problem, changed, ranks, float("nan")):
                    best, value, improved = changed, found, True
    return best


def _value(problem: Problem, options: Options, ranks: Options, goal: _native.GoalColumns) -> int:
    return _native.tally(problem.handle, {"options": options, "ranks": ranks}, goal)["value"]


def _changed(problem: Problem, options: Options, old: int, new: int) -> Options | None:
    """Returns the options with another kernel and the same shards; None if none changes."""
    space = problem.space
    if old == new or not (space.option_kernel[options] == old).any():
        return None
    changed = options.copy()
    tables = np.searchsorted(space.table_option_begin, options, side="right") - 1
    for position in np.flatnonzero(space.option_kernel[options] == old):
        begin, end = space.table_option_begin[tables[position] : tables[position] + 2]
        kind = space.option_type[options[position]]
        like = (space.option_type[begin:end] == kind) & (space.option_kernel[begin:end] == new)
        if like.any():
            changed[position] = begin + like.argmax()
    return None if np.array_equal(changed, options) else changed
