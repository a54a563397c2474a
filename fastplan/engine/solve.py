"""Estimates, searches and verifies, on plain data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastplan.engine import _native
from fastplan.engine.hardware_columns import hardware_columns
from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.step import step_model, step_settings
from fastplan.model.request import (
    MenuItem,
    ObjectiveFunction,
    Partitioner,
    Proposer,
    Request,
    Search,
    Table,
)
from fastplan.model.vocabulary import (
    DEVICE_KIND_INDEX,
    KERNEL_INDEX,
    PIPELINE_INDEX,
    PROPOSER_INDEX,
    SHARDING_TYPE_INDEX,
    STORAGE_USAGE_INDEX,
)

Options = NDArray[np.int32]
Measure = Literal["rating", "step"]


class ProposerReport(NamedTuple):
    """The report of one proposer. Only exhaustive searches set `plans` and `best_rating`."""

    proposals: int
    repeats: int
    plans: int
    timed_out: bool
    best_rating: float
    state_best_rating: float
    state_inferior: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The result of a search. An infeasible problem is a result, not an error."""

    found: bool
    rating: float
    options: Options  # by plan position: numbers of the search space's options
    ranks: Options  # of the shards that are not uniform, in plan order
    reports: tuple[ProposerReport, ...]
    evaluated: int
    exhaustive: bool
    winner: int  # index of the proposer
    lowest: Options  # if infeasible: the proposal that needs least storage, and the last one
    last: Options

    @property
    def proposals(self) -> int:
        return sum(report.proposals for report in self.reports)

    @property
    def plans(self) -> int | None:
        """The number of feasible proposals; None if proposals that can't win were skipped."""
        if self.exhaustive:
            return sum(report.plans for report in self.reports)
        return None if self.found else 0


OutOfRange = _native.OutOfRange

_TABLE_DTYPES: dict[str, Any] = {
    "rows": np.int64,
    "dim": np.int64,
    "element_size": np.int64,
    "bytes": np.int64,
    "menu": np.int32,
    "perf_inputs": np.float64,
    "perf_outputs": np.float64,
    "storage_inputs": np.float64,
    "storage_outputs": np.float64,
    "pooled": np.uint8,
    "weighted": np.uint8,
    "virtual": np.uint8,
    "output_element_size": np.float64,
    "fwd_a2a": np.float64,
    "bwd_a2a": np.float64,
    "fwd_sr": np.float64,
    "bwd_sr": np.float64,
    "min_partition": np.int64,
    "buckets": np.int64,
    "prefetch_passes": np.int64,
    "optimizer_multiplier": np.float64,
    "cache_ratio": np.float64,
    "kv_load_factor": np.float64,
    "kv_cache_bytes": np.int64,
    "expected_lookups": np.float64,
    "miss_rate": np.float64,
}


_NUMBER_FIELDS = [*map(Table._fields.index, _TABLE_DTYPES)]
_NUMBER_DTYPES = [*map(np.dtype, _TABLE_DTYPES.values())]
_usage_of, _path_of, _tower_of = map(attrgetter, ("usage", "path", "tower"))


def estimate(request: Request) -> SearchSpace:
    """Returns the request's search space, with the costs of all options.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
        CostError: a custom cost fails.
    """
    return estimate_columns(request, request_columns(request))


def request_columns(request: Request) -> dict[str, Any]:
    """Returns the named columns that the native core estimates from. Raises OutOfRange."""
    columns = _fields(request.cost)
    columns["device_kind"] = DEVICE_KIND_INDEX[request.cost.device_kind]
    columns["pipeline"] = PIPELINE_INDEX[request.cost.pipeline]
    columns["layout_rank_memory"] = np.array(request.cost.layout_rank_memory, np.int64)
    columns |= _table_columns(request)
    columns |= menu_columns(request.menus)
    columns["coefficients"] = [tuple(row) for row in request.coefficients]
    if request.hardware is None:
        columns["hardware_constants"] = np.zeros(0)
    else:
        columns |= hardware_columns(request.hardware)
    pricing = request.pricing
    columns["cost_function"] = 0 if pricing is None else pricing.function.address()
    columns["batch_size"] = 0 if pricing is None else pricing.batch_size
    return columns


