"""The request: all inputs that determine a plan, as frozen data without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from fastplan.model.ids import Curve
from fastplan.model.vocabulary import KERNEL_INDEX, USUAL_TYPES


class Table(NamedTuple):
    """One embedding table, with the numbers that its cost and storage depend on."""

    name: str
    path: str  # module that holds it
    rows: int
    dim: int
    element_size: int
    bytes: int
    menu: int  # index into Request.menus
    perf_inputs: float  # values looked up per local batch, as the cost model counts them
    perf_outputs: float  # and vectors returned after pooling
    storage_inputs: float  # the same as the storage model counts them
    storage_outputs: float
    pooled: bool
    weighted: bool
    usage: str  # one of vocabulary.STORAGE_USAGES
    virtual: bool
    output_element_size: float
    fwd_a2a: float  # bytes per element on the wire, all-to-all
    bwd_a2a: float
    fwd_sr: float  # and reduce-scatter
    bwd_sr: float
    min_partition: int  # smallest column-wise shard; 0 is the default
    buckets: int  # 0 is none
    prefetch_passes: int  # 0 is unset
    optimizer_multiplier: float
    cache_ratio: float
    kv_load_factor: float
    kv_cache_bytes: int
    expected_lookups: float  # NaN without cache statistics
    miss_rate: float
    tower: str | None  # tables of one tower share a host; "" is a tower that binds nothing

    def with_menu(self, menu: int) -> Table:
        """Returns the table with another menu, in a third of the time of `_replace`."""
        return tuple.__new__(Table, (*self[:_MENU], menu, *self[_MENU + 1 :]))


_MENU = Table._fields.index("menu")
Order = tuple[tuple[str, str], ...]  # sharding types and kernels


class MenuItem(NamedTuple):
    """An allowed (sharding type, kernel), with the numbers that come with the pair."""

    sharding_type: str
    kernel: str
    bandwidth: float  # of the memory the kernel reads
    coefficients: int  # index into Request.coefficients


class Coefficients(NamedTuple):
    """Weights of input read, lookup, output write and rows; no `bwd` means a multiple of `fwd`."""

    fwd: tuple[float, float, float, float]
    bwd: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Scalars of the cost and storage formulas. Names are those of the native core."""

    perf_world_size: int
    perf_local_world_size: int
    perf_group_size: int
    bw_world_all_to_all: float
    bw_world_reduce_scatter: float
    bw_world_all_gather: float
    bw_world_all_reduce: float
    bw_group_reduce_scatter: float
    bw_group_all_gather: float
    bw_across_all_to_all: float
    hbm_to_ddr_bw: float
    bwd_compute_multiplier: float
    weighted_bwd_multiplier: float
    perf_inference: bool
    min_dim_table_wise: bool
    block_penalty_table_wise: bool
    block_penalty_other: bool
    input_read_in_bytes: bool
    input_element_size: float
    weighted_kernel_multiplier: float
    fetches_from_batch_inputs: bool
    linear_prefetch: bool
    prefetch_coefficients: tuple[float, float, float]
    storage_world_size: int
    storage_group_size: int
    device_kind: str
    weights_in_ddr: bool
    quant_weights_in_ddr: bool
    pipeline: str
    at_peak_memory: bool
    storage_inference: bool
    layout_world_size: int
    layout_group_size: int
    layout_rank_memory: tuple[int, ...]  # empty unless row-wise shards are sized by memory


class CompiledFunction(Protocol):
    """A user function that the core calls by address."""

    @property
    def name(self) -> str:
        """The name in messages."""

    def address(self) -> int:
        """Returns the address of the compiled function."""

    def fingerprint(self) -> str:
        """Returns a hash of the code and of its inputs. Raises NoFingerprint."""


class CostFunction(CompiledFunction, Protocol):
    """A custom cost of shards, which replaces TorchRec's."""

    def failure(self, facts: dict[str, Any], table: str) -> Exception:
        """Returns the error for a failed call: `facts` from the core, and the table's name."""


