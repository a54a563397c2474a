"""The solution: an option per table and the ranks of its shards, a few kB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Options = NDArray[np.int32]


class ProposerReport(NamedTuple):
    """What one proposer did. `plans` and `best_rating` are known after exhaustive searches only."""

    proposals: int
    repeats: int
    plans: int
    timed_out: bool
    best_rating: float
    state_best_rating: float
    state_inferior: int


class PlanCount(NamedTuple):
    """Feasible proposals, and those of which nobody has found out."""

    plans: int
    undecided: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Outcome of a search. Infeasible is a state, not an error."""

    found: bool
    rating: float
    options: Options  # by plan position: numbers of the search space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    reports: tuple[ProposerReport, ...]
    evaluated: int
    exhaustive: bool
    winner: int  # index of the proposer
    lowest: Options  # when infeasible: the proposal that needs least storage, and the last one
    last: Options

    @property
    def proposals(self) -> int:
        return sum(report.proposals for report in self.reports)

    @property
    def plans(self) -> int | None:
        """Feasible proposals; None when proposals that can't win were left out."""
        if self.exhaustive:
            return sum(report.plans for report in self.reports)
        return None if self.found else 0
