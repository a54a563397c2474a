"""Builds a problem whose plans all satisfy `pins` and `together`.

Tables of one group become one table, whose shards are the sums of theirs. A table that is pinned
becomes one that is on every rank, with empty shards except on the pinned ranks. So the search, its
bounds and TorchRec's partitioner work as on any other problem.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from fastplan.engine.goals import Charges, Goal
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import verify_plan
from fastplan.model.objectives import ConstraintError, Objectives
from fastplan.model.vocabulary import (
    KERNEL_INDEX,
    SHARDING_TYPE_INDEX,
    SHARDING_TYPES,
    UNIFORM_TYPES,
)

_MOST_COMBINATIONS = 4096
_EXAMPLES = 5  # number of tables that an error names
_UNIFORM = [SHARDING_TYPE_INDEX[name] for name in UNIFORM_TYPES]
_ADDED = (
    *("run_fwd_compute", "run_fwd_comms", "run_bwd_compute", "run_bwd_comms"),
    *("run_input_dist_comms", "run_prefetch_compute", "run_hbm", "run_ddr", "run_ssd"),
)


class _Run(NamedTuple):
    shards: int
    sources: tuple[tuple[int, int], ...]  # runs of the given space that are added up: number, times


class _Option(NamedTuple):
    members: tuple[int, ...]  # options of the given space, one for each table
    kind: int
    kernel: int
    runs: list[_Run]
    pinned: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Group:
    tables: tuple[int, ...]
    ranks: tuple[int, ...] | None  # the ranks that they are pinned to


class ConstrainedProblem:
    """A problem whose plans satisfy `pins` and `together`, and the conversion of its plans.

    `names` are (path, name) of the tables. Raises ConstraintError if no plan can satisfy them.
    """

    def __init__(
        self, given: Problem, objectives: Objectives, names: Sequence[tuple[str, str]]
    ) -> None:
        self.given = given
        self._names = [name for _, name in names]
        self._ranks = len(given.cluster.rank_hbm)
        groups = self._groups(objectives, _TableLookup(names))
        self._options: list[_Option] = []
        begin = [0]
        for group in groups:
            self._options += self._options_of(group)
            begin.append(len(self._options))
        space = self._space([group.tables[0] for group in groups], begin)
        self.problem = Problem(space, given.cluster)

    def to_original_plan(self, options: Any, ranks: Any) -> tuple[Any, Any]:
        """Returns the options and ranks of a plan in the original problem."""
        own: list[int] = []
        placed: list[int] = []
        begin, waiting = 0, np.asarray(ranks).tolist()
        for number in np.asarray(options).tolist():
            option = self._options[number]
            shards = sum(run.shards for run in option.runs)
            if option.pinned is None and option.kind not in _UNIFORM:
                at = waiting[begin : begin + shards]
                begin += shards
            else:
                at = list(option.pinned or ())
            for member in option.members:
                own.append(member)
                if self.given.space.option_type[member] not in _UNIFORM:
                    placed += at if len(at) > 1 else at * self._shards(member)
        return np.array(own, np.int32), np.array(placed, np.int32)

    def goal(self, given: Goal) -> Goal:
        """Returns the same measure for the constrained problem."""
        runs = [run for option in self._options for run in option.runs]
        channels, amounts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        sizes = []
        for run in runs:
            sizes.append(0)
            for source, times in run.sources:
                parts = slice(given.run_part_begin[source], given.run_part_begin[source + 1])
                channels.append(given.part_channel[parts])
                amounts.append(given.part_amount[parts] * times)
                sizes[-1] += len(channels[-1])
        return replace(
            given,
            charges=None if given.charges is None else self._charges(given.charges, runs),
            run_part_begin=np.cumsum([0, *sizes], dtype=np.int64),
            part_channel=np.concatenate(channels),
            part_amount=np.concatenate(amounts),
            option_amount=np.array(
                [sum(given.option_amount[m] for m in option.members) for option in self._options],
                np.int64,
            ),
        )

    def _charges(self, given: Charges, runs: list[_Run]) -> Charges:
        """Returns the charges of merged shards: each charge once, whichever table brings it."""
        begin = given.run_begin
        brought = [
            {c for run, _ in r.sources for c in given.run_charges[begin[run] : begin[run + 1]]}
            for r in runs
        ]
        return replace(
            given,
            run_begin=np.cumsum([0, *map(len, brought)], dtype=np.int64),
            run_charges=np.array([c for own in brought for c in sorted(own)], np.int32),
        )

    def _groups(self, objectives: Objectives, find: _TableLookup) -> list[_Group]:
        space = self.given.space
        leader = list(range(space.tables))

        def root(table: int) -> int:
            while leader[table] != table:
                table = leader[table]
            return table

        for names in objectives.together:
            first, *others = (find(name) for name in names)
            for other in others:
                leader[root(other)] = root(first)
        pins: dict[int, tuple[int, ...]] = {}
        for name, ranks in dict(objectives.pins).items():
            assert isinstance(ranks, tuple)
            self._check_ranks(name, ranks)
            table = root(find(name))
            if pins.setdefault(table, ranks) != ranks:
                raise ConstraintError(f"{name} must be with tables that are pinned to other ranks")
        members: dict[int, list[int]] = {}
        for table in range(space.tables):
            members.setdefault(root(table), []).append(table)
        for leading, tables in members.items():
            if len(tables) > 1 or leading in pins:
                self._check_towers(tables)
        return [_Group(tuple(own), pins.get(table)) for table, own in members.items()]

    def _check_ranks(self, name: str, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            if not 0 <= rank < self._ranks:
                raise ConstraintError(f"{name} is pinned to rank {rank} of {self._ranks}")

    def _check_towers(self, tables: list[int]) -> None:
        towers = self.given.space.table_group
        for table in tables:
            if towers[table] >= 0 and (towers == towers[table]).sum() > 1:
                raise ConstraintError(
                    f"{self._names[table]} shares a host with other tables of its tower, and can "
                    "be neither pinned nor kept with others"
                )

    def _options_of(self, group: _Group) -> Iterator[_Option]:
        if len(group.tables) == 1 and group.ranks is None:
            yield from (self._merged_shards((number,)) for number in self._numbers(group.tables[0]))
            return
        found = False
        complaint = why = ""
        for members in self._combinations(group.tables):
            option = self._merged_shards(members)
            if group.ranks is not None:
                complaint = self._why_illegal(members, group.ranks)
                option = self._pinned(option, group.ranks)
            if complaint:
                why = complaint
                continue
            found = True
            yield option
        if not found:
            raise ConstraintError(self._no_option(group, why))

    def _no_option(self, group: _Group, why: str) -> str:
        who = " and ".join(self._names[table] for table in group.tables)
        if group.ranks is None:
            return f"{who} have no common sharding type that splits them alike"
        where = ", ".join(map(str, group.ranks))
        return f"{who} can't be placed on rank {where} with any allowed option: {why}"

    def _numbers(self, table: int) -> range:
        begin = self.given.space.table_option_begin
        return range(int(begin[table]), int(begin[table + 1]))

    def _shards(self, option: int) -> int:
        begin = self.given.space.option_run_begin
        return int(self.given.space.run_count[begin[option] : begin[option + 1]].sum())

    def _combinations(self, tables: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yields an option for each table, all of one sharding type and number of shards."""
        kinds = self.given.space.option_type
        by_cut: dict[tuple[int, int], list[list[int]]] = {}
        for place, table in enumerate(tables):
            for option in self._numbers(table):
                cut = (int(kinds[option]), self._shards(option))
                by_cut.setdefault(cut, [[] for _ in tables])[place].append(option)
        count = sum(math.prod(map(len, lists)) for lists in by_cut.values())
        if count > _MOST_COMBINATIONS:
            raise ConstraintError(
                f"{self._names[tables[0]]} and the {len(tables) - 1} tables with it have {count} "
                "combinations of options; keep fewer together, or allow fewer kernels"
            )
        for lists in by_cut.values():
            yield from itertools.product(*lists)

    def _merged_shards(self, members: tuple[int, ...]) -> _Option:
        """Merges shard i of all members into one shard."""
        space = self.given.space
        kernels = [int(space.option_kernel[member]) for member in members]
        apart = KERNEL_INDEX["key_value"]
        ends = [self._ends(member) for member in members]
        runs, last = [], 0
        for end in sorted(set().union(*ends)):
            sources = tuple((next(run for e, run in own.items() if e >= end), 1) for own in ends)
            runs.append(_Run(end - last, sources))
            last = end
        kernel = apart if apart in kernels else kernels[0]
        return _Option(members, int(space.option_type[members[0]]), kernel, runs, None)

    def _ends(self, option: int) -> dict[int, int]:
        """Returns the runs by the number of shards up to their end."""
        begin = self.given.space.option_run_begin[option : option + 2]
        numbers = range(int(begin[0]), int(begin[1]))
        counts = itertools.accumulate(int(self.given.space.run_count[r]) for r in numbers)
        return dict(zip(counts, numbers, strict=True))

    def _pinned(self, option: _Option, ranks: tuple[int, ...]) -> _Option:
        """Returns the option as one that is on all ranks."""
        shards = [run.sources for run in option.runs for _ in range(run.shards)]
        at: dict[int, dict[int, int]] = {}
        for i, sources in enumerate(shards):
            here = at.setdefault(ranks[i % len(ranks)], {})
            for source, times in sources:
                here[source] = here.get(source, 0) + times
        by_rank = (tuple(at.get(rank, {}).items()) for rank in range(self._ranks))
        runs = [_Run(len(list(same)), sources) for sources, same in itertools.groupby(by_rank)]
        kind = option.kind if option.kind in _UNIFORM else SHARDING_TYPE_INDEX["row_wise"]
        return _Option(option.members, kind, option.kernel, runs, ranks)

    def _why_illegal(self, members: tuple[int, ...], ranks: tuple[int, ...]) -> str:
        """Why the options can't be placed on those ranks; empty if they can."""
        for member in members:
            kind = self.given.space.option_type[member]
            shards = self._shards(member)
            if len(ranks) not in (1, shards):
                return f"{SHARDING_TYPES[kind]} has {shards} shards"
            if kind in _UNIFORM:
                if ranks != tuple(range(self._ranks)):
                    return f"{SHARDING_TYPES[kind]} is on all ranks"
                continue
            placed = ranks if len(ranks) == shards else ranks * shards
            alone = Problem(_single_option_space(self.given.space, member), self.given.cluster)
            plan = np.zeros(1, np.int32), np.array(placed, np.int32)
            if complaint := verify_plan(alone, *plan, math.nan):
                return complaint
        return ""

    def _space(self, tables: list[int], begin: list[int]) -> SearchSpace:
        given = self.given.space
        runs = [run for option in self._options for run in option.runs]
        owner = np.repeat(np.arange(len(runs)), [len(run.sources) for run in runs])
        pairs = np.array([pair for run in runs for pair in run.sources], np.int64).reshape(-1, 2)
        added: dict[str, Any] = {}
        for name in _ADDED:
            column = getattr(given, name)
            added[name] = np.zeros(len(runs), column.dtype)
            np.add.at(added[name], owner, column[pairs[:, 0]] * pairs[:, 1])
        first = [run.sources[0][0] if run.sources else 0 for run in runs]
        keys = [
            int(given.option_key[option.members[0]]) if _is_single(option) else (1 << 63) + number
            for number, option in enumerate(self._options)
        ]
        return SearchSpace(
            table_option_begin=np.array(begin, np.int64),
            table_module=given.table_module[tables],
            table_group=_renumbered(given.table_group[tables]),
            option_type=np.array([option.kind for option in self._options], np.uint8),
            option_kernel=np.array([option.kernel for option in self._options], np.uint8),
            option_key=np.array(keys, np.uint64),
            option_run_begin=np.cumsum([0, *(len(o.runs) for o in self._options)], dtype=np.int64),
            run_count=np.array([run.shards for run in runs], np.int64),
            run_rows=given.run_rows[first],
            run_cols=given.run_cols[first],
            **added,
        )


