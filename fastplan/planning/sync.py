"""What the ranks of a plan hold, and what it costs to keep replicas of them in sync.

DMPCollection's `sync()` averages the weights and the optimizer states of replicas, with an
all-reduce over the ranks that hold the same shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastplan.engine.problem import Floats, Ints
from fastplan.model.replicas import ReplicaGroups
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES
from fastplan.planning.search import Result
from fastplan.plans.replicas import HOST_KERNELS, SYNCED_KERNELS

STATE_BYTES = 4  # of a number: FBGEMM keeps optimizer states in fp32
_SYNCED = np.array([name in SYNCED_KERNELS for name in KERNELS])
_IN_HOST_MEMORY = np.array([name in HOST_KERNELS for name in KERNELS])
_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])
_DATA_PARALLEL = SHARDING_TYPES.index("data_parallel")


class Links(NamedTuple):
    """Bandwidths of a rank in bytes per ms."""

    near: float  # to ranks of its host or pod
    far: float  # over the network
    host_memory: float  # between its device and host memory


class SyncBytes(NamedTuple):
    """Bytes that `sync()` all-reduces, by position of a rank in its group."""

    weights: Ints
    states: Ints  # of the optimizer
    in_host_memory: Ints  # of both, the part that is in host memory (UVM)

    @property
    def total(self) -> Ints:
        """Weights and states."""
        return self.weights + self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The estimated cost of one `sync()`.

    Attributes:
        bytes: what each rank all-reduces.
        ms: by position in the group: the time of its all-reduce.
        near: of the replicas of a rank, with itself, those on its host or pod.
        far: hosts or pods that hold a replica.
    """

    bytes: SyncBytes
    ms: Floats
    near: int
    far: int

    @property
    def worst_position(self) -> int:
        """The position with the longest time."""
        return int(self.ms.argmax())

    @property
    def total_ms(self) -> float:
        """The time of the whole sync. All-reduces of different positions run at the same time."""
        return float(self.ms.max(initial=0.0))


def sync_cost(bytes: SyncBytes, groups: ReplicaGroups, links: Links) -> Sync:
    """Returns the cost of one sync.

    With k replicas on each of h hosts, b bytes take

        2 (k - 1) / k x b / near  +  2 (h - 1) / h x b / k / far

    ms: a reduce-scatter and an all-gather on the host, and between them an all-reduce over the
    network, of which each rank does its k-th part with its own network card. Bytes in host memory
    take at least the time to read and to write them there.

    Args:
        bytes: what each rank all-reduces.
        groups: the replica groups.
        links: the bandwidths.
    """
    near = groups.near_replicas
    far = groups.groups // near

    def reduced(count: Any) -> Any:
        inside = 2 * (near - 1) / near * count / links.near
        return inside + 2 * (far - 1) / far * (count / near) / links.far

    host = bytes.in_host_memory.astype(np.float64)
    device = bytes.total - host
    there_and_back = 2 * host / links.host_memory if groups.groups > 1 else 0 * host
    ms = reduced(device) + np.maximum(reduced(host), there_and_back)
    return Sync(bytes=bytes, ms=np.asarray(ms, np.float64), near=near, far=far)


def synced_bytes(result: Result, *, optimizer: bool = True) -> SyncBytes:
    """Returns the bytes that each rank of a result's plan all-reduces.

    Args:
        result: a result with a plan.
        optimizer: whether optimizer states are included.
    """
    pieces = Pieces(result)
    request, record, space = result.job.request, result.record, pieces.space
    assert request is not None
    assert record is not None
    tables = [request.tables[number] for number in record.table.tolist()]
    element = np.array([table.element_size for table in tables], np.int64)[pieces.position]
    multiplier = np.array([table.optimizer_multiplier for table in tables])[pieces.position]
    by_row = np.array([table.optimizer_multiplier * table.dim == 1 for table in tables])
    rows, columns = space.run_rows[pieces.runs], space.run_cols[pieces.runs]
    synced = _SYNCED[record.kernel] & (record.sharding_type != _DATA_PARALLEL)
    weights = rows * columns * element * synced[pieces.position]
    # A row-wise state has one number per row of each shard, also if the shard is narrow.
    numbers = np.where(by_row[pieces.position], rows, rows * columns * multiplier)
    states = (numbers * STATE_BYTES).astype(np.int64) * synced[pieces.position]
    if not optimizer:
        states = np.zeros_like(states)
    host = (weights + states) * _IN_HOST_MEMORY[record.kernel][pieces.position]
    return SyncBytes(*(pieces.by_rank(values) for values in (weights, states, host)))


def rank_memory(result: Result) -> dict[str, tuple[int, int]]:
    """Returns bytes on the fullest rank of a result's plan and its capacity, by tier in use."""
    pieces, cluster = Pieces(result), result.job.cluster
    found = {}
    for tier in ("hbm", "ddr", "ssd"):
        used = pieces.by_rank(getattr(pieces.space, f"run_{tier}")[pieces.runs])
        capacity = np.array(getattr(cluster, f"rank_{tier}"), np.int64)
        if used.any():
            fullest = int((capacity - used).argmin())
            found[tier] = int(used[fullest]), int(capacity[fullest])
    return found


class Pieces:
    """The runs of a result's plan, and sums over them by rank.

    Attributes:
        space: the search space of the plan.
        runs: the runs of the chosen options.
        position: of each run, the plan position of its table.
    """

    def __init__(self, result: Result) -> None:
        placement = result.placement
        assert placement is not None
        self.space = placement.space.columns
        self._ranks = len(result.job.cluster.rank_hbm)
        options = np.asarray(placement.options, np.int64)
        begin = self.space.option_run_begin[options]
        counts = self.space.option_run_begin[options + 1] - begin
        self.position: Ints = np.repeat(np.arange(len(options)), counts)
        ends = np.cumsum(counts)
        self.runs: Ints = np.arange(len(self.position)) + np.repeat(begin - ends + counts, counts)
        shards = self.space.run_count[self.runs]
        before = np.cumsum(shards) - shards
        self._uniform = _UNIFORM[self.space.option_type[options]][self.position]
        # Uniform shards are on ranks 0, 1, ... of the group.
        self._first = before - np.repeat(before[ends - counts], counts)
        self._last = self._first + shards
        self._placed = np.repeat(np.arange(len(shards)), np.where(self._uniform, 0, shards))
        self._placed_ranks = np.asarray(placement.ranks, np.int64)

    def by_rank(self, values: Any) -> Ints:
        """Returns the sums of the values of the runs' shards, by rank."""
        steps = np.zeros(self._ranks + 1, np.int64)
        np.add.at(steps, self._first[self._uniform], values[self._uniform])
        np.add.at(steps, self._last[self._uniform], -values[self._uniform])
        sums = np.cumsum(steps[:-1])
        np.add.at(sums, self._placed_ranks, values[self._placed])
        return sums
