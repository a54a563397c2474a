"""The search if every part is stock: one call of the core for all static proposers, and one run of
the scale-up proposer, which depends on ratings."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import Storage

from fastplan.engine.layout import chosen_runs
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import ProposerReport, Solution, propose, solve
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.planning.search import Placement, Searched
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.read import components
from fastplan.torchrec.read.components import Parts
from fastplan.torchrec.read.space import Space
from fastplan.torchrec.search import scaleup
from fastplan.torchrec.search.scaleup import Scaleup


@dataclass(frozen=True, kw_only=True)
class PlannerSearched(Searched):
    """The result of a search, with the inputs of TorchRec's error message if nothing fits.

    Attributes:
        reserved: the topology that was searched.
        error: the error of a partitioner in Python for the last proposal.
        lowest: storage of the smallest proposal; None if there was none, or if there is a plan.
    """

    space: Space
    reserved: Any
    error: Any = None
    lowest: Any = None

    def failed(self) -> list[list[Any]]:
        """The last proposal as options, in a list; empty if there was none."""
        last = self.last
        return [self.space.chosen_options(last, None)] if len(last) else []

    @property
    def last(self) -> Any:
        """The numbers of the last proposal's options, if they are in the space."""
        assert self.solution is not None
        return self.solution.last


def storage_of(columns: SearchSpace, options: Any) -> Storage | None:
    """Returns the storage of all shards of options; None without options."""
    if not len(options):
        return None
    runs, _ = chosen_runs(columns, options)
    count = columns.run_count[runs]
    sizes = (columns.run_hbm[runs], columns.run_ddr[runs], columns.run_ssd[runs])
    return storage_tiers.storage(*(int((count * each).sum()) for each in sizes))


class NativeSearch:
    """One search with a planner's stock parts."""

    def __init__(
        self, planner: Any, parts: Parts, space: Space, problem: Problem, reserved: Any
    ) -> None:
        self._proposers = planner._proposers
        self._enumerator = planner._enumerator
        self._parts = parts
        self._space = space
        self._problem = problem
        self._reserved = reserved

    def run(self) -> PlannerSearched:
        """Searches, and returns the plan that TorchRec's loop finds first."""
        search, listening = self._parts.search, self._parts.scaleup
        deadline = time.time() + (search.timeout_seconds or math.inf)
        # Proposals of other proposers compete with those by their rating.
        solution = solve(self._problem, search, by="rating" if listening else None)
        twins = {place: scaleup.twin(self._proposers[place]) for place in listening}
        runs = {}
        for place, twin in twins.items():
            runs[place] = Scaleup(self._space, self._reserved, self._problem.cluster)  # type: ignore[arg-type]
            runs[place].run(twin, search, deadline)
        found = self._searched(solution, runs)
        # Only now: a fallback to TorchRec before this line needs the proposers unchanged.
        for place, twin in twins.items():
            vars(self._proposers[place]).update(vars(twin), enumerator=self._enumerator)
        static = [p for i, p in enumerate(self._proposers) if i not in twins]
        for proposer, report in zip(static, solution.reports, strict=True):
            components.keep_state(proposer, report)
        return found

    def _searched(self, solution: Solution, runs: dict[int, Scaleup]) -> PlannerSearched:
        placement = None
        if solution.found:
            chosen = solution.options, solution.ranks, solution.rating
            placement = Placement(self._space, *chosen)
        facts: dict[str, Any] = {
            "space": self._space,
            "problem": self._problem,
            "search": self._parts.search,
            "solution": solution,
            "reserved": self._reserved,
            "placement": placement,
            "proposals": solution.proposals,
            "evaluated": solution.evaluated,
            "lowest": storage_of(self._space.columns, solution.lowest),
        }
        if not runs:
            return PlannerSearched(**facts)
        return ScaleupSearched.of(facts, self._parts, runs)


