"""What a plan would cost if one of its tables took another option, and every other table stayed.

Every figure is the core's: options are estimated by it, and a changed plan is verified and rated by
it like any other plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastplan.engine.cache_sizes import resized
from fastplan.engine.goals import Goal
from fastplan.engine.layout import has_sizes, shard_ranks
from fastplan.engine.problem import Floats, Ints, Problem, SearchSpace
from fastplan.engine.solve import OutOfRange, estimate, rate, verify_plan
from fastplan.engine.step import step_goal, step_of
from fastplan.model.plan import BadRecord, Basis
from fastplan.model.request import Cluster as RequestCluster
from fastplan.model.request import MenuItem, Request
from fastplan.model.step import Step
from fastplan.model.vocabulary import (
    KERNEL_INDEX,
    KERNELS,
    SHARDING_TYPE_INDEX,
    SHARDING_TYPES,
    UNIFORM_TYPES,
)
from fastplan.report.estimates import RATED, TIERS, EstimateUnavailable, check_rating
from fastplan.report.places import Cluster, Limits, Loads, Place, Shards, all_places, best_place

# Costs of these depend on the table's own cache, so they can't be taken from another table.
_OWN_COSTS = ("cach", "key_value", "virtual")
# Placements whose step is worked out for one option.
_MOST_STEPS = 64
_COLUMNS = {"prefetch": "run_prefetch_compute"}
_NO_LIMIT = 1 << 60  # bytes
_SHORT = 1e-9  # relative: sums of the same costs in another order differ by less


class Pair(NamedTuple):
    """An option of a table."""

    sharding_type: str
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A plan with one table changed."""

    place: Place
    rating: float
    step: float | None  # None with TorchRec's costs

    @property
    def value(self) -> float:
        """What plans are compared by: the step if there is one, or else the rating."""
        return self.rating if self.step is None else self.step


