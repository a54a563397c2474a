"""Measures in addition to the rating, and placement constraints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from operator import index
from typing import Any, Literal, get_args

from fastplan.model.limits import check_numbers

Minimize = Literal["rating", "memory", "shards", "critical_path", "step", "link_bytes"]
Pins = Mapping[str, int | Sequence[int]]
_WITHIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """A measure to minimise within a share of the best rating, and constraints on placement.

    Args:
        minimize: "rating", TorchRec's own measure and the default with its costs; "memory", the HBM
            that the fullest rank uses; "shards", the number of shards; "critical_path", the sum of
            the largest compute and communication over ranks, as in TorchRec's statistics; "step",
            the sum over the phases of a step of the slowest rank in each, which needs hardware
            costs and is the default with them; "link_bytes", the bytes over the host links of all
            ranks in a step, only for offload plans.
        within: the share by which the rating may be above the best one; may be infinite, and is
            with "step" and "link_bytes", for which the rating does not count.
        pins: by table, the rank that holds all of it, or one rank for each of its shards.
        together: groups of tables that are split alike, with each shard on the same rank.

    Tables have TorchRec's names. If several tables have one name, put the module path and a dot
    before it.
    """

    minimize: Minimize | None = None
    within: float = _WITHIN
    pins: Pins = field(default_factory=dict)
    together: Iterable[Iterable[str]] = ()

    def __post_init__(self) -> None:
        check_numbers(self, "within")
        if self.minimize is not None and self.minimize not in get_args(Minimize):
            names = ", ".join(get_args(Minimize))
            raise ValueError(f"`minimize` must be one of {names}, not {self.minimize!r}")
        if not self.within >= 0:
            raise ValueError(f"`within` must be 0 or more, not {self.within}")
        if self.measure == "rating" and self.within != _WITHIN:
            raise ValueError("`within` only applies with `minimize`: set `minimize`")
        if self.ignores_rating:
            if self.within not in (_WITHIN, math.inf):
                raise ValueError(f"`within` does not apply to the {self.minimize}: leave it out")
            object.__setattr__(self, "within", math.inf)
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
    def measure(self) -> Minimize:
        """The measure to minimise."""
        return self.minimize or "rating"

    @property
    def ignores_rating(self) -> bool:
        """Whether the rating of a plan does not count."""
        return self.minimize in ("step", "link_bytes")

    @property
    def rules(self) -> bool:
        """Whether there are constraints."""
        return bool(self.pins or self.together)

    @property
    def follows(self) -> bool:
        """Whether a plan with these objectives may follow another one."""
        return not self.rules and self.measure in ("rating", "step")

    @property
    def slack(self) -> float:
        """The share by which a rating may be above TorchRec's; infinite with constraints."""
        if self.rules:
            return math.inf
        return 0.0 if self.measure == "rating" else self.within

    def describe(self) -> dict[str, Any]:
        """Returns the objectives as JSON for cache keys."""
        return {
            "minimize": self.measure,
            "within": self.within if math.isfinite(self.within) else "inf",
            "pins": {name: list(ranks) for name, ranks in dict(self.pins).items()},  # type: ignore[arg-type]
            "together": [list(group) for group in self.together],
        }


def _ranks(table: str, place: Any) -> tuple[int, ...]:
    error = f"`pins` must have a rank, or a list of ranks, for the table {table!r}, not {place!r}"
    if isinstance(place, str):
        raise TypeError(error)
    try:
        ranks = (place,) if isinstance(place, Integral) else tuple(place)
        return tuple(map(index, ranks))
    except TypeError:
        raise TypeError(error) from None


def _tables(group: Any) -> tuple[str, ...]:
    if isinstance(group, str):
        raise TypeError(f"`together` must be lists of tables, such as [['a', 'b']], not {group!r}")
    return tuple(group)


NO_OBJECTIVES = Objectives()


class ConstraintError(ValueError):
    """`pins` or `together` can't be satisfied, or no such plan was found within the budget."""
