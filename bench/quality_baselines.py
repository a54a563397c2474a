"""Baselines from the literature: whole tables, heaviest first, on the least loaded rank."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fastplan.engine import _native
from fastplan.engine.problem import Problem
from fastplan.engine.solve import verify_plan
from fastplan.model.request import Table
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX

Weight = Callable[[Table], float]

WEIGHTS: dict[str, Weight] = {
    "dim": lambda table: table.dim,
    "size": lambda table: table.bytes,
    "dim x pooling": lambda table: table.dim * table.perf_inputs,
    "dim x pooling x log rows": lambda table: (
        table.dim * table.perf_inputs * math.log10(max(table.rows, 2))
    ),
}


def greedy_rating(problem: Problem, tables: Sequence[Table], weight: Weight) -> float | None:
    """The rating of the greedy plan for this weight; None if it runs out of memory."""
    space, cluster = problem.space, problem.cluster
    free = np.stack([cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd], axis=1).astype(np.int64)
    memory = np.stack([space.run_hbm, space.run_ddr, space.run_ssd], axis=1)
    loads = np.zeros(len(free))
    options, ranks = [], []
    for number in sorted(range(len(tables)), key=lambda t: -weight(tables[t])):
        option = _table_wise(problem, number)
        if option is None:
            return None
        need = memory[space.option_run_begin[option]]
        fits = (free >= need).all(axis=1)
        if not fits.any():
            return None
        rank = int(np.where(fits, loads, np.inf).argmin())
        loads[rank] += weight(tables[number])
        free[rank] -= need
        options.append(option)
        ranks.append(rank)
    plan = np.array(options, np.int32), np.array(ranks, np.int32)
    assert verify_plan(problem, *plan, math.nan) == ""
    return _native.rate(problem.columns(), {"options": plan[0], "ranks": plan[1]})


def _table_wise(problem: Problem, table: int) -> int | None:
    """The table's option for the whole table on one device."""
    space = problem.space
    for option in range(*map(int, space.table_option_begin[table : table + 2])):
        whole = space.option_type[option] == SHARDING_TYPE_INDEX["table_wise"]
        if whole and space.option_kernel[option] == KERNEL_INDEX["fused"]:
            return option
    return None
