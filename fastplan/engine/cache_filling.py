"""Gives the memory that a plan leaves on its ranks to its caches."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.cache_sizes import LARGEST, can_resize
from fastplan.engine.layout import narrowed, shard_ranks, table_shards
from fastplan.engine.problem import Floats, Ints
from fastplan.engine.solve import estimate
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Cluster, Request
from fastplan.model.vocabulary import KERNEL_INDEX

_CACHED = KERNEL_INDEX["fused_uvm_caching"]
_SIZES = 9  # that each cache may grow to, in each of the passes
_PASSES = 3
# What a cost counts on a rank without load, beside one on the slowest rank.
_LEAST_WEIGHT = 1e-3
_SHARPNESS = 8


def filled(
    request: Request, cluster: Cluster, record: PlanRecord, *, balance: bool = True
) -> PlanRecord:
    """Returns the plan with caches as large as its ranks have room for.

    The cache that saves the most prefetch costs per byte grows first. Estimates are the core's, so
    what fits here fits.

    Args:
        request: the request, with hardware costs.
        cluster: the ranks.
        record: a plan that fits.
        balance: whether costs count more on ranks that have more of them.
    """
    limits = np.full(len(record.table), LARGEST)
    for _ in range(_PASSES):
        record, limits = _Filling(request, cluster, record, limits, balance).run()
    return record


@dataclass(slots=True)
class _Sizes:
    """The sizes of one cache: shard by shard, bytes and prefetch costs of each."""

    ranks: Ints
    hbm: NDArray[np.int64]  # size x shard
    cost: Floats


class _Filling:
    """One pass: every cache may grow to a few sizes up to its limit."""

    def __init__(
        self, request: Request, cluster: Cluster, record: PlanRecord, limits: Floats, balance: bool
    ) -> None:
        space = estimate(narrowed(request, record))
        shards = table_shards(space)
        ranks = shard_ranks(record, shards, len(cluster.rank_hbm))
        self._record = record
        self._free = np.array(cluster.rank_hbm, np.int64)
        np.subtract.at(self._free, ranks, np.repeat(space.run_hbm, space.run_count))
        load = np.zeros(len(cluster.rank_hbm))
        np.add.at(load, ranks, np.repeat(space.run_prefetch_compute, space.run_count))
        slowest = max(float(load.max()), 1e-300)
        self._weight = (load / slowest) ** _SHARPNESS + _LEAST_WEIGHT
        if not balance:
            self._weight[:] = 1.0
        begin = np.cumsum(shards) - shards
        self._ranks = [ranks[b : b + n] for b, n in zip(begin, shards, strict=True)]
        now = np.array([request.tables[t].cache_ratio for t in record.table.tolist()])
        self._now = np.where(np.isnan(record.load_factor), now, record.load_factor)
        self._grids = {
            position: np.geomspace(self._now[position], limits[position], _SIZES)
            for position in np.flatnonzero(record.kernel == _CACHED).tolist()
            if can_resize(request, int(record.table[position]))
            and self._now[position] < limits[position]
        }
        self._sizes = self._estimated(request)

    def _estimated(self, request: Request) -> dict[int, _Sizes]:
        """Estimates every size of every cache in one call."""
        record = self._record
        rows = [(p, size) for p, grid in self._grids.items() for size in grid.tolist()]
        if not rows:
            return {}
        positions = np.array([p for p, _ in rows])
        chosen = narrowed(request, record)
        tables = tuple(chosen.tables[p]._replace(cache_ratio=size) for p, size in rows)
        tables = tuple(table._replace(miss_rate=float("nan")) for table in tables)
        hardware = chosen.hardware and chosen.hardware.for_tables(positions.tolist())
        space = estimate(replace(chosen, tables=tables, hardware=hardware))
        ends = np.cumsum(table_shards(space))
        hbm = np.split(np.repeat(space.run_hbm, space.run_count), ends[:-1])
        ms = np.split(np.repeat(space.run_prefetch_compute, space.run_count), ends[:-1])
        return {
            p: _Sizes(
                self._ranks[p],
                np.stack(hbm[i * _SIZES : (i + 1) * _SIZES]),
                np.stack(ms[i * _SIZES : (i + 1) * _SIZES]),
            )
            for i, p in enumerate(self._grids)
        }

    def run(self) -> tuple[PlanRecord, Floats]:
        """Returns the plan with larger caches, and the sizes that the next pass may reach."""
        at = dict.fromkeys(self._sizes, 0)
        heap: list[tuple[float, int, int, int]] = []
        for position in self._sizes:
            self._push(heap, position, 0)
        while heap:
            _, position, start, size = heapq.heappop(heap)
            own = self._sizes[position]
            more = own.hbm[size] - own.hbm[start]
            if self._fits(own.ranks, more):
                np.subtract.at(self._free, own.ranks, more)
                at[position] = size
            self._push(heap, position, at[position])
        factors, limits = self._record.load_factor.copy(), self._now.copy()
        for position, size in at.items():
            grid = self._grids[position]
            if size:
                factors[position] = min(grid[size], LARGEST)
            limits[position] = grid[min(size + 1, _SIZES - 1)]
        return replace(self._record, load_factor=factors), limits

    def _fits(self, ranks: Ints, more: NDArray[np.int64]) -> bool:
        left = self._free.copy()
        np.subtract.at(left, ranks, more)
        return bool((left[ranks] >= 0).all())

    def _push(self, heap: list[tuple[float, int, int, int]], position: int, start: int) -> None:
        """Adds the best growth that fits now, by weighted cost per byte; memory only shrinks."""
        own = self._sizes[position]
        best: tuple[float, int] | None = None
        for size in range(start + 1, _SIZES):
            more = own.hbm[size] - own.hbm[start]
            if not self._fits(own.ranks, more):
                break
            gain = float(((own.cost[start] - own.cost[size]) * self._weight[own.ranks]).sum())
            rate = gain / max(int(more.sum()), 1)
            if gain > 0 and (best is None or rate > best[0]):
                best = rate, size
        if best is not None:
            heapq.heappush(heap, (-best[0], position, start, best[1]))
