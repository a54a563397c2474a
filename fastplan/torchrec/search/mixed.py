"""The search with a proposer, partitioner or perf model in Python.

The loop is TorchRec's, but its stock parts are native: the sequence of static proposers, the
placement of a proposal, its rating. Objects are updated only if custom code will read them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torchrec.distributed.planner import proposers as proposers_of_torchrec
from torchrec.distributed.planner.constants import MAX_SIZE
from torchrec.distributed.planner.types import PlannerError, ShardingOption
from torchrec.distributed.planner.utils import reset_shard_rank

from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import OutOfRange, Placer, ProposerReport, placer, propose
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Proposer
from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.torchrec import compat
from fastplan.torchrec.compat import Custom, NotNative
from fastplan.torchrec.differences import search_space, storage_tiers
from fastplan.torchrec.fallback import errors_of_parts
from fastplan.torchrec.read.components import Parts
from fastplan.torchrec.read.space import FixedPlacement, PythonSpace, Space, place
from fastplan.torchrec.search.failures import (
    FailedProposal,
    Failures,
    PlacementFailed,
    ranks_and_offsets,
)
from fastplan.torchrec.search.known_options import OptionIndex
from fastplan.torchrec.search.native import PlannerSearched
from fastplan.torchrec.search.plan_copies import PlanCopies

_CHUNK = 256


@dataclass(slots=True)
class _Placed:
    """The cached result of a proposal: its plan and rating, or no plan."""

    feasible: bool
    plan: list[ShardingOption] | None
    rating: float | None


@dataclass(frozen=True, kw_only=True)
class MixedSearched(PlannerSearched):
    """The result of TorchRec's loop."""

    last_failed: list[ShardingOption]
    counted: tuple[ProposerReport, ...]

    def plans(self) -> int:
        return sum(report.plans for report in self.counted)

    def reports(self) -> tuple[ProposerReport, ...]:
        return self.counted

    def failed(self) -> list[list[ShardingOption]]:
        return [self.last_failed] if self.last_failed else []

    @property
    def last(self) -> Any:
        return ()