def estimate_columns(request: Request, columns: dict[str, Any]) -> SearchSpace:
    """Returns the search space of a request's columns, whose menus may differ from the request.

    Raises OutOfRange and CostError like estimate().
    """
    pricing = request.pricing
    try:
        space = _native.estimate(columns)
    except _native.CustomFailed as failed:
        assert pricing is not None
        facts = failed.args[0]
        raise pricing.function.failure(facts, request.tables[facts["table"]].name) from None
    return SearchSpace(
        table_module=_numbered([*map(_path_of, request.tables)]),
        table_group=_numbered([name or None for name in map(_tower_of, request.tables)]),
        step=None if request.hardware is None else step_model(request, columns),
        **space,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenShards:
    """Shards that other code has cut: a row per option, and a row per shard."""

    option_table: list[int]  # index into the request's tables
    option_item: list[int]  # index into the request's only menu
    option_begin: list[int]  # the first shard of each option, and the number of all
    rows: list[int]
    cols: list[int]
    perf: bool  # whether to estimate perf
    storage: bool


def estimate_shards(request: Request, shards: GivenShards) -> _native.ShardColumns:
    """Returns the estimates of given shards, a row per shard; zeros where none was asked for.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    try:
        given = {
            "option_table": np.array(shards.option_table, np.int32),
            "option_item": np.array(shards.option_item, np.int32),
            "option_begin": np.array(shards.option_begin, np.int64),
            "rows": np.array(shards.rows, np.int64),
            "cols": np.array(shards.cols, np.int64),
            "perf": shards.perf,
            "storage": shards.storage,
        }
    except OverflowError as error:
        raise OutOfRange("the size of a shard is beyond 64 bits") from error
    return _native.estimate_shards(request_columns(request), given)


def _table_columns(request: Request) -> dict[str, Any]:
    tables = request.tables
    if not tables:
        raise ValueError("`tables` must not be empty")
    columns: dict[str, Any] = {}
    found = _native.number_columns(tables, _NUMBER_FIELDS, _NUMBER_DTYPES)
    for (name, dtype), column in zip(_TABLE_DTYPES.items(), found, strict=True):
        try:
            if column is None:
                column = np.array([getattr(table, name) for table in tables], dtype)
        except OverflowError as error:
            table = max(tables, key=lambda table: abs(getattr(table, name) or 0))
            raise OutOfRange(f"`{name}` of table {table.name!r} is beyond 64 bits") from error
        columns[f"table_{name}"] = column
    usages = [*map(_usage_of, tables)]
    if usages.count(usages[0]) == len(usages):
        columns["table_usage"] = np.full(len(usages), STORAGE_USAGE_INDEX[usages[0]], np.uint8)
    else:
        columns["table_usage"] = np.array([*map(STORAGE_USAGE_INDEX.__getitem__, usages)], np.uint8)
    return columns


def menu_columns(menus: tuple[tuple[MenuItem, ...], ...]) -> dict[str, Any]:
    """Returns the columns of the tables' menus."""
    items = [item for menu in menus for item in menu]
    ends = np.cumsum([0, *map(len, menus)], dtype=np.int64)
    types = [SHARDING_TYPE_INDEX[item.sharding_type] for item in items]
    return {
        "menu_begin": ends,
        "menu_type": np.array(types, np.uint8),
        "menu_kernel": np.array([KERNEL_INDEX[item.kernel] for item in items], np.uint8),
        "menu_bandwidth": np.array([item.bandwidth for item in items], np.float64),
        "menu_coefficients": np.array([item.coefficients for item in items], np.int32),
    }


def _numbered(names: list[str | None]) -> Any:
    """Numbers the names: equal names get equal numbers, None gets -1."""
    if names.count(names[0]) == len(names):
        return np.full(len(names), -1 if names[0] is None else 0, np.int32)
    numbers: dict[str | None, int] = {None: -1}
    return np.array([numbers.setdefault(name, len(numbers) - 1) for name in names], np.int32)


def measure_of(problem: Problem, search: Search) -> Measure:
    """Returns what a search compares plans by: the step if there is one, or else the rating."""
    return "rating" if problem.space.step is None or search.objective is not None else "step"


def solve(
    problem: Problem, search: Search, *, exhaustive: bool = False, by: Measure | None = None
) -> Solution:
    """Returns the plan that TorchRec's planner would choose.

    With hardware costs, this is the proposal with the shortest step; `by="rating"` selects the one
    with the best rating. Proposers and partitioner are TorchRec's in both cases.

    An exhaustive search places every proposal, so that the number of plans is known. Otherwise,
    proposals that can't win are skipped. Both give the same plan.

    With a time-out, proposals that can't win are skipped, too. If this search is not done in time,
    an exhaustive search runs, which returns its best plan when the time-out has passed. Both
    together take at most twice the time-out.
    """
    exhaustive = exhaustive or search.must_be_exhaustive
    with explained(search.objective):
        settings = search_settings(search, exhaustive)
        if (by or measure_of(problem, search)) == "step":
            settings |= step_settings(problem)
        result = _native.solve(problem.handle, settings)
    return Solution(
        found=result["found"],
        rating=result["rating"],
        options=result["best"]["options"],
        ranks=result["ranks"],
        reports=tuple(ProposerReport(**report) for report in result["reports"]),
        evaluated=result["evaluated"],
        exhaustive=result["exhaustive"],
        winner=result["best"]["proposer"],
        lowest=result["lowest"]["options"],
        last=result["last"]["options"],
    )


def count_plans(problem: Problem, search: Search) -> tuple[int, ...]:
    """Counts feasible proposals by proposer, each distinct proposal once.

    The sums and largest shards decide most of them; only the others are placed, until the rest
    surely fits. Not for searches that must be exhaustive, because ratings or the clock end those.
    """
    plans, _ = _native.count_plans(problem.handle, search_settings(search))
    return tuple(plans)


def search_settings(search: Search, exhaustive: bool = False) -> _native.SearchSettings:
    """Returns the search as arguments of the native core."""
    return {
        "partitioner": _partitioner(search.partitioner),
        "proposers": [_proposer(proposer) for proposer in search.proposers],
        "exhaustive": exhaustive,
        "timeout_seconds": search.timeout_seconds,
        "objective": _address(search.objective),
        "goal": None,
        "goal_per_rating": 0.0,
    }


def _address(objective: ObjectiveFunction | None) -> int:
    return 0 if objective is None else objective.address()


@contextmanager
def explained(objective: ObjectiveFunction | None) -> Iterator[None]:
    """Raises an error that names what the objective returned."""
    try:
        yield
    except _native.CustomFailed as failed:
        assert objective is not None
        raise objective.failure(failed.args[0]) from None


def _partitioner(partitioner: Partitioner) -> _native.PartitionerSettings:
    return cast("_native.PartitionerSettings", _fields(partitioner))


def _proposer(proposer: Proposer) -> _native.ProposerSettings:
    settings = {**_fields(proposer), "kind": PROPOSER_INDEX[proposer.kind]}
    return cast("_native.ProposerSettings", settings)


def _fields(record: Any) -> dict[str, Any]:
    """Returns a flat dataclass as a dict; asdict() would also copy every value."""
    return {name: getattr(record, name) for name in record.__slots__}


def propose(problem: Problem, proposer: Proposer, begin: int, end: int) -> _native.Proposals:
    """Returns rows [begin, end) of a proposer's proposals, their number, and the plan order."""
    return _native.propose(problem.handle, _proposer(proposer), begin, end)


def placer(
    problem: Problem, partitioner: Partitioner, objective: ObjectiveFunction | None = None
) -> Placer:
    """Returns a Placer, for a search that is driven from Python."""
    return Placer(problem, partitioner, objective)


class Placer:
    """Places and rates single proposals."""

    def __init__(
        self, problem: Problem, partitioner: Partitioner, objective: ObjectiveFunction | None
    ) -> None:
        self._objective = objective
        settings = _partitioner(partitioner)
        self._placer = _native.Placer(problem.handle, settings, _address(objective))

    def place(self, options: list[int]) -> tuple[list[int], float] | None:
        """Returns ranks and rating of a proposal; None if a shard fits on no rank."""
        with explained(self._objective):
            return self._placer.place(options)

    def partial_ranks(self) -> list[int | None]:
        """Returns the ranks that TorchRec's partitioner leaves after a failure; empty if unknown.

        They are those of the last place(), which must have failed; None is a shard without a rank.
        """
        return [None if rank < 0 else rank for rank in self._placer.partial_ranks()]

    def ranks_before_failure(self) -> list[int]:
        """Returns the ranks of the groups that were placed before the first one that failed.

        They are those of the last place(), which must have failed; -1 is a shard of another group.
        Empty if the row-wise and data-parallel options alone do not fit, or if this is unknown.
        """
        return self._placer.ranks_before_failure()


def verify(problem: Problem, solution: Solution, objective: ObjectiveFunction | None = None) -> str:
    """Returns the error of a solution in coverage, ranks, capacities or rating; empty if valid."""
    return verify_plan(problem, solution.options, solution.ranks, solution.rating, objective)


def verify_plan(
    problem: Problem,
    options: Options,
    ranks: Options,
    rating: float,
    objective: ObjectiveFunction | None = None,
) -> str:
    """Like verify(), for a plan from another source. A rating of NaN is not checked."""
    with explained(objective):
        return _native.verify(problem.handle, options, ranks, rating, _address(objective))


def rate(problem: Problem, options: Options, ranks: Options) -> float:
    """Returns the rating of a plan: the cost of its largest rank."""
    return _native.rate(problem.handle, {"options": options, "ranks": ranks})