class PlanOptions:
    """The options of all tables of a plan, and the plan's loads.

    Args:
        basis: The basis of the plan.
        extra: A table, by its position in the record, that also gets the options of other tables
            whose costs don't depend on the table; see `lent`.

    Raises:
        EstimateUnavailable: The plan's costs can't be estimated. The message says why.
    """

    def __init__(self, basis: Basis, extra: int | None = None) -> None:
        self.basis = basis
        record = basis.record
        try:
            if not has_sizes(basis.request, record):
                raise BadRecord("the search resized caches, whose costs are not in the request")
            self.lent = () if extra is None else _lent(basis.request, int(record.table[extra]))
            self.request = _in_order(basis, extra, self.lent)
            self.space = estimate(self.request)
            self.chosen = self._chosen()
            self._begin, self._ranks = self._placed()
        except (BadRecord, OutOfRange) as problem:
            raise EstimateUnavailable(str(problem)) from problem
        self.problem = Problem(self.space, basis.cluster)
        self.run_cost = run_costs(self.space)
        self.run_memory = np.stack([getattr(self.space, f"run_{tier}") for tier in TIERS], axis=1)
        cluster = basis.cluster
        self.capacity = np.array([cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd]).T
        self.loads = self._loads()
        check_rating(float(self.loads.cost.max()), record.rating)
        self.rating = rate(self.problem, self.chosen, self._not_uniform(self._ranks))
        # A plan that does not fit is still compared: its changes are then checked without memory.
        fits = bool((self.loads.room >= 0).all())
        self._judge = self.problem if fits else Problem(self.space, _unlimited(basis))
        self._goal = None if self.space.step is None else step_goal(self.space)
        self.step = self.step_with(self.chosen, self._not_uniform(self._ranks))

    @property
    def value(self) -> float:
        """What plans are compared by: the step if there is one, or else the rating."""
        return self.rating if self.step is None else self.step

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.capacity)

    def options(self, position: int) -> range:
        """Returns the options of a table, numbers of the space."""
        begin = self.space.table_option_begin
        return range(int(begin[position]), int(begin[position + 1]))

    def pair(self, option: int) -> Pair:
        """Returns the sharding type and the kernel of an option."""
        space = self.space
        return Pair(SHARDING_TYPES[space.option_type[option]], KERNELS[space.option_kernel[option]])

    def runs(self, option: int) -> slice:
        """Returns the runs of an option's shards."""
        begin = self.space.option_run_begin
        return slice(int(begin[option]), int(begin[option + 1]))

    def shards(self, option: int) -> Shards:
        """Returns the shards of an option, in order."""
        runs = self.runs(option)
        count = self.space.run_count[runs]
        return Shards(
            np.repeat(self.run_cost[runs], count), np.repeat(self.run_memory[runs], count, axis=0)
        )

    def table_ranks(self, position: int) -> Ints:
        """Returns the ranks of a table's shards in the plan, in order."""
        found: Ints = self._ranks[self._begin[position] : self._begin[position + 1]]
        return found

    def without(self, position: int) -> Loads:
        """Returns the loads of all other tables."""
        own, there = self.shards(int(self.chosen[position])), self.table_ranks(position)
        others = np.ones(len(self._ranks), bool)
        others[self._begin[position] : self._begin[position + 1]] = False
        cost = np.bincount(self._ranks[others], self._shard_cost[others], self.ranks)
        room = self.loads.room.copy()
        np.add.at(room, there, own.memory)
        return Loads(cost.astype(np.float64), room)

    def cluster(self, position: int) -> Cluster:
        """Returns the ranks that a table may be placed on."""
        cluster = self.basis.cluster
        tower, host = self.space.table_group[position], None
        if tower >= 0:
            for other in np.flatnonzero(self.space.table_group == tower).tolist():
                free = self.pair(int(self.chosen[other])).sharding_type not in UNIFORM_TYPES
                if other != position and free:
                    host = int(self.table_ranks(other)[0]) // cluster.group_size
        return Cluster(self.ranks, cluster.group_size, host)

    def best(
        self,
        position: int,
        option: int,
        loads: Loads,
        limits: Limits | None = None,
        shards: Shards | None = None,
    ) -> Place | None:
        """Returns the best placement of an option by the rating; None if none is within limits.

        Args:
            position: The table.
            option: One of its options.
            loads: Those of the other tables, as `without` returns them.
            limits: What to minimise within which limits.
            shards: Its shards, if they are to have other costs.
        """
        pair = self.pair(option)
        return best_place(
            pair.sharding_type,
            shards or self.shards(option),
            loads,
            self.cluster(position),
            limits or Limits(),
            apart=_apart(pair),
        )

    def changed(self, position: int, option: int, loads: Loads) -> Changed | str | None:
        """Returns the plan with a table's option changed and placed as well as possible.

        Args:
            position: The table.
            option: One of its options.
            loads: Those of the other tables, as `without` returns them.

        Returns:
            The plan; a sentence if TorchRec can't run it; None if it fits nowhere.
        """
        if self.step is None:
            place = self.best(position, option, loads)
            return None if place is None else self.checked(position, option, place)
        pair = self.pair(option)
        found: Changed | str | None = None
        for place in all_places(
            pair.sharding_type,
            self.shards(option),
            loads,
            self.cluster(position),
            apart=_apart(pair),
            most=_MOST_STEPS,
        ):
            tried = self.checked(position, option, place)
            if isinstance(tried, str):
                found = found or tried
            elif not isinstance(found, Changed) or tried.value < found.value:
                found = tried
        return found

    def checked(self, position: int, option: int, place: Place) -> Changed | str:
        """Returns the plan with a table's option and ranks changed, or what the core objects to."""
        options, ranks = self.plan_with(position, option, place.ranks)
        if complaint := verify_plan(self._judge, options, ranks, math.nan):
            return complaint.partition(": ")[2] or complaint
        rating = rate(self.problem, options, ranks)
        return Changed(place=place, rating=rating, step=self.step_with(options, ranks))

    def plan_with(self, position: int, option: int, ranks: Ints) -> tuple[Any, Any]:
        """Returns options and ranks of the plan with one table changed, as the core takes them."""
        options = self.chosen.copy()
        options[position] = option
        begin, end = self._begin[position], self._begin[position + 1]
        every = np.concatenate([self._ranks[:begin], ranks, self._ranks[end:]])
        sizes = np.diff(self._begin)
        sizes[position] = len(ranks)
        return options, self._not_uniform(every, options, sizes)

    def step_with(self, options: Any, ranks: Any, goal: Goal | None = None) -> float | None:
        """Returns the predicted step of a plan, or another measure; None with TorchRec's costs."""
        goal = goal or self._goal
        if goal is None:
            return None
        from fastplan.engine import _native

        plan: _native.PlanColumns = {"options": options, "ranks": ranks}
        counted = _native.tally(self.problem.handle, plan, goal.columns())
        return counted["value"] / goal.scale

    def phases(self) -> Step | None:
        """Returns the predicted step of the plan by phase; None with TorchRec's costs."""
        if self.step is None:
            return None
        return step_of(self.problem, self.chosen, self._not_uniform(self._ranks))

    def _chosen(self) -> Any:
        found = []
        kinds = zip(
            self.basis.record.sharding_type.tolist(), self.basis.record.kernel.tolist(), strict=True
        )
        for position, (kind, kernel) in enumerate(kinds):
            own = self.options(position)
            types, kernels = (
                column[own.start : own.stop]
                for column in (self.space.option_type, self.space.option_kernel)
            )
            at = np.flatnonzero((types == kind) & (kernels == kernel))
            if not len(at):
                pair = f"({SHARDING_TYPES[kind]}, {KERNELS[kernel]})"
                raise BadRecord(f"table {self.request.tables[position].name} does not allow {pair}")
            found.append(own.start + int(at[0]))
        return np.array(found, np.int32)

    def _placed(self) -> tuple[Ints, Ints]:
        """Returns where the shards of each table begin, and the rank of every shard."""
        space = self.space
        counts = np.add.reduceat(space.run_count, space.option_run_begin[:-1])[self.chosen]
        begin = np.concatenate([[0], np.cumsum(counts)])
        return begin, shard_ranks(self.basis.record, counts, len(self.basis.cluster.rank_hbm))

    def _not_uniform(
        self, every: Ints, options: Any | None = None, sizes: Ints | None = None
    ) -> Any:
        """Returns the ranks of the shards that are placed, as the core takes them."""
        options = self.chosen if options is None else options
        sizes = np.diff(self._begin) if sizes is None else sizes
        return every[np.repeat(~_UNIFORM[self.space.option_type[options]], sizes)].astype(np.int32)

    def _loads(self) -> Loads:
        runs = [
            np.arange(self.runs(option).start, self.runs(option).stop) for option in self.chosen
        ]
        chosen = np.concatenate(runs)
        count = self.space.run_count[chosen]
        self._shard_cost: Floats = np.repeat(self.run_cost[chosen], count)
        room = self.capacity.astype(np.int64)
        for tier in range(len(TIERS)):
            held = np.repeat(self.run_memory[chosen, tier], count)
            used = np.bincount(self._ranks, held, self.ranks)  # exact below 2^53
            room[:, tier] -= used.astype(np.int64)
        cost = np.bincount(self._ranks, self._shard_cost, self.ranks)
        return Loads(cost.astype(np.float64), room)