def within_rules(
    given: Problem, objectives: Objectives, names: Sequence[tuple[str, str]]
) -> Problem:
    """Returns a problem whose plans all satisfy the constraints. Raises ConstraintError."""
    return ConstrainedProblem(given, objectives, names).problem if objectives.rules else given


class _TableLookup:
    """Finds tables by the names that users write."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._numbers: dict[str, list[int]] = {}
        more = ("...",) if len(names) > _EXAMPLES else ()
        self._examples = (*(name for _, name in names[:_EXAMPLES]), *more)
        for number, (path, name) in enumerate(names):
            for each in {name, f"{path}.{name}"}:
                self._numbers.setdefault(each, []).append(number)

    def __call__(self, name: str) -> int:
        found = self._numbers.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            raise ConstraintError(f"{name} matches {len(found)} tables; add the module path")
        near = get_close_matches(name, self._numbers, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._examples)}"
        raise ConstraintError(f"there is no table {name}; {hint}")


def _is_single(option: _Option) -> bool:
    return len(option.members) == 1 and option.pinned is None


def _renumbered(groups: Any) -> Any:
    """Returns group numbers below the number of tables, as the native core needs them."""
    known: dict[int, int] = {-1: -1}
    return np.array([known.setdefault(int(g), len(known) - 1) for g in groups], np.int32)


def _single_option_space(space: SearchSpace, option: int) -> SearchSpace:
    """Returns a space of one table with one option."""
    runs = slice(int(space.option_run_begin[option]), int(space.option_run_begin[option + 1]))
    columns = {
        name: getattr(space, name)[runs] for name in ("run_count", "run_rows", "run_cols", *_ADDED)
    }
    return SearchSpace(
        table_option_begin=np.array([0, 1]),
        table_module=np.zeros(1, np.int32),
        table_group=np.full(1, -1, np.int32),
        option_type=space.option_type[option : option + 1],
        option_kernel=space.option_kernel[option : option + 1],
        option_key=space.option_key[option : option + 1],
        option_run_begin=np.array([0, runs.stop - runs.start]),
        **columns,
    )
