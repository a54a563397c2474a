"""How evenly a plan is spread, without looking for another one."""

from __future__ import annotations

import numpy as np

from fastplan.core.problem import Floats, Problem, SearchSpace
from fastplan.plans.plan import Basis
from fastplan.plans.shards import chosen_space

_PARTS = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute")


def mean_cost(basis: Basis) -> float:
    """What ranks cost on average in the plan of a basis."""
    _, space = chosen_space(basis.request, basis.record)
    return float(_option_costs(space).sum()) / len(basis.cluster.rank_hbm)


def even_cost(problem: Problem) -> float:
    """What ranks would cost if every table took its cheapest option and all were spread evenly."""
    space = problem.space
    cheapest = np.minimum.reduceat(_option_costs(space), space.table_option_begin[:-1])
    return float(cheapest.sum()) / len(problem.cluster.rank_hbm)


def _option_costs(space: SearchSpace) -> Floats:
    """The sum over each option's shards."""
    each = sum((getattr(space, f"run_{part}") for part in _PARTS), np.zeros(len(space.run_count)))
    costs: Floats = np.add.reduceat(each * space.run_count, space.option_run_begin[:-1])
    return costs
