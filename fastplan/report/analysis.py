"""Analyses a plan: costs and memory by rank, costs by table, and the tables on the worst rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastplan.engine.layout import chosen_space
from fastplan.engine.problem import Floats, Ints, Problem
from fastplan.engine.solve import rate
from fastplan.engine.step import step_of
from fastplan.model.plan import COLUMNS, RANK, ROWS, Plan, TableLayout
from fastplan.model.step import Step
from fastplan.report.estimates import (
    TIERS,
    Estimates,
    EstimateUnavailable,
    by_load,
    distinct,
    estimates,
)
from fastplan.report.units import ALL_RANKS, format_ranks

ASSUMED_ELEMENT_SIZE = 4
_TIE = 1e-9  # the relative difference up to which ranks cost the same
_COMPUTE = ("fwd_compute", "bwd_compute", "prefetch")
_COMMS = ("fwd_comms", "bwd_comms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Estimated milliseconds of one step, by rank."""

    parts: dict[str, Floats]  # by part; `input_dist` is not in the total
    total: Floats
    rating: float

    @property
    def worst_rank(self) -> int:
        """The rank with the largest total."""
        return int(by_load(self.total)[0])

    @property
    def worst_ranks(self) -> tuple[int, ...]:
        """All ranks that tie for the largest total, in order."""
        most = float(self.total.max())
        return tuple(np.flatnonzero(self.total >= most - _TIE * most).tolist())

    @property
    def mean(self) -> float:
        """The mean over ranks."""
        return float(self.total.mean())

    @property
    def imbalance(self) -> float:
        """How far the worst rank is above the mean: 0 is perfect, 1 is twice the mean."""
        return float(self.total.max()) / self.mean - 1 if self.mean > 0 else 0.0

    @property
    def balanced(self) -> bool:
        """Whether all ranks cost the same, so that none is the worst."""
        return bool(self.total.max() - self.total.min() <= _TIE * self.total.max())

    @property
    def compute(self) -> Floats:
        """Compute by rank."""
        return np.asarray(sum(self.parts[part] for part in _COMPUTE))

    @property
    def comms(self) -> Floats:
        """Communication by rank."""
        return np.asarray(sum(self.parts[part] for part in _COMMS))


class Memory(NamedTuple):
    """One tier of memory by rank, in bytes."""

    tier: str  # hbm, ddr or ssd
    used: Ints
    capacity: Ints | None  # None if the cluster is not known

    @property
    def fullest_rank(self) -> int:
        """The rank with the smallest free share; without capacities, with the most bytes."""
        return self.fullest_ranks[0]

    @property
    def fullest_ranks(self) -> tuple[int, ...]:
        """All ranks that tie for the smallest free share, in order."""
        if self.capacity is None:
            return tuple(np.flatnonzero(self.used == self.used.max()).tolist())
        # A rank without this tier is full only if bytes are placed there anyway.
        empty = np.where(self.used > 0, -1.0, 1.0)
        free = np.divide(
            self.capacity - self.used, self.capacity, out=empty, where=self.capacity > 0
        )
        return tuple(np.flatnonzero(free == free.min()).tolist())

    @property
    def headroom(self) -> int | None:
        """Bytes left on the fullest rank; negative if it does not fit."""
        if self.capacity is None:
            return None
        return int(self.capacity[self.fullest_rank] - self.used[self.fullest_rank])

    @property
    def headroom_share(self) -> float | None:
        """The headroom as a fraction of the rank's capacity."""
        if self.capacity is None or self.headroom is None:
            return None
        return self.headroom / max(1, int(self.capacity[self.fullest_rank]))


