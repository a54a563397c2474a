"""Estimates how long TorchRec's planner would take, to decide whether to run it."""

from dataclasses import dataclass, field

# Seconds on a two-core machine, set by hand from whole plans up to 100 x 64 and enumerations up to
# 1000 x 64. Enumeration visits every shard once; the search makes about 30 proposals per table and
# places every shard of every proposal.
ENUMERATE_PER_TABLE = 0.014
ENUMERATE_PER_TABLE_RANK = 0.0019
SEARCH_PER_TABLE_PAIR = 0.0006
SEARCH_PER_TABLE_PAIR_RANK = 0.00016


@dataclass
class Estimate:
    """A rough model of TorchRec's times, corrected by what this run has measured so far."""

    _plan_factors: list[float] = field(default_factory=list)
    _enumerate_factors: list[float] = field(default_factory=list)

    def plan(self, tables: int, ranks: int) -> float:
        return _plan(tables, ranks) * _latest(self._plan_factors)

    def enumeration(self, tables: int, ranks: int) -> float:
        return _enumeration(tables, ranks) * _latest(self._enumerate_factors)

    def learn_plan(self, tables: int, ranks: int, seconds: float) -> None:
        self._plan_factors.append(seconds / _plan(tables, ranks))

    def learn_enumeration(self, tables: int, ranks: int, seconds: float) -> None:
        self._enumerate_factors.append(seconds / _enumeration(tables, ranks))


def _latest(factors: list[float]) -> float:
    # Cells grow along the grid, so the latest one measured is the nearest.
    return factors[-1] if factors else 1.0


def _enumeration(tables: int, ranks: int) -> float:
    return tables * (ENUMERATE_PER_TABLE + ENUMERATE_PER_TABLE_RANK * ranks)


def _plan(tables: int, ranks: int) -> float:
    per_pair = SEARCH_PER_TABLE_PAIR + SEARCH_PER_TABLE_PAIR_RANK * ranks
    return _enumeration(tables, ranks) + tables * tables * per_pair
