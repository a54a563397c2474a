"""What the text of a spec becomes: nodes that know where they stand, or a SpecError."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fastplan.spec.units import Scalar

MOST_NODES = 2_000_000  # with every alias written out
MOST_LEVELS = 100
_SHOWN = 80  # characters of either end of a long place

TOO_DEEP = f"is nested more than {MOST_LEVELS} levels deep"
TOO_MANY = f"has more than {MOST_NODES:,} values, with every alias written out"
TWICE = "is there twice, in lines {} and {}; keep one"


class SpecError(ValueError):
    """A spec that can't be used: in which file, line and place, and what is the problem there."""

    def __init__(self, file: str, line: int | None, place: str, problem: str) -> None:
        super().__init__(file, line, place, problem)
        self.file = file
        self.line = line
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        place = self.place
        if len(place) > 2 * _SHOWN:
            place = f"{place[:_SHOWN]}...{place[-_SHOWN:]}"
        return ": ".join(part for part in (where, place, self.problem) if part)


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the line where it begins: for an entry of a mapping, the line of its key."""

    value: dict[str, Node] | list[Node] | Scalar
    line: int | None = None


def below(place: str, step: str | int) -> str:
    """The place of an entry: `tables[3]`, `tables[3].rows`, `groups["a b"]`."""
    if isinstance(step, int):
        return f"{place}[{step}]"
    if step.replace("-", "_").isidentifier():
        return f"{place}.{step}" if place else step
    return f"{place}[{json.dumps(step)}]"
