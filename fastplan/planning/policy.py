"""Limits for a plan that follows a previous plan."""

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
    """The policy for following a previous plan.

    Args:
        max_moved: the share of all bytes that may move, in addition to unavoidable moves such as
            the bytes of a lost host.
        slack: how far the rating may be above the reference, as a share.
        objective: "bytes" moves as little as the rating allows; "rating" finds the best rating for
            the bytes that may move; "payback" compares the time of the moves with the time that
            the better rating saves over `remaining_steps`.
        remaining_steps: the number of remaining training steps.
        reference: "scratch" always compares with a plan from scratch. "auto" skips that if few
            tables have changed on the same ranks and the new plan is as balanced as the previous
            one.
        rank_map: the new rank of each old one, None for a lost rank. Without it, ranks keep their
            numbers, and those beyond the new number of ranks are lost.
        max_changed: if new and changed tables have a larger share of all bytes, the plan is made
            from scratch.
        frontier: also report the best rating for each of several amounts of moved bytes.
        move_budget, time_budget, seed: limits and seed of the search. Without `time_budget`
            (seconds), the same input gives the same plan.
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
        self.settings  # noqa: B018  checks the other fields

    @property
    def settings(self) -> ReplanSettings:
        """The limits of the core's search."""
        return ReplanSettings(
            move_budget=self.move_budget, time_budget=self.time_budget, seed=self.seed
        )

    def describe(self) -> dict[str, Any]:
        """Returns the policy as JSON for cache keys, without `rank_map`."""
        parts = asdict(self)
        del parts["rank_map"], parts["frontier"]
        return parts


ReplanPolicy = Replan  # its former name
