"""What a plan is to be good at beside its rating, and what it has to keep to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from operator import index
from typing import Any, Literal, get_args

from fastplan.model.arguments import check_numbers

Minimize = Literal["rating", "memory", "shards", "critical_path"]
Pins = Mapping[str, int | Sequence[int]]
_WITHIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What to minimise within so much of the best rating found, and where tables must lie.

    Args:
        minimize: "rating", TorchRec's own measure; "memory", the HBM that the fullest rank uses;
            "shards", how many there are; "critical_path", the largest compute and communication
            over ranks added up as TorchRec's statistics do.
        within: how far, as a part, the rating may be above the best one for that; may be infinite.
        pins: by table, the rank that holds all of it, or one rank for each of its shards.
        together: tables that are cut alike and lie shard by shard on the same ranks.
    Tables are named as TorchRec names them, with the path of their module before a dot where one
    name stands for several.
    """

    minimize: Minimize = "rating"
    within: float = _WITHIN
    pins: Pins = field(default_factory=dict)
    together: Iterable[Iterable[str]] = ()

    def __post_init__(self) -> None:
        check_numbers(self, "within")
        if self.minimize not in get_args(Minimize):
            names = ", ".join(get_args(Minimize))
            raise ValueError(f"`minimize` must be one of {names}, not {self.minimize!r}")
        if not self.within >= 0:
            raise ValueError(f"`within` must be 0 or more, not {self.within}")
        if self.minimize == "rating" and self.within != _WITHIN:
            raise ValueError("`within` is what something else may cost in rating: say `minimize`")
        pins = {name: _ranks(name, place) for name, place in dict(self.pins).items()}
        if not all(pins.values()):
            table = next(name for name, ranks in pins.items() if not ranks)
            raise ValueError(f"`pins` must name at least one rank for the table {table!r}")
        groups = tuple(map(_tables, self.together))
        if any(len(set(group)) < 2 for group in groups):
            raise ValueError("`together` must name two tables or more in each group")
        object.__setattr__(self, "pins", pins)
        object.__setattr__(self, "together", groups)

    @property
    def rules(self) -> bool:
        """Whether some plans are not allowed."""
        return bool(self.pins or self.together)

    @property
    def slack(self) -> float:
        """How far, as a part, a plan's rating may be above TorchRec's; infinite with rules."""
        if self.rules:
            return math.inf
        return 0.0 if self.minimize == "rating" else self.within

    def describe(self) -> dict[str, Any]:
        """As a cache key has them, in JSON."""
        return {
            "minimize": self.minimize,
            "within": self.within if math.isfinite(self.within) else "inf",
            "pins": {name: list(ranks) for name, ranks in dict(self.pins).items()},  # type: ignore[arg-type]
            "together": [list(group) for group in self.together],
        }


def _ranks(table: str, place: Any) -> tuple[int, ...]:
    told = f"`pins` must have a rank, or a list of ranks, for the table {table!r}, not {place!r}"
    if isinstance(place, str):
        raise TypeError(told)
    try:
        ranks = (place,) if isinstance(place, Integral) else tuple(place)
        return tuple(map(index, ranks))
    except TypeError:
        raise TypeError(told) from None


def _tables(group: Any) -> tuple[str, ...]:
    if isinstance(group, str):
        raise TypeError(f"`together` must be lists of tables, such as [['a', 'b']], not {group!r}")
    return tuple(group)


NO_OBJECTIVES = Objectives()


class ConstraintError(ValueError):
    """Pins or tables to keep together that can't be kept, or were not within the budget."""


RulesBroken = ConstraintError  # its former name