class ObjectiveFunction(CompiledFunction, Protocol):
    """A custom rating of plans, which replaces the cost of the largest rank."""

    def failure(self, facts: dict[str, Any]) -> Exception:
        """Returns the error for a failed call, from the core's `facts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """A cost function and its inputs in addition to the request."""

    function: CostFunction
    batch_size: int


class IdCurves(NamedTuple):
    """What costs depend on of a table's id statistics; see model/ids.py."""

    unique: Curve  # the share of distinct ids among n consecutive ones
    misses: Curve  # the share of ids that an LRU cache of r rows misses


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCosts:
    """The hardware costs of a request, which replace TorchRec's. See docs/hardware-costs.md."""

    constants: tuple[float, ...]  # in ms, ms per byte and ms per id; hardware_costs.CONSTANTS
    domain_ranks: int  # ranks of one NVLink domain
    states: tuple[float, ...]  # by table: bytes of optimizer state per byte of weights
    pipeline: str  # one of vocabulary.PIPELINES, which hides phases of the step
    ids: tuple[IdCurves | None, ...] = ()  # by table, None without statistics; empty: no table has

    def __post_init__(self) -> None:
        if not any(self.ids):
            object.__setattr__(self, "ids", ())  # one form of the same costs, so one cache key
        elif len(self.ids) != len(self.states):
            raise ValueError("`ids` and `states` must have one entry per table")

    def for_tables(self, numbers: Iterable[int]) -> HardwareCosts:
        """Returns the costs for tables in another order."""
        order = list(numbers)
        return replace(
            self,
            states=tuple(self.states[number] for number in order),
            ids=tuple(self.ids[number] for number in order) if self.ids else (),
        )

    def has_statistics(self, table: int) -> bool:
        """Returns whether the ids of a table have statistics."""
        return bool(self.ids) and self.ids[table] is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The ranks of the search: capacities after reservation, and ranks per host."""

    rank_hbm: tuple[int, ...]
    rank_ddr: tuple[int, ...]
    rank_ssd: tuple[int, ...]
    local_world_size: int
    group_size: int

    def __post_init__(self) -> None:
        if not len(self.rank_hbm) == len(self.rank_ddr) == len(self.rank_ssd):
            raise ValueError("`rank_hbm`, `rank_ddr` and `rank_ssd` must have one entry per rank")
        if not self.rank_hbm:
            raise ValueError("`rank_hbm` must have at least one rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposer:
    """A stock proposer and its state."""

    kind: str  # one of vocabulary.PROPOSERS
    use_depth: bool = True
    threshold: int = 0
    best_rating: float = float("inf")
    inferior: int = 0
    max_proposals: int = 10_000
    bins_per_device: int = 100
    exhausted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioner:
    """A stock partitioner."""

    memory_balanced: bool = False
    sort_by_perf: bool = False
    balance_modules: bool = False
    max_search_count: int = 10
    tolerance: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The settings of a search."""

    proposers: tuple[Proposer, ...]
    partitioner: Partitioner
    timeout_seconds: float = 0.0  # 0 is none
    objective: ObjectiveFunction | None = None  # None is the largest rank

    @property
    def must_be_exhaustive(self) -> bool:
        """Whether the search must place every proposal. Thresholds depend on proposals that can't
        win, and an objective must rate a proposal before it is excluded."""
        return any(p.threshold for p in self.proposers) or self.objective is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Tables in order, their allowed options, and the cost model."""

    tables: tuple[Table, ...]
    menus: tuple[tuple[MenuItem, ...], ...]
    coefficients: tuple[Coefficients, ...]
    cost: CostModel
    pricing: Pricing | None = None  # None: no custom cost
    hardware: HardwareCosts | None = None  # None: costs are TorchRec's


def unusual_order(options: Iterable[tuple[str, str]]) -> Order:
    """Returns the options as they are listed; nothing if their order is the usual one.

    If two plans have the same rating, the first wins, so the order decides. Nearly all sharders
    list options in one order; the cache key has the others.
    """
    listed = tuple(options)
    places = [(USUAL_TYPES.index(kind), KERNEL_INDEX[kernel]) for kind, kernel in listed]
    return listed if places != sorted(places) else ()


def digest_orders(orders: Iterable[tuple[str, str, Order]]) -> str:
    """Returns the digest of the orders of tables, which are given by module and name."""
    digest = hashlib.blake2b(digest_size=16)
    for order in orders:
        digest.update(repr(order).encode(errors="surrogatepass"))
    return digest.hexdigest()