_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


def run_costs(space: SearchSpace) -> Floats:
    """Returns the rated milliseconds of each run's shards, added as TorchRec adds them."""
    return np.asarray(sum(part_costs(space, part) for part in RATED))


def part_costs(space: SearchSpace, part: str) -> Floats:
    """Returns one part of the costs of each run's shards."""
    found: Floats = getattr(space, _COLUMNS.get(part, f"run_{part}"))
    return found


def is_same(one: float, other: float) -> bool:
    """Returns whether two sums of costs differ by rounding at most."""
    return abs(one - other) <= _SHORT * max(abs(one), abs(other))


def _unlimited(basis: Basis) -> RequestCluster:
    """Returns the cluster with more memory than any plan uses."""
    most = (_NO_LIMIT,) * len(basis.cluster.rank_hbm)
    return replace(basis.cluster, rank_hbm=most, rank_ddr=most, rank_ssd=most)


def _apart(pair: Pair) -> bool:
    """Two key-value shards of a table can't share a rank."""
    return pair == ("column_wise", "key_value")


def _in_order(basis: Basis, extra: int | None, lent: tuple[MenuItem, ...]) -> Request:
    """Returns the request in the plan's order, with the cache sizes of the plan."""
    request, record = basis.request, basis.record
    tables, menus = [], list(request.menus)
    for number, factor in zip(record.table.tolist(), record.load_factor.tolist(), strict=True):
        table = request.tables[number]
        tables.append(table if math.isnan(factor) else resized(table, factor))
    if extra is not None and lent:
        menus.append((*menus[tables[extra].menu], *lent))
        tables[extra] = tables[extra].with_menu(len(menus) - 1)
    hardware = request.hardware and request.hardware.for_tables(record.table.tolist())
    return replace(request, tables=tuple(tables), menus=tuple(menus), hardware=hardware)


def _lent(request: Request, number: int) -> tuple[MenuItem, ...]:
    """Returns options that only other tables have, if they are alike for all of those.

    They would cost this table what they cost the others: bandwidth and coefficients are the
    cluster's. Kernels with a cache are left out, whose figures are the table's.
    """
    own = {(item.sharding_type, item.kernel) for item in request.menus[request.tables[number].menu]}
    found: dict[Pair, set[MenuItem]] = {}
    for menu in {table.menu for table in request.tables}:
        for item in request.menus[menu]:
            found.setdefault(Pair(item.sharding_type, item.kernel), set()).add(item)
    return tuple(
        next(iter(items))
        for pair, items in sorted(found.items(), key=lambda each: _order(each[0]))
        if pair not in own and len(items) == 1 and not any(w in pair.kernel for w in _OWN_COSTS)
    )


def _order(pair: Pair) -> tuple[int, int]:
    return SHARDING_TYPE_INDEX[pair.sharding_type], KERNEL_INDEX[pair.kernel]


def missing_pairs(request: Request, number: int) -> dict[Pair, set[str]]:
    """Returns options that a table does not have, with the modules of tables that have them."""
    own = {(item.sharding_type, item.kernel) for item in request.menus[request.tables[number].menu]}
    paths: dict[int, set[str]] = {}
    for table in request.tables:
        paths.setdefault(table.menu, set()).add(table.path)
    found: dict[Pair, set[str]] = {}
    for menu, modules in paths.items():
        for item in request.menus[menu]:
            if (item.sharding_type, item.kernel) not in own:
                found.setdefault(Pair(item.sharding_type, item.kernel), set()).update(modules)
    return dict(sorted(found.items(), key=lambda each: _order(each[0])))
