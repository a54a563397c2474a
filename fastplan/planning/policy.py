"""What a plan that follows another one may cost, and what it may move."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from fastplan.engine.replan import ReplanSettings
from fastplan.model.arguments import check_numbers, check_whole_numbers

Objective = Literal["bytes", "rating", "payback"]
Reference = Literal["auto", "scratch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """When to keep most of an older plan.

    Args:
        max_moved: part of all bytes that may move beyond those that must, such as what only a lost
            host held.
        slack: how far above the reference the rating may be.
        objective: "bytes" moves as little as the rating allows; "rating" finds the best rating for
            the bytes that may move; "payback" weighs the time that moving takes against the time
            that the better rating saves over `remaining_steps`.
        remaining_steps: training steps that are still to come.
        reference: "scratch" compares with a plan from scratch, in any case. "auto" looks for none
            where few tables have changed on the same ranks: there a plan that is as evenly spread
            as the previous one is good enough.
        rank_map: the new rank of each old one, None for a rank that is lost. Without it, ranks keep
            their numbers, and those beyond the new number of ranks are lost.
        max_changed: part of all bytes beyond which new and changed tables call for a plan from
            scratch.
        frontier: also tell the best rating for each of several amounts of moved bytes.
        move_budget, time_budget, seed: of the search. Without `time_budget`, which is in seconds,
            the same input gives the same plan.
    """

    max_moved: float = 0.05
    slack: float = 0.01
    objective: Objective = "bytes"
    remaining_steps: int | None = None
    reference: Reference = "auto"
    rank_map: tuple[int | None, ...] | None = None
    max_changed: float = 0.5
    frontier: bool = False
    move_budget: int = 200_000
    time_budget: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "max_moved", "slack", "max_changed")
        check_whole_numbers(self, "remaining_steps")
        for name, most in (("max_moved", 1.0), ("slack", math.inf), ("max_changed", 1.0)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise ValueError(f"`{name}` must be between 0 and {most:g}, not {value}")
        if self.objective not in get_args(Objective):
            raise ValueError(
                f"`objective` must be one of {', '.join(get_args(Objective))}, "
                f"not {self.objective!r}"
            )
        if self.reference not in get_args(Reference):
            raise ValueError(f'`reference` must be "auto" or "scratch", not {self.reference!r}')
        if self.objective == "payback" and (self.remaining_steps or 0) <= 0:
            raise ValueError('`remaining_steps` must be positive for the objective "payback"')
        self.settings  # noqa: B018  checks what is left

    @property
    def settings(self) -> ReplanSettings:
        """How long the core searches."""
        return ReplanSettings(
            move_budget=self.move_budget, time_budget=self.time_budget, seed=self.seed
        )

    def describe(self) -> dict[str, Any]:
        """As a cache key has it, in JSON; where ranks were before is no part of it."""
        parts = asdict(self)
        del parts["rank_map"], parts["frontier"]
        return parts


ReplanPolicy = Replan  # its former name
