"""A reference: solves a small problem exactly with HiGHS, an integer program solver."""

from collections import defaultdict
from typing import Any, NamedTuple

import highspy
import numpy as np

from fastplan.engine.problem import Problem
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES

_TIERS = ("hbm", "ddr", "ssd")
# The solver refuses coefficients that are almost zero.
_NOTHING = 1e-9


class Solved(NamedTuple):
    """The rating of the best plan found, if any, and a lower bound for all plans."""

    rating: float | None
    bound: float
    optimal: bool


def solve_exactly(problem: Problem, *, seconds: float, upper: float | None = None) -> Solved:
    """Chooses options, and how many shards of each run go to each rank or host.

    `upper` is the rating of a known plan. Problems with towers are not supported.
    """
    if (problem.space.table_group >= 0).any():
        raise ValueError("towers are not part of the program")
    return _Program(problem).solve(seconds, upper)


class _Program:
    def __init__(self, problem: Problem) -> None:
        self._space, cluster = problem.space, problem.cluster
        self._ranks, self._group = len(cluster.rank_hbm), cluster.group_size
        self._hosts = self._ranks // self._group
        space = self._space
        self._cost = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms
        self._cost = self._cost + space.run_bwd_comms + space.run_prefetch_compute
        self._room = {tier: np.array(getattr(cluster, f"rank_{tier}")) for tier in _TIERS}
        self._program = highspy.Highs()
        self._program.silent()
        self._loads: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self._rating = self._program.addVariable(lb=0, obj=1.0)
        for begin, end in zip(space.table_option_begin, space.table_option_begin[1:], strict=False):
            chosen = [self._option(option) for option in range(begin, end)]
            self._program.addConstr(sum(each for each in chosen if each is not None) == 1)
        for (what, rank), terms in self._loads.items():
            room = 1.0 if what != "cost" else self._rating
            if what != "cost" and self._room[what][rank] <= 0:
                room = 0.0
            self._program.addConstr(sum(terms) <= room)

    def solve(self, seconds: float, upper: float | None) -> Solved:
        program = self._program
        program.setOptionValue("time_limit", seconds)
        program.setOptionValue("threads", 1)
        program.setOptionValue("mip_rel_gap", 1e-6)
        if upper is not None:
            program.setOptionValue("objective_bound", upper)
            program.addConstr(self._rating <= upper * (1 + 1e-9))
        program.run()
        info = program.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        optimal = program.getModelStatus() == highspy.HighsModelStatus.kOptimal
        rating = info.objective_function_value if found else None
        return Solved(rating, info.mip_dual_bound, optimal)

    def _binary(self) -> Any:
        return self._program.addBinary()

    def _count(self, most: int) -> Any:
        return self._program.addIntegral(lb=0, ub=most)

    def _add(self, variable: Any, run: int, rank: int) -> None:
        if self._cost[run] > _NOTHING:
            self._loads["cost", rank].append(variable * float(self._cost[run]))
        for tier in _TIERS:
            size = int(getattr(self._space, f"run_{tier}")[run])
            share = size / max(int(self._room[tier][rank]), 1)
            if share > _NOTHING:
                self._loads[tier, rank].append(variable * share)

    def _option(self, option: int) -> Any:
        """A variable that is 1 if the table uses this option; None if the option is impossible."""
        space = self._space
        runs = range(*map(int, space.option_run_begin[option : option + 2]))
        counts = {run: int(space.run_count[run]) for run in runs}
        kind = SHARDING_TYPES[space.option_type[option]]
        shards = sum(counts.values())
        if kind in UNIFORM_TYPES and shards != self._ranks:
            return None
        chosen = self._binary()
        if kind in UNIFORM_TYPES:
            expanded = [run for run in runs for _ in range(counts[run])]
            for rank, run in enumerate(expanded):
                self._add(chosen, run, rank)
        elif kind in ("table_wise", "column_wise"):
            apart = KERNELS[space.option_kernel[option]] == "key_value"
            self._spread(chosen, counts, range(self._ranks), apart=apart)
        elif kind == "table_column_wise":
            at = [self._binary() for _ in range(self._hosts)]
            self._program.addConstr(sum(at) == chosen)
            for host, here in enumerate(at):
                self._spread(here, counts, range(host * self._group, (host + 1) * self._group))
        else:
            self._blocks(chosen, [run for run in runs for _ in range(counts[run])])
        return chosen

    def _spread(
        self, chosen: Any, counts: dict[int, int], ranks: range, *, apart: bool = False
    ) -> None:
        here = defaultdict(list)
        for run, count in counts.items():
            placed = []
            for rank in ranks:
                variable = self._count(1 if apart else count)
                placed.append(variable)
                here[rank].append(variable)
                self._add(variable, run, rank)
            self._program.addConstr(sum(placed) == count * chosen)
        if apart:
            for variables in here.values():
                self._program.addConstr(sum(variables) <= 1)

    def _blocks(self, chosen: Any, shards: list[int]) -> None:
        size = self._group
        columns = len(shards) // size
        alike = defaultdict(int)
        for i in range(columns):
            alike[tuple(shards[i * size : (i + 1) * size])] += 1
        on_host = defaultdict(list)
        for block, count in alike.items():
            placed = []
            for host in range(self._hosts):
                variable = self._count(1 if columns <= self._hosts else count)
                placed.append(variable)
                on_host[host].append(variable)
                for i, run in enumerate(block):
                    self._add(variable, run, host * size + i)
            self._program.addConstr(sum(placed) == count * chosen)
        if columns <= self._hosts:
            for variables in on_host.values():
                self._program.addConstr(sum(variables) <= 1)
