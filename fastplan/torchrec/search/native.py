"""The search when every part of it is stock: one call into the core for all static proposers, and
one run of the scale-up proposer, which listens to ratings."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fastplan.engine.problem import Problem
from fastplan.engine.solve import count_plans, count_some_plans, propose, solve
from fastplan.model.request import Search
from fastplan.model.solution import PlanCount, ProposerReport, Solution
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.torchrec.fallback import NotNative
from fastplan.torchrec.read import components
from fastplan.torchrec.read.space import Space
from fastplan.torchrec.search import scaleup
from fastplan.torchrec.search.outcome import Outcome
from fastplan.torchrec.search.scaleup import Scaleup


class NativeSearch:
    """A planner's components as settings. Raises NotNative when one of them is custom.

    After a run, `solution` is what the static proposers found.
    """

    solution: Solution

    def __init__(self, planner: Any, space: Space, reserved: Any, problem: Problem) -> None:
        if (planner._timeout_seconds or 0) < 0:
            raise NotNative("the time was over before the search began")
        objective = components.read_objective(planner._perf_model, len(problem.cluster.rank_hbm))
        self._proposers = planner._proposers
        self.space = space
        self._reserved = reserved
        self.problem = problem
        self.listening = [i for i, p in enumerate(self._proposers) if components.listens(p)]
        self._static = [i for i in range(len(self._proposers)) if i not in self.listening]
        for i in self.listening:
            scaleup.can_run(self._proposers[i], space)
        self.search = Search(
            proposers=tuple(components.read_proposer(self._proposers[i]) for i in self._static),
            partitioner=components.read_partitioner(planner._partitioner),
            timeout_seconds=float(planner._timeout_seconds or 0),
            objective=objective,
        )

    def run(self) -> Outcome:
        """Searches, and returns the plan that TorchRec's loop would have found first."""
        deadline = time.time() + (self.search.timeout_seconds or math.inf)
        self.solution = solution = solve(self.problem, self.search)
        outcome = self._static_outcome(solution)
        winner = self._static[solution.winner] if solution.found else len(self._proposers)
        runs: dict[int, Scaleup] = {}
        twins = {i: scaleup.twin(self._proposers[i]) for i in self.listening}
        for i in self.listening:
            run = runs[i] = Scaleup(self.space, self._reserved, self.problem.cluster)  # type: ignore[arg-type]
            run.run(twins[i], self.search, deadline)
            better = run.found and (
                not outcome.found
                or run.rating < outcome.rating
                or (run.rating == outcome.rating and i < winner)
            )
            if better:
                winner = i
            self._add(outcome, run, i, better)
        if runs and not outcome.found:
            self._add_failures(outcome, runs)
        # Only now: until here TorchRec might have had to search, with proposers as they were.
        for i, twin in twins.items():
            vars(self._proposers[i]).update(vars(twin))
        for i, report in zip(self._static, solution.reports, strict=True):
            components.keep_state(self._proposers[i], report)
        return outcome

    def _static_outcome(self, solution: Solution) -> Outcome:
        space, problem, search = self.space, self.problem, self.search

        def reports() -> tuple[ProposerReport, ...]:
            whole = solution if solution.exhaustive else solve(problem, search, exhaustive=True)
            return whole.reports

        def plans() -> int:
            known = solution.plans
            return sum(count_plans(problem, search)) if known is None else known

        def some_plans(placements: int) -> PlanCount:
            known = solution.plans
            if known is not None:
                return PlanCount(known)
            return count_some_plans(problem, search, placements)

        outcome = Outcome(
            failed=lambda: [
                space.chosen_options(options, None)
                for options in (solution.lowest, solution.last)
                if len(options)
            ],
            reserved=self._reserved,
            last=solution.last,
            proposals=solution.proposals,
            evaluated=solution.evaluated,
            plans=plans,
            some_plans=some_plans,
            reports=reports,
        )
        if solution.found:
            outcome.take(space, solution.options, solution.ranks, solution.rating)
        return outcome

    def _add(self, outcome: Outcome, run: Scaleup, index: int, better: bool) -> None:
        """Adds what a scale-up run found to the outcome of the proposers before it."""
        known = [self._is_static(proposal) for proposal in run.fresh]
        fresh_plans = sum(ok and not seen for ok, seen in zip(run.feasible, known, strict=True))
        outcome.proposals += known.count(False)
        outcome.evaluated += len(run.fresh)
        report = run.report()._replace(
            proposals=known.count(False), repeats=run.repeats + known.count(True), plans=fresh_plans
        )
        plans, some_plans, reports = outcome.plans, outcome.some_plans, outcome.reports
        outcome.plans = lambda: plans() + fresh_plans
        if some_plans is not None:
            outcome.some_plans = lambda placements: _with_more(some_plans(placements), fresh_plans)
        outcome.reports = lambda: _inserted(reports(), index, report)
        if better and run.best is not None:
            space, ranks = run.best
            options = np.arange(space.columns.tables, dtype=np.int32)
            outcome.take(space, options, ranks, run.rating)
            outcome.record = run.record

    def _add_failures(self, outcome: Outcome, runs: dict[int, Scaleup]) -> None:
        """Adds proposals to those that TorchRec's message is about, which ends with the last.

        That is the last one that nobody has proposed before.
        """
        seen: set[Any] = set()
        own: list[tuple[Scaleup, Any]] = []
        last: Any = None  # of the static proposers: a row of the core's
        for index, proposals in self._in_order(runs):
            for numbers, proposal in proposals:
                if numbers is not None and numbers in seen:
                    continue
                seen.add(numbers)
                last = None if index in runs else proposal
                if index in runs:
                    own.append((runs[index], proposal))
        smallest = outcome.failed

        def failed() -> list[list[Any]]:
            options = [run.space_of(p).chosen_options(range(len(p)), None) for run, p in own]
            if last is None:
                return [*smallest(), *options]
            return [*options, *smallest()[:1], self.space.chosen_options(last, None)]

        outcome.failed = failed
        outcome.last = () if last is None else last

    def _in_order(self, runs: dict[int, Scaleup]) -> Iterator[tuple[int, Iterable[Any]]]:
        """What each proposer has proposed: option numbers by table, and the proposal itself.

        Those of cache sizes that are not the search space's own have no numbers.
        """
        for index in range(len(self._proposers)):
            if index in runs:
                yield index, [(self._numbers(p), p) for p in runs[index].fresh]
            else:
                yield index, self._rows(self._static.index(index))

    def _is_static(self, proposal: list[Any]) -> bool:
        """Whether a static proposer proposes exactly these options too."""
        wanted = self._numbers(proposal)
        return wanted is not None and any(
            wanted == numbers
            for place in range(len(self._static))
            for numbers, _ in self._rows(place)
        )

    def _numbers(self, proposal: list[Any]) -> tuple[int, ...] | None:
        """The search space's options that a scale-up proposal is made of, if it is."""
        numbers = []
        columns = self.problem.space
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
        """What a static proposer has proposed: numbers by table, and in its own order."""
        begin, size, chunk = 0, 1, 1024
        while begin < size:
            rows = propose(self.problem, self.search.proposers[place], begin, begin + chunk)
            size = rows["size"]
            if self.solution.exhaustive:  # it may have stopped before its end
                report = self.solution.reports[place]
                size = min(size, report.proposals + report.repeats)
            by_table = np.argsort(rows["table_order"])
            for row in rows["options"][: size - begin]:
                yield tuple(row[by_table].tolist()), row
            begin += chunk


def _with_more(count: PlanCount, plans: int) -> PlanCount:
    return count._replace(plans=count.plans + plans)


def _inserted(
    reports: tuple[ProposerReport, ...], index: int, report: ProposerReport
) -> tuple[ProposerReport, ...]:
    return (*reports[:index], report, *reports[index:])
