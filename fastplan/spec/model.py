"""What a spec file says: a model's tables, a cluster, and how to plan them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastplan.model.request import CostFunction, ObjectiveFunction, Partitioner, Proposer
from fastplan.spec.hardware import Hardware

DEFAULT_MODULE = "ebc"
DEFAULT_PARTITIONER = Partitioner()
DEFAULT_PROPOSERS = (
    Proposer(kind="grid"),
    Proposer(kind="greedy"),
    Proposer(kind="greedy", use_depth=False),
    Proposer(kind="uniform"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSpec:
    """A table's cache in device memory. None is what its module says, or TorchRec's default."""

    load_factor: float | None = None
    prefetch: bool | None = None
    passes: int | None = None  # of a prefetch in several passes
    expected_lookups: float | None = None  # statistics, both or none
    miss_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One embedding table and its constraints."""

    name: str
    rows: int
    dim: int
    module: str = DEFAULT_MODULE
    dtype: str = "fp32"
    features: tuple[str, ...] = ()
    pooling: tuple[float, ...] = (1.0,)  # values looked up, by feature
    poolings: tuple[float, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None  # by feature; None is the model's
    weighted: bool | None = None  # None is what the module says
    sharding_types: tuple[str, ...] | None = None  # allowed ones; None is TorchRec's choice
    compute_kernels: tuple[str, ...] | None = None
    min_partition: int = 0
    output_dtype: str | None = None
    optimizer: str | None = None
    cache: CacheSpec | None = None
    key_value_cache: int = 0  # bytes
    virtual: bool = False
    buckets: int = 0
    tower: str | None = None
    menu: str | None = None  # one of ModelSpec.menus instead of TorchRec's rules
    exact: dict[str, Any] = field(default_factory=dict)  # numbers of request.Table, as they are
    settings: dict[str, Any] = field(default_factory=dict)  # what the plan carries for the table


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSpec:
    """A module that holds tables, and what its sharder says about all of them."""

    kind: str = "embedding_bag_collection"
    weighted: bool = False
    cache_load_factor: float | None = None
    prefetch: bool = False
    passes: int = 0
    wire: tuple[float, float, float, float] | None = None  # bytes: all-to-all, reduce-scatter
    sharding_types: tuple[str, ...] | None = None  # what the sharder offers; None is its kind's
    compute_kernels: dict[str, tuple[str, ...]] | None = None  # by sharding type
    pooled: bool | None = None  # None is its kind's


class MenuEntry(NamedTuple):
    """An option whose numbers are given instead of derived."""

    sharding_type: str
    kernel: str
    bandwidth: float
    fwd: tuple[float, float, float, float]
    bwd: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpec:
    """The cluster. What is None must come from elsewhere, or is the hardware's usual."""

    hardware: Hardware | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    pod_size: int | None = None
    rank_hbm: tuple[int, ...] | None = None  # where ranks differ
    rank_ddr: tuple[int, ...] | None = None
    rank_ssd: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSpec:
    """Memory that is not for tables, by one of TorchRec's policies."""

    policy: str = "heuristical"
    percentage: float = 0.15
    reserved: int = 0  # bytes, of policy `absolute`
    dense: int = 0  # bytes for the dense part, its gradients and optimizer included
    kjt: int | None = None  # bytes for inputs; None is TorchRec's estimate
    margin: int = 0  # of policy `sku`, as all below
    base: int | None = None
    overhead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """How plans are searched for."""

    proposers: tuple[Proposer, ...] = DEFAULT_PROPOSERS
    partitioner: Partitioner = DEFAULT_PARTITIONER
    timeout_seconds: float = 0.0
    deterministic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Everything that a spec file can say."""

    name: str
    tables: tuple[TableSpec, ...]
    batch_size: int = 512
    torchrec: str | None = None  # whose planner to match; None is the installed one's
    modules: dict[str, ModuleSpec] = field(default_factory=dict)
    menus: dict[str, tuple[MenuEntry, ...]] = field(default_factory=dict)
    topology: TopologySpec = TopologySpec()
    reservation: ReservationSpec = ReservationSpec()
    search: SearchSpec = SearchSpec()
    cost: dict[str, Any] = field(default_factory=dict)  # numbers of request.CostModel, as they are
    # With @fastplan.shard_cost and @fastplan.plan_objective: package.module:function, or itself.
    shard_cost: str | CostFunction | None = None
    objective: str | ObjectiveFunction | None = None
    source: str = ""  # the file, for messages