@dataclass(frozen=True, kw_only=True)
class ScaleupSearched(PlannerSearched):
    """The result of the core, merged with the runs of scale-up proposers."""

    parts: Parts
    runs: dict[int, Scaleup]

    @classmethod
    def of(cls, facts: dict[str, Any], parts: Parts, runs: dict[int, Scaleup]) -> ScaleupSearched:
        """Merges the core's result and the runs."""
        fixed = "the scale-up proposer resizes caches, which nothing else does"
        own = cls(**facts, parts=parts, runs=runs, fixed=fixed)
        new = sum(known.count(False) for known in own._known.values())
        best = own._best()
        counts = {
            "placement": best,
            "lowest": own._lowest() if best is None else None,
            "proposals": own.proposals + new,
            "evaluated": own.evaluated + sum(len(run.fresh) for run in runs.values()),
        }
        found = cls(**{**facts, **counts}, parts=parts, runs=runs, fixed=fixed)
        vars(found).update(_known=own._known)  # which takes long to compute
        return found

    def _best(self) -> Placement | None:
        """Returns the best plan; among equal ratings, that of the first proposer."""
        best, solution = self.placement, self.solution
        assert solution is not None
        winner = self._static[solution.winner] if solution.found else len(self.parts.proposers)
        for place, run in self.runs.items():
            if not run.found or run.best is None:
                continue
            rating = math.inf if best is None else best.rating
            if run.rating < rating or (run.rating == rating and place < winner):
                space, ranks = run.best
                options = np.arange(space.columns.tables, dtype=np.int32)
                best = Placement(space, options, ranks, run.rating, run.record())
                winner = place
        return best

    def _lowest(self) -> Storage | None:
        """Returns the storage of the smallest proposal of all."""
        sizes = [] if self.lowest is None else [self.lowest]
        for run in self.runs.values():
            for proposal in run.fresh:
                sizes.append(
                    sum((each.total_storage for each in proposal), storage_tiers.storage(0, 0))
                )
        return min(sizes, default=None)

    @cached_property
    def _static(self) -> list[int]:
        """The positions of the proposers that the core has run."""
        return [place for place in range(len(self.parts.proposers)) if place not in self.runs]

    @cached_property
    def _known(self) -> dict[int, list[bool]]:
        """By run: whether a static proposer also makes each of its proposals."""
        return {
            place: [self._is_static(proposal) for proposal in run.fresh]
            for place, run in self.runs.items()
        }

    @cached_property
    def _new_plans(self) -> dict[int, int]:
        return {
            place: sum(
                fits and not known
                for fits, known in zip(run.feasible, self._known[place], strict=True)
            )
            for place, run in self.runs.items()
        }

    def plans(self) -> int:
        return super().plans() + sum(self._new_plans.values())

    def reports(self) -> tuple[ProposerReport, ...]:
        reports = [*super().reports()]
        for place, run in self.runs.items():
            known = self._known[place]
            own = run.report()._replace(
                proposals=known.count(False),
                repeats=run.repeats + known.count(True),
                plans=self._new_plans[place],
            )
            reports.insert(place, own)
        return tuple(reports)

    def failed(self) -> list[list[Any]]:
        own, last = self._last_proposals
        if last is not None or not own:
            return super().failed()
        run, proposal = own[-1]
        return [run.space_of(proposal).chosen_options(range(len(proposal)), None)]

    @property
    def last(self) -> Any:
        last = self._last_proposals[1]
        return () if last is None else last

    @cached_property
    def _last_proposals(self) -> tuple[list[tuple[Scaleup, Any]], Any]:
        """Returns the proposals of the runs, and the last one of all if it is the core's."""
        seen: set[Any] = set()
        own: list[tuple[Scaleup, Any]] = []
        last: Any = None
        for place, proposals in self._in_order():
            for numbers, proposal in proposals:
                if numbers is not None and numbers in seen:
                    continue
                seen.add(numbers)
                last = None if place in self.runs else proposal
                if place in self.runs:
                    own.append((self.runs[place], proposal))
        return own, last

    def _in_order(self) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yields the proposals of each proposer: option numbers by table, and the proposal.

        Proposals with cache sizes that are not in the search space have no numbers.
        """
        for place in range(len(self.parts.proposers)):
            if place in self.runs:
                yield place, [(self._numbers(p), p) for p in self.runs[place].fresh]
            else:
                yield place, self._rows(self._static.index(place))

    def _is_static(self, proposal: list[Any]) -> bool:
        """Whether a static proposer also proposes exactly these options."""
        wanted = self._numbers(proposal)
        return wanted is not None and any(
            wanted == numbers
            for place in range(len(self._static))
            for numbers, _ in self._rows(place)
        )

    def _numbers(self, proposal: list[Any]) -> tuple[int, ...] | None:
        """Returns the numbers of a scale-up proposal's options, if all are in the search space."""
        numbers = []
        columns = self.space.columns
        for option in proposal:
            begin, end = columns.table_option_begin[option.table : option.table + 2]
            same = [
                o
                for o in range(begin, end)
                if SHARDING_TYPES[columns.option_type[o]] == option.sharding_type
                and KERNELS[columns.option_kernel[o]] == option.compute_kernel
            ]
            rule = self.space.origins[option.table].constraint  # type: ignore[attr-defined]
            cache = rule.cache_params if rule is not None else None
            factor = cache.load_factor if cache is not None else None
            if not same or option.cache_load_factor != factor:
                return None
            numbers.append(same[0])
        return tuple(numbers)

    def _rows(self, place: int) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Returns a static proposer's proposals: numbers by table, and in its own order."""
        assert self.solution is not None
        begin, size, chunk = 0, 1, 1024
        while begin < size:
            assert self.problem is not None
            rows = propose(self.problem, self.search.proposers[place], begin, begin + chunk)
            size = rows["size"]
            if self.solution.exhaustive:  # it may have stopped before its end
                report = self.solution.reports[place]
                size = min(size, report.proposals + report.repeats)
            by_table = np.argsort(rows["table_order"])
            for row in rows["options"][: size - begin]:
                yield tuple(row[by_table].tolist()), row
            begin += chunk