class MixedSearch:
    """One run of the planner's loop.

    Args:
        planner: the planner.
        parts: its proposers, partitioner and perf model.
        space: the search space.
        shown: its options, for proposers.
        problem: the search space as a problem of the core.
        reserved: the topology after the reservation.
    """

    def __init__(
        self,
        planner: Any,
        parts: Parts,
        space: Space,
        shown: list[ShardingOption],
        problem: Problem,
        reserved: Any,
    ) -> None:
        self._planner = planner
        self._parts = parts
        self._space = space
        self._reserved = reserved
        self._cluster = problem.cluster
        # Proposers receive the list itself, as from TorchRec, and may edit it.
        self._shown = shown
        search_space.show(planner, self._shown)
        self._columns = space.columns
        self._known = OptionIndex(self._shown, self._columns)
        self._copies = PlanCopies(self._known)
        self._is_edited = False
        self._reads_ranks = False
        self._ranks: list[int] | None = None  # of the last proposal, if it was placed natively
        self._problem = problem
        self._native_rating = not isinstance(parts.rating, Custom)
        self._objective = parts.search.objective
        self._placer = self._placer_of(self._problem)
        self._seen: dict[bytes, _Placed] = {}
        self._best: list[ShardingOption] | None = None
        self._best_ranks: list[int] | None = None
        self._best_numbers: list[int] | None = None
        self._best_rating: float = MAX_SIZE
        self._failures = Failures()

    def run(self, fixed: str) -> MixedSearched:
        """Searches, and returns the result of TorchRec's loop.

        Args:
            fixed: why the plan can be neither optimized nor compared.
        """
        with compat.resumed():
            return self._run(fixed)

    def _run(self, fixed: str) -> MixedSearched:
        reports = []
        proposers = self._planner._proposers
        native = [_static(settings) for settings in self._parts.proposers]
        self._load(native)
        start = time.time()
        to_check = False
        exhausted: set[int] = set()
        for proposer, settings in zip(proposers, native, strict=True):
            if settings is not None and to_check:
                self._is_edited = self._is_edited or not self._known.are_all_in(self._shown)
                to_check = False
            if id(proposer) in exhausted:  # the same object again, which the core ran before
                proposals: Iterator[list[ShardingOption]] = iter(())
                report = None
            elif settings is None or self._is_edited:
                proposals, report = _ask(proposer), self._feedback_to(proposer)
                to_check = to_check or not _is_torchrec_class(proposer)
            else:
                proposals, report = self._sequence(settings), None
                exhausted.add(id(proposer))
            self._reads_ranks = report is not None and not _is_torchrec_class(proposer)
            reports.append(self._run_proposer(proposals, report, start))
            # Not before: if the core can't run it, TorchRec's planner does.
            kind = proposers_of_torchrec.DynamicProgrammingProposer
            if id(proposer) in exhausted and type(proposer) is kind:
                proposer._inited = True
        placed = sum(report.proposals for report in reports)
        return MixedSearched(
            space=self._space,
            problem=self._problem,
            search=self._parts.search,
            solution=None,
            placement=self._placement(),
            proposals=placed,
            evaluated=placed,
            fixed=fixed,
            reserved=self._reserved,
            error=None if self._best else self._failures.error(self._planner, self._reserved),
            lowest=self._failures.lowest if self._failures.last else None,
            last_failed=self._failures.last,
            counted=tuple(reports),
        )

    def _placement(self) -> FixedPlacement | None:
        if not self._best:
            return None
        place(self._best, self._best_ranks)
        record = self._record() if self._best_numbers else None
        return FixedPlacement.of(self._best, _double(self._best_rating), record)

    def _load(self, native: list[Any]) -> None:
        """Loads the search space into the proposers.

        Custom proposers may sort it, shorten it or change its options. TorchRec's own proposers
        then load it in turn, in Python, as TorchRec does.
        """
        proposers = self._planner._proposers
        is_custom = not all(map(_is_torchrec_class, proposers))
        if is_custom:
            self._known.remember_all()
        for proposer, settings in zip(proposers, native, strict=True):
            if settings is None or is_custom:
                proposer.load(search_space=self._shown, enumerator=self._planner._enumerator)
            # A later proposer may undo a change, but the ones in between have loaded it.
            if not _is_torchrec_class(proposer) and not self._known.are_all_in(self._shown):
                self._is_edited = True
        if not self._is_edited:
            return
        if self._placer is None:
            return
        try:
            space = PythonSpace(self._shown)
            self._placer = self._placer_of(Problem(space.columns, self._cluster))
        except (NotNative, OutOfRange):
            return
        self._columns = space.columns
        self._known = OptionIndex(space.all_options(), self._columns)
        self._copies = PlanCopies(self._known)

    def _record(self) -> PlanRecord:
        """Returns the best plan as plain data. All its options must be from the search space."""
        ranks = [
            shard.rank
            for option in self._best or []
            if option.sharding_type not in UNIFORM_TYPES
            for shard in option.shards
        ]
        columns = self._space.columns
        return PlanRecord.of(columns, self._best_numbers or (), ranks, _double(self._best_rating))

    def _run_proposer(
        self,
        proposals: Iterator[list[ShardingOption]],
        report: Callable[[_Placed, bool], None] | None,
        start: float,
    ) -> ProposerReport:
        """Runs one proposer to its end."""
        fresh = repeats = 0
        plans = self._planner._num_plans
        best: float | None = None
        timeout = self._planner._timeout_seconds
        timed_out = False
        for proposal in proposals:
            if timeout and time.time() - start > timeout:
                timed_out = True
                break
            key, numbers = self._known.identify(proposal, checked=report is not None)
            known = self._seen.get(key)
            if known is not None:
                repeats += 1
                if report is not None:
                    report(known, True)
                continue
            fresh += 1
            self._planner._num_proposals += 1
            watched = report is not None or not self._native_rating
            result = self._seen[key] = self._try(proposal, numbers, watched)
            if result.rating is not None and (best is None or result.rating < best):
                best = result.rating
            if report is not None:
                report(result, False)
            if type(proposal) is list:
                self._known.reset_ranks(proposal)
            else:
                reset_shard_rank(proposal)
        plans = self._planner._num_plans - plans
        rating = math.nan if best is None else _double(best)
        return ProposerReport(fresh, repeats, plans, timed_out, rating, float("inf"), 0)

    def _try(
        self, proposal: list[ShardingOption], numbers: list[int] | None, watched: bool
    ) -> _Placed:
        try:
            plan, rating = self._partition(proposal, numbers, watched)
        except PlannerError as error:
            storage = None
            if numbers is not None:
                storage = storage_tiers.storage(*self._known.storage(numbers))
            self._failures.note(proposal, error, storage)
            return _Placed(False, proposal, None)
        if rating < self._best_rating:
            self._best_rating = rating
            self._best_ranks = self._ranks
            # Only a plan that was placed natively gets its ranks at the end.
            copied = numbers if self._ranks is not None else None
            self._best = self._copies.copy(plan, copied)
            is_known = numbers is not None and not self._is_edited
            self._best_numbers = self._known.numbers(plan) if is_known else None
        return _Placed(True, plan, rating)

    def _partition(
        self, proposal: list[ShardingOption], numbers: list[int] | None, watched: bool
    ) -> tuple[list[ShardingOption], float]:
        """Places and rates a proposal. Raises PlannerError if it can't be placed.

        The options get their ranks if Python reads them, or if the plan is the best so far. A
        custom proposer also sees the ranks of a failed placement.
        """
        native, columns = self._placer_for(proposal, numbers)
        placed = None
        if native is not None:
            chosen = range(len(proposal)) if numbers is None else numbers
            placed = native.place(list(chosen))
            if placed is None:
                if not self._reads_ranks:
                    raise PlacementFailed
                if partial := native.partial_ranks():
                    failed = FailedProposal(proposal, columns, chosen)
                    raise PlacementFailed(self._place_partly(failed, numbers, partial))
        self._ranks = None if placed is None else placed[0]
        if placed is None:
            plan = self._planner._partitioner.partition(
                proposal=proposal, storage_constraint=self._reserved
            )
            self._planner._num_plans += 1
            return plan, self._rate(plan)
        self._planner._num_plans += 1
        ranks, rating = placed
        if watched or rating < self._best_rating:
            self._place(proposal, numbers, ranks)
        if not self._native_rating:
            rating = self._rate(proposal)
        return proposal, rating

    def _rate(self, plan: list[ShardingOption]) -> float:
        with errors_of_parts():
            return self._planner._perf_model.rate(plan=plan)  # type: ignore[no-any-return]

    def _placer_of(self, problem: Problem) -> Placer | None:
        """Returns a placer for proposals of a problem; None if Python must partition."""
        if isinstance(self._parts.partitioner, Custom):
            return None
        return placer(problem, self._parts.partitioner, self._objective)

    def _placer_for(
        self, proposal: list[ShardingOption], numbers: list[int] | None
    ) -> tuple[Placer | None, SearchSpace]:
        """Returns a placer, or None if Python must partition, and the columns of the options."""
        if self._placer is None or numbers is not None:
            return self._placer, self._columns
        # The proposer creates or changes options: use a problem with one option per table.
        try:
            columns = PythonSpace(proposal).columns
            return self._placer_of(Problem(columns, self._cluster)), columns
        except (NotNative, OutOfRange):
            return None, self._columns

    def _place(
        self,
        proposal: list[ShardingOption],
        numbers: list[int] | None,
        ranks: Sequence[int | None],
    ) -> None:
        if numbers is None:
            place(proposal, ranks)
        else:
            self._known.place(proposal, numbers, ranks)

    def _place_partly(
        self, failed: FailedProposal, numbers: list[int] | None, ranks: list[int | None]
    ) -> FailedProposal:
        """Sets the ranks of a failed placement; returns the proposal as it was before."""
        before = ranks_and_offsets(failed.options)
        # TorchRec leaves the ranks of shards that it did not place.
        left = [old if rank is None else rank for rank, (old, _) in zip(ranks, before, strict=True)]
        self._place(failed.options, numbers, left)
        return replace(failed, options=list(failed.options), before=before)

    def _sequence(self, settings: Any) -> Iterator[list[ShardingOption]]:
        begin, size = 0, 1
        while begin < size:
            rows = propose(self._problem, settings, begin, begin + _CHUNK)
            size = rows["size"]
            for row in rows["options"]:
                yield [self._known[o] for o in np.asarray(row).tolist()]
            begin += _CHUNK

    def _feedback_to(self, proposer: Any) -> Callable[[_Placed, bool], None]:
        def report(result: _Placed, repeated: bool) -> None:
            arguments = {
                "partitionable": result.feasible,
                "plan": result.plan,
                "storage_constraint": self._reserved,
            }
            # TorchRec omits a missing rating, except for repeated proposals.
            if result.feasible or repeated:
                arguments["perf_rating"] = result.rating
            proposer.feedback(**arguments)

        return report


def _double(rating: Any) -> float:
    """Returns the rating of a custom perf model as a float; a larger number is infinite."""
    try:
        return float(rating)
    except OverflowError:
        return math.copysign(math.inf, 1 if rating > 0 else -1)


def _ask(proposer: Any) -> Iterator[list[ShardingOption]]:
    proposal = proposer.propose()
    while proposal:
        yield proposal
        proposal = proposer.propose()


def _is_torchrec_class(proposer: Any) -> bool:
    """Whether a proposer's code is TorchRec's, which never changes its options."""
    kind = type(proposer)
    replaced = {"load", "propose", "feedback"} & getattr(proposer, "__dict__", {}).keys()
    return kind.__module__ == proposers_of_torchrec.__name__ and not replaced


def _static(settings: Proposer | Custom | None) -> Proposer | None:
    """Returns the settings of a proposer whose proposals are known in advance, or None."""
    if not isinstance(settings, Proposer) or settings.threshold:
        return None  # a threshold depends on ratings
    return settings
