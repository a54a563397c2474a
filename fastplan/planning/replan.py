"""Plans that follow a previous plan, or the reason why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from fastplan.engine.layout import layout_of
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.replan import (
    Held,
    Point,
    ReplanResult,
    ReplanSettings,
    best_ratings,
    fewest_bytes,
    moved_bytes,
)
from fastplan.engine.solve import Options, request_columns, verify_plan
from fastplan.engine.step import step_of
from fastplan.model.plan import Basis, Plan, PlanRecord
from fastplan.model.request import Cluster, Request
from fastplan.model.units import format_size
from fastplan.planning.difference import Difference, difference, table_name
from fastplan.planning.held import (
    balanced_rank_cost,
    held_columns,
    kept_space,
    mean_rank_cost,
    rank_map,
    renumbered,
)
from fastplan.planning.moves import Moves, list_moves
from fastplan.planning.policy import Replan

# Shares of all bytes, for the frontier.
FRONTIER = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# A quick check must not cost what it saves.
_QUICK_MOVES = 2_000
# Multiples of the move budget to try before the policy counts as unmet.
_MOVE_MULTIPLIERS = (1, 5)
# The largest share of changed tables for a quick check.
_MAX_CHANGED_FOR_QUICK = 0.1


class Scratch(NamedTuple):
    """The plan that is made without a previous plan."""

    options: Options
    ranks: Options
    rating: float


class FrontierPoint(NamedTuple):
    """The best rating found for an amount of moved bytes."""

    moved: int
    rating: float


@dataclass(slots=True, kw_only=True)
class ReplanReport:
    """The report of a re-plan. `followed` says whether the plan follows the previous one.

    Moved bytes are those that ranks need and do not hold, optimizer state included.
    """

    followed: bool
    previous: str  # the previous plan's name; for a cached plan, "entry" and its key's first digits
    reason: str | None  # why not, or why there was no search from scratch
    difference: Difference
    rating: float
    moved: int
    least: int  # no plan moves fewer bytes
    held: int  # bytes of all tables that any rank holds
    scratch_rating: float | None  # of the plan from scratch, if any
    scratch_moved: int | None
    frontier: tuple[FrontierPoint, ...] = ()
    _list: Callable[[], Moves] = field(repr=False)
    _moves: Moves | None = field(default=None, repr=False)

    @property
    def moved_part(self) -> float:
        """Moved bytes as a share of all."""
        return self.moved / self.held if self.held else 0.0

    @property
    def moves(self) -> Moves:
        """The moves, listed on first access."""
        if self._moves is None:
            self._moves = self._list()
        return self._moves

    def __repr__(self) -> str:
        """One line: what was followed, and what moves. Moves are not listed for it."""
        how = "follows" if self.followed else "from scratch, not"
        moved = "nothing moves"
        if self.moved:
            moved = f"moves {format_size(self.moved)} of {format_size(self.held)}"
        why = f" ({self.reason})" if self.reason else ""
        return f"{how} {self.previous}{why}: {moved}; {self.difference}"

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        self.moves  # noqa: B018  the means to list them can't be pickled
        slots = {name: getattr(self, name) for name in self.__slots__}
        return None, {**slots, "_list": None}


class ReplanAttempt:
    """One request on a cluster that follows a previous plan.

    Raises PlanModelMismatch for a plan of another model, and ValueError for an invalid `rank_map`.
    """

    def __init__(self, request: Request, cluster: Cluster, previous: Plan, policy: Replan) -> None:
        self.request = request
        self.cluster = cluster
        self.policy = policy
        self._previous = previous
        self._ranks = rank_map(policy.rank_map, previous.ranks, len(cluster.rank_hbm))
        self.difference = difference(previous, request, cluster, self._ranks)

    @cached_property
    def before(self) -> Plan:
        """The previous plan with the current rank numbers."""
        return renumbered(self._previous, self._ranks, len(self.cluster.rank_hbm))

    @cached_property
    def _columns(self) -> dict[str, Any]:
        return request_columns(self.request)

    @cached_property
    def held(self) -> Held:
        """The shards that ranks hold of the request's tables."""
        return held_columns(self.request.tables, self._columns, self.before.layout.tables)

    def quick_plan(self) -> tuple[Problem, Point, ReplanReport] | None:
        """Returns a plan that needs no comparison with one from scratch, and its problem.

        None if there is none. Only for searches that rate plans by their largest rank, without
        the optimizer. Raises OutOfRange and CostError like estimate().
        """
        columns = self.quick_space()
        if columns is None:
            return None
        problem = Problem(columns, self.cluster)
        found = self.quick(problem)
        return None if found is None else (problem, *found)

    def quick_space(self) -> SearchSpace | None:
        """Returns the search space with only the old options, except for changed tables.

        None if the change is so large that it needs a comparison with one from scratch. Raises
        OutOfRange and CostError like estimate().
        """
        policy, found = self.policy, self.difference
        if self.request.hardware is not None:
            return None  # balanced ranks say nothing about the step
        if policy.reference != "auto" or policy.objective != "bytes" or policy.frontier:
            return None
        few = len(found.changed) <= _MAX_CHANGED_FOR_QUICK * len(self.request.tables)
        if not (few and found.same_ranks) or found.cost_model:
            return None
        return kept_space(self.request, self._columns, self.held, found.changed)

    def quick(self, problem: Problem) -> tuple[Point, ReplanReport] | None:
        """Returns a plan of the quick space's problem with a small load imbalance.

        It is as balanced as the previous plan, or perfectly balanced within the slack. None if
        no such plan moves few bytes.
        """
        even = balanced_rank_cost(problem)
        found = self._evened(problem, even * (1 + self.policy.slack))
        if not found.points[0].found:
            basis = self._previous.basis
            if basis is None:
                return None
            before = basis.record.rating / max(mean_rank_cost(basis), 1e-300)
            if before <= 1 + self.policy.slack:
                return None
            found = self._evened(problem, even * before)
        point = found.points[0]
        if not point.found or verify_plan(problem, point.options, point.ranks, point.rating):
            return None
        reason = "few tables changed, and the plan is as balanced as the previous one"
        return point, self._report(problem, point, found, None, reason)

    def _evened(self, problem: Problem, rating: float) -> ReplanResult:
        moves = min(_QUICK_MOVES, self.policy.move_budget)
        return fewest_bytes(
            problem,
            self.held,
            rating=rating,
            budget=self.policy.max_moved,
            settings=replace(self.policy.settings, move_budget=moves),
        )

    def after(self, problem: Problem, scratch: Scratch | None) -> tuple[Point, ReplanReport] | str:
        """Returns the plan that follows the previous one, compared with the one from scratch.

        If the policy can't be met, the point is the plan from scratch; without one, a string with
        the reason is returned.
        """
        limit = self._limit(scratch)
        changed = self._changed_part()
        if changed > self.policy.max_changed and scratch is not None:
            reason = (
                f"{changed:.0%} of all bytes are of new or resized tables, over `max_changed` "
                f"{self.policy.max_changed:.0%}"
            )
            return self._from_scratch(problem, scratch, None, reason)
        for effort in _MOVE_MULTIPLIERS:
            found = self._search(problem, scratch, effort)
            point = self._choose(problem, found, limit)
            if point.found and verify_plan(problem, point.options, point.ranks, point.rating):
                point = replace(point, found=False)
            if point.found and self._is_within(problem, point, scratch):
                break
        if scratch is None:
            if not point.found:
                return "no plan that follows the previous plan fits"
            return point, self._report(problem, point, found, None, None)
        moved = moved_bytes(problem, self.held, scratch.options, scratch.ranks)
        within = moved <= found.least + int(self.policy.max_moved * found.held)
        if within and (not point.found or (moved <= point.moved and scratch.rating < point.rating)):
            point = Point(**scratch._asdict(), moved=moved, found=True)
        if point.found and self._is_within(problem, point, scratch):
            return point, self._report(problem, point, found, scratch, None)
        if point.found and point.rating <= limit:
            reason = self._why_step(problem, point, scratch)
        else:
            reason = self._why_not(problem, found, scratch)
        return self._from_scratch(problem, scratch, found, reason)

    def _is_within(self, problem: Problem, point: Point, scratch: Scratch | None) -> bool:
        """Whether a plan is as good as the policy asks, by the rating and by the step if any."""
        if point.rating > self._limit(scratch):
            return False
        if scratch is None or problem.space.step is None:
            return True
        step, limit = (step_of(problem, plan.options, plan.ranks).ms for plan in (point, scratch))
        return step <= limit * (1 + self.policy.slack)

    def _why_step(self, problem: Problem, point: Point, scratch: Scratch) -> str:
        step, limit = (step_of(problem, plan.options, plan.ranks).ms for plan in (point, scratch))
        return (
            f"the step of the plan that moves few bytes is {step:.6g} ms, over the {limit:.6g} ms "
            f"from scratch by more than `slack` {self.policy.slack:.1%}"
        )

    def _search(self, problem: Problem, scratch: Scratch | None, effort: int) -> ReplanResult:
        policy = self.policy
        settings = replace(policy.settings, move_budget=policy.move_budget * effort)
        if policy.objective == "bytes" and scratch is not None:
            return self._fewest_bytes(problem, scratch, policy.max_moved, settings)
        budgets = [policy.max_moved]
        if policy.objective == "payback":
            budgets = [part for part in FRONTIER if part < policy.max_moved] + budgets
        return best_ratings(problem, self.held, budgets=budgets, settings=settings)

    def _fewest_bytes(
        self, problem: Problem, scratch: Scratch, budget: float, settings: ReplanSettings
    ) -> ReplanResult:
        return fewest_bytes(
            problem,
            self.held,
            rating=self._limit(scratch),
            budget=budget,
            settings=settings,
            reached=(scratch.options, scratch.ranks),
        )

    def _limit(self, scratch: Scratch | None) -> float:
        return math.inf if scratch is None else scratch.rating * (1 + self.policy.slack)

    def _choose(self, problem: Problem, found: ReplanResult, limit: float) -> Point:
        """Returns the point that the objective prefers."""
        points = [point for point in found.points if point.found]
        if not points:
            return found.points[-1]
        if self.policy.objective == "payback":
            return min(points, key=lambda point: self._milliseconds(problem, point))
        point = points[-1]
        if self.policy.objective == "bytes" and math.isfinite(limit):
            # The same number of bytes may allow a better rating.
            budget = (point.moved - found.least) / max(found.held, 1)
            same = best_ratings(
                problem,
                self.held,
                budgets=[budget],
                settings=self.policy.settings,
                start=(point.options, point.ranks),
            ).points[0]
            if same.found and same.moved <= point.moved and same.rating < point.rating:
                return same
        return point

    def _milliseconds(self, problem: Problem, point: Point) -> float:
        """Returns the time of the moves plus the time of all remaining steps."""
        seconds = list_moves(self.before, self._plan(problem, point)).seconds or 0.0
        return 1000 * seconds + (self.policy.remaining_steps or 0) * point.rating

    def _why_not(self, problem: Problem, found: ReplanResult, scratch: Scratch) -> str:
        """Returns the reason why the policy is not met."""
        limit = self._limit(scratch)
        allowed = f"`max_moved` {self.policy.max_moved:.1%}"
        if self.policy.objective == "bytes":
            more = self._fewest_bytes(problem, scratch, 1.0, self.policy.settings).points[0]
            if more.found:
                part = (more.moved - found.least) / max(found.held, 1)
                return (
                    f"the best plan found with a rating of at most {limit:.6g} moves {part:.1%} of "
                    f"all bytes beyond what must move, over {allowed}"
                )
        best = min((point.rating for point in found.points), default=math.inf)
        if math.isfinite(best):
            return f"the best rating within {allowed} is {best:.6g}, over {limit:.6g}"
        return f"no plan rated at most {limit:.6g} was found within {allowed}"

    def _changed_part(self) -> float:
        """Returns the share of new or resized tables in all bytes."""
        names = {*self.difference.added, *(change.table for change in self.difference.resized)}
        tables = self.request.tables
        changed = sum(
            table.bytes for table in tables if table_name(table.path, table.name) in names
        )
        return changed / max(sum(table.bytes for table in tables), 1)

    def _from_scratch(
        self, problem: Problem, scratch: Scratch, found: ReplanResult | None, reason: str
    ) -> tuple[Point, ReplanReport]:
        settings = replace(self.policy.settings, move_budget=0)
        found = found or best_ratings(problem, self.held, budgets=[], settings=settings)
        moved = moved_bytes(problem, self.held, scratch.options, scratch.ranks)
        point = Point(**scratch._asdict(), moved=moved, found=True)
        report = self._report(problem, point, found, scratch, reason)
        report.followed = False
        return point, report

    def _report(
        self,
        problem: Problem,
        point: Point,
        found: ReplanResult,
        scratch: Scratch | None,
        reason: str | None,
    ) -> ReplanReport:
        start = found.start

        def moves() -> Moves:
            listed = list_moves(self.before, self._plan(problem, point))
            gain = start.rating - point.rating  # milliseconds per step
            if listed.seconds is None or not 0 < gain < math.inf:
                return listed
            if verify_plan(problem, start.options, start.ranks, math.nan):
                return listed  # it was no choice to stay
            staying = list_moves(self.before, self._plan(problem, start)).seconds or 0.0
            more = 1000 * max(listed.seconds - staying, 0.0)
            return replace(listed, pays_back_after=more / gain)

        return ReplanReport(
            followed=True,
            previous=self._previous.name,
            reason=reason,
            difference=self.difference,
            rating=point.rating,
            moved=point.moved,
            least=found.least,
            held=found.held,
            scratch_rating=None if scratch is None else scratch.rating,
            scratch_moved=None
            if scratch is None
            else moved_bytes(problem, self.held, scratch.options, scratch.ranks),
            frontier=self._frontier(problem) if self.policy.frontier else (),
            _list=moves,
        )

    def _frontier(self, problem: Problem) -> tuple[FrontierPoint, ...]:
        found = best_ratings(
            problem, self.held, budgets=list(FRONTIER), settings=self.policy.settings
        )
        points: list[FrontierPoint] = []
        for point in found.points:
            if point.found and (not points or point.rating < points[-1].rating):
                points.append(FrontierPoint(point.moved, point.rating))
        return tuple(points)

    def _plan(self, problem: Problem, point: Point) -> Plan:
        """Returns a point as a plan whose bytes can be counted."""
        record = PlanRecord.of(problem.space, point.options, point.ranks, point.rating)
        return Plan(
            name=self._previous.name,
            layout=layout_of(self.request, self.cluster, record),
            basis=Basis(canonical=b"", request=self.request, cluster=self.cluster, record=record),
        )
