"""A plan that stays as it was wherever it can, and how evenly it is spread."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from fastplan.engine.layout import chosen_space
from fastplan.engine.problem import Floats, Problem, SearchSpace
from fastplan.engine.replan import NOT_HELD, Held
from fastplan.engine.solve import estimate_columns, menu_columns
from fastplan.model.plan import Basis
from fastplan.model.request import Request
from fastplan.model.vocabulary import KERNEL_INDEX, KERNELS, SHARDING_TYPE_INDEX, SHARDING_TYPES

_PARTS = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute")


def kept_space(
    request: Request, columns: dict[str, Any], held: Held, changed: Collection[int]
) -> SearchSpace:
    """The search space of a request's columns with the options that tables have, and every option
    of `changed` tables and of those whose option is allowed no more.

    Raises OutOfRange and CostError like estimate().
    """
    count = len(request.menus)
    alone = tuple((item,) for menu in request.menus for item in menu)
    # By menu, sharding type and kernel: the menu of that option alone, or the whole menu.
    menu_of = np.empty((count, len(SHARDING_TYPES), len(KERNELS)), np.int32)
    menu_of[:] = np.arange(count)[:, None, None]
    number = count + len(alone)
    for menu, items in reversed([*enumerate(request.menus)]):
        for item in reversed(items):
            number -= 1
            kind, kernel = SHARDING_TYPE_INDEX[item.sharding_type], KERNEL_INDEX[item.kernel]
            menu_of[menu, kind, kernel] = number
    stays = (held.table_held_type != NOT_HELD) & (held.table_held_kernel != NOT_HELD)
    stays[[*changed]] = False
    menus = columns["table_menu"].copy()
    menus[stays] = menu_of[menus[stays], held.table_held_type[stays], held.table_held_kernel[stays]]
    narrowed = {**columns, "table_menu": menus, **menu_columns(request.menus + alone)}
    return estimate_columns(request, narrowed)


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
