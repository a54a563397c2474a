"""Plans that start from a previous plan and move few bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fastplan.engine import _native
from fastplan.engine.optimize import STOPS, StoppedBy
from fastplan.engine.problem import Floats, Ints, Problem
from fastplan.engine.solve import Options
from fastplan.model.limits import check_numbers, check_whole_numbers

NOT_HELD = 255  # sharding type and kernel of a table that is not in the previous plan
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The shards of the previous plan that the ranks hold, by table.

    Ranks have the numbers of the new problem; lost ranks have larger numbers.
    """

    table_held_begin: Ints
    table_held_type: NDArray[np.uint8]
    table_held_kernel: NDArray[np.uint8]
    held_row: Ints
    held_column: Ints
    held_rows: Ints
    held_columns: Ints
    held_rank: Ints
    table_rows: Ints  # of the new problem, like all that follows
    table_dim: Ints
    table_element_size: Ints
    table_state: Floats  # optimizer state, relative to the weights

    def columns(self) -> _native.HeldColumns:
        """Returns the named columns that the native core reads."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return cast("_native.HeldColumns", columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanSettings:
    """Search limits for each plan. Without `time_budget`, the same input gives the same plan."""

    move_budget: int = 200_000
    time_budget: float | None = None  # seconds in total
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "time_budget")
        check_whole_numbers(self, "move_budget", "seed")
        if not 0 <= self.move_budget < _NO_LIMIT:
            raise ValueError(f"`move_budget` must not be negative, and is {self.move_budget}")
        if self.time_budget is not None and not 0 < self.time_budget < math.inf:
            raise ValueError(f"`time_budget` must be a positive number, not {self.time_budget}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"`seed` must be between 0 and 2**64 - 1, not {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A plan and the bytes that ranks must fetch for it, or none found within the limits."""

    found: bool
    rating: float
    options: Options  # by plan position: numbers of the search space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanResult:
    """A plan for each byte budget."""

    points: tuple[Point, ...]
    start: Point  # the old placement with missing shards added; it may exceed capacities
    mean: float  # of the ranks' costs in the last plan
    least: int  # no plan moves fewer bytes
    held: int  # bytes of all tables that any rank holds
    moves: int
    stopped_by: StoppedBy


def fewest_bytes(
    problem: Problem,
    held: Held,
    *,
    rating: float,
    budget: float,
    settings: ReplanSettings,
    reached: tuple[Options, Options] | None = None,
) -> ReplanResult:
    """Finds the plan rated at most `rating` that moves the fewest bytes.

    `budget` is the share of all bytes that it may move above the minimum of any plan.
    `reached` has options and ranks of a plan with such a rating, which may move any number of
    bytes: it is a second start of the search.

    Raises OutOfRange like solve().
    """
    core = _core_settings(settings, reached)
    core |= {"lower_bytes": True, "target": rating, "budgets": [budget]}
    return _replan(problem, held, core)


def best_ratings(
    problem: Problem,
    held: Held,
    *,
    budgets: list[float],
    settings: ReplanSettings,
    start: tuple[Options, Options] | None = None,
) -> ReplanResult:
    """Finds the best plan for each of the ascending budgets, defined as in `fewest_bytes`.

    `start` has options and ranks of a plan that fits; the search starts there instead of at the
    old placement.

    Raises OutOfRange like solve().
    """
    return _replan(problem, held, _core_settings(settings, start) | {"budgets": budgets})


def moved_bytes(problem: Problem, held: Held, options: Options, ranks: Options) -> int:
    """Returns the bytes that ranks must fetch for a plan of the problem."""
    return _native.moved_bytes(problem.handle, held.columns(), {"options": options, "ranks": ranks})


def _core_settings(
    settings: ReplanSettings, start: tuple[Options, Options] | None
) -> _native.ReplanSettings:
    """Returns the arguments of the native core for the best ratings."""
    options, ranks = start or (np.empty(0, np.int32), np.empty(0, np.int32))
    return {
        "lower_bytes": False,
        "target": 0.0,
        "budgets": [],
        "moves": settings.move_budget,
        "seed": settings.seed,
        "seconds": math.inf if settings.time_budget is None else settings.time_budget,
        "reached_options": options,
        "reached_ranks": ranks,
    }


def _replan(problem: Problem, held: Held, core: _native.ReplanSettings) -> ReplanResult:
    result = _native.replan(problem.handle, held.columns(), core)
    return ReplanResult(
        points=tuple(Point(**point) for point in result["points"]),
        start=Point(**result["start"]),
        mean=result["mean"],
        least=result["least"],
        held=result["held"],
        moves=result["moves"],
        stopped_by=STOPS[result["stopped_by"]],
    )