class TableRow(NamedTuple):
    """One table of a plan. Costs are None if they are not known."""

    path: str
    name: str
    shape: tuple[int, int] | None
    sharding_type: str
    kernel: str
    element_size: int | None  # None if it is assumed
    bytes: int | None  # of the weights, without copies
    shards: int
    ranks: Ints  # each once, ascending
    cost: float | None  # milliseconds over all ranks
    cost_share: float | None  # of the sum over all tables
    on_worst: float | None  # milliseconds on the worst rank

    def where(self, world: int) -> str:
        """Returns its ranks as text, such as `r0-7` or `all ranks`."""
        if len(self.ranks) == world > 1:
            return ALL_RANKS
        return format_ranks(self.ranks.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The figures of a plan, and their assumptions as sentences."""

    plan: Plan
    ranks: int
    ranks_per_host: int | None
    costs: Costs | None
    memory: tuple[Memory, ...]  # used tiers, hbm first
    tables: tuple[TableRow, ...]  # in the plan's order
    pinning: tuple[int, ...]  # tables on the worst rank, by cost above their mean over ranks
    step: Step | None  # predicted by the hardware costs; None with TorchRec's
    torchrec_rating: float | None  # by TorchRec's costs, if those of the plan are others
    lower_bound: float | None  # milliseconds; no plan is better
    gap: float | None  # how far the rating is above the bound, at most, as a fraction
    assumptions: tuple[str, ...]

    @property
    def hosts(self) -> int | None:
        """The number of hosts; None if the ranks per host are not known."""
        if not self.ranks_per_host:
            return None
        return -(-self.ranks // self.ranks_per_host)

    @property
    def rating(self) -> float | None:
        """The plan's rating in milliseconds, which may be known even if its costs are not."""
        return None if self.plan.basis is None else self.plan.basis.record.rating

    @property
    def fits(self) -> bool | None:
        """Whether every rank has enough memory; None if capacities are not known."""
        free = [tier.headroom for tier in self.memory]
        if any(size is None for size in free):
            return None
        return all(size >= 0 for size in free if size is not None)

    @property
    def bytes(self) -> int:
        """Bytes of all weights of known size."""
        return sum(table.bytes or 0 for table in self.tables)


def analyse(plan: Plan) -> Analysis:
    """Analyses a plan for all reports.

    Args:
        plan: A plan. If only its layout is known, costs are missing.

    Returns:
        The figures, and what they assume.

    Raises:
        ValueError: if a table of the layout is not in the plan's request.
    """
    found: Estimates | None = None
    why = "only the layout of the plan is known: costs are not shown"
    if plan.basis is not None:
        try:
            found = estimates(plan.basis)
        except EstimateUnavailable as problem:
            why = f"costs are not shown: {problem}"
    cluster = plan.basis.cluster if plan.basis is not None else None
    ranks = plan.ranks
    tables = _rows(plan, found)
    costs = memory = None
    assumptions: list[str] = []
    if plan.basis is not None and found is not None:
        rating = plan.basis.record.rating
        costs = Costs(parts=found.rank_parts, total=found.rank_total, rating=rating)
        memory = found.rank_memory
        model = "TorchRec's" if plan.basis.request.hardware is None else "the hardware costs'"
        assumptions.append(f"costs are {model} estimates, not measurements; memory is TorchRec's")
    else:
        assumptions += [why, "memory is that of the weights only"]
        memory = _weights_by_rank(plan, tables)
    if any(table.element_size is None for table in tables):
        assumptions.append(f"elements of {ASSUMED_ELEMENT_SIZE} bytes are assumed")
    if any(table.bytes is None for table in tables):
        assumptions.append("tables of unknown shape count as empty")
    bound, gap = _gap(plan)
    step, stock = _hardware(plan) if found is not None else (None, None)
    return Analysis(
        plan=plan,
        ranks=ranks,
        ranks_per_host=cluster.local_world_size if cluster else plan.layout.ranks_per_host,
        costs=costs,
        memory=_tiers(plan, memory),
        tables=tables,
        pinning=_pinning(tables, costs),
        step=step,
        torchrec_rating=stock,
        lower_bound=bound,
        gap=gap,
        assumptions=tuple(assumptions),
    )


def _hardware(plan: Plan) -> tuple[Step | None, float | None]:
    """The predicted step of a plan with hardware costs, and its rating by TorchRec's costs."""
    basis = plan.basis
    if basis is None or basis.request.hardware is None:
        return None, None
    numbers = np.arange(len(basis.record.table), dtype=np.int32)
    _, space = chosen_space(basis.request, basis.record)
    step = step_of(Problem(space, basis.cluster), numbers, basis.record.ranks)
    _, stock = chosen_space(replace(basis.request, hardware=None), basis.record)
    return step, rate(Problem(stock, basis.cluster), numbers, basis.record.ranks)


def _rows(plan: Plan, found: Estimates | None) -> tuple[TableRow, ...]:
    requested = {}
    if plan.basis is not None:
        tables = plan.basis.request.tables
        for position, number in enumerate(plan.basis.record.table.tolist()):
            requested[tables[number].path, tables[number].name] = position, tables[number]
    total = float(found.table_total.sum()) if found is not None else 0.0
    rows = []
    for layout in plan.layout.tables:
        row = _bare_row(layout)
        if plan.basis is not None:
            if (layout.path, layout.name) not in requested:
                raise ValueError(f"table {layout.name} of the plan is not in its request")
            at, table = requested[layout.path, layout.name]
            row = row._replace(
                shape=(table.rows, table.dim), element_size=table.element_size, bytes=table.bytes
            )
            if found is not None:
                cost = float(found.table_total[at])
                row = row._replace(
                    shards=int(found.table_shards[at]),
                    ranks=found.table_ranks[at],
                    cost=cost,
                    cost_share=cost / total if total > 0 else 0.0,
                    on_worst=float(found.table_on_worst[at]),
                )
        rows.append(row)
    return tuple(rows)


def _bare_row(layout: TableLayout) -> TableRow:
    size = None
    if layout.shape is not None:
        size = layout.shape[0] * layout.shape[1] * ASSUMED_ELEMENT_SIZE
    return TableRow(
        path=layout.path,
        name=layout.name,
        shape=layout.shape,
        sharding_type=layout.sharding_type,
        kernel=layout.kernel,
        element_size=None,
        bytes=size,
        shards=len(layout.shards),
        ranks=_once(layout.shards[:, RANK]),
        cost=None,
        cost_share=None,
        on_worst=None,
    )


def _once(ranks: Ints) -> Ints:
    """Each rank once, ascending. Most inputs are so already."""
    return ranks if (np.diff(ranks) > 0).all() else distinct(ranks)


def _weights_by_rank(plan: Plan, rows: tuple[TableRow, ...]) -> dict[str, Ints]:
    """Bytes of weights in the tier of their kernel."""
    ranks = plan.ranks
    used = {tier: np.zeros(ranks) for tier in TIERS}
    for layout, row in zip(plan.layout.tables, rows, strict=True):
        shards = layout.shards
        size = row.element_size or ASSUMED_ELEMENT_SIZE
        held = shards[:, ROWS] * shards[:, COLUMNS] * size
        tier = "ddr" if plan.layout.device == "cpu" else _home(layout.kernel)
        used[tier] += np.bincount(shards[:, RANK], held, ranks)
    return {tier: sums.astype(np.int64) for tier, sums in used.items()}


def _home(kernel: str) -> str:
    if kernel in ("key_value", "ssd_virtual_table", "dram_ssd_virtual_table"):
        return "ssd"
    return "ddr" if "uvm" in kernel or kernel == "dram_virtual_table" else "hbm"


def _tiers(plan: Plan, memory: dict[str, Ints]) -> tuple[Memory, ...]:
    cluster = plan.basis.cluster if plan.basis is not None else None
    found = []
    for tier in TIERS:
        capacity = np.array(getattr(cluster, f"rank_{tier}"), np.int64) if cluster else None
        has_any = capacity is not None and tier == "hbm" and capacity.any()
        if memory[tier].any() or has_any:
            found.append(Memory(tier, memory[tier], capacity))
    return tuple(found)


def _pinning(rows: tuple[TableRow, ...], costs: Costs | None) -> tuple[int, ...]:
    """Tables on the worst rank, by cost there above their mean over all ranks."""
    if costs is None:
        return ()
    ranks, balanced = len(costs.total), costs.balanced

    def order(index: int) -> tuple[float, float, int]:
        there = rows[index].on_worst or 0.0
        above = there - (rows[index].cost or 0.0) / ranks
        return -above if above > 1e-9 * there and not balanced else 0.0, -there, index

    return tuple(sorted((i for i, row in enumerate(rows) if row.on_worst), key=order))


def _gap(plan: Plan) -> tuple[float | None, float | None]:
    """The proven lower bound, and the gap between it and the rating."""
    bound = plan.lower_bound
    if plan.basis is None or not bound:
        return None, None
    return bound, max(0.0, plan.basis.record.rating / bound - 1)
