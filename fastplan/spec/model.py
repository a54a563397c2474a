"""The content of a spec file: a model's tables, a cluster and a search.

Files are decoded into these structs. Their annotations state types, limits and units. They are not
strings, because msgspec would have to evaluate those at every start.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec.structs
from msgspec import Struct

from fastplan.files.kinds import Text, choice, number, size, whole, with_problem
from fastplan.model.limits import MOST
from fastplan.model.request import CostFunction, ObjectiveFunction, Partitioner, Proposer
from fastplan.model.vocabulary import DTYPE_ALIASES, KERNELS, SHARDING_TYPES
from fastplan.spec import stock
from fastplan.spec.hardware import Hardware
from fastplan.spec.ids import IdFields

P = TypeVar("P")

# "torchrec": TorchRec's formulas and constants; "hardware": docs/hardware-costs.md.
COST_MODELS = ("torchrec", "hardware")
DEFAULT_MODULE = "ebc"
DEFAULT_PARTITIONER = Partitioner()
DEFAULT_PROPOSERS: tuple[Proposer, ...] = (
    Proposer(kind="grid"),
    Proposer(kind="greedy"),
    Proposer(kind="greedy", use_depth=False),
    Proposer(kind="uniform"),
)

DataType = Annotated[str, choice(stock.DTYPE_SIZES, DTYPE_ALIASES)]
Kernel = Annotated[str, choice(KERNELS)]
ModuleKind = Annotated[str, choice(stock.KINDS)]
Optimizer = Annotated[str, choice(stock.OPTIMIZERS)]
OutputType = Annotated[str, choice(stock.OUTPUT_BITS, DTYPE_ALIASES)]
Policy = Annotated[str, choice(("heuristical", "percentage", "absolute", "inference", "sku"))]
ShardingType = Annotated[str, choice(SHARDING_TYPES)]
Count = Annotated[int, whole()]
Positive = Annotated[int, whole(1)]
Passes = Annotated[int, whole(0, MOST["passes"])]
Size = Annotated[int, size()]
Fraction = Annotated[float, number(0, 1)]
Lookups = Annotated[float, number(0, MOST["pooling"])]
Wire = Annotated[float, number(0, MOST["wire"])]


class CacheSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table's cache in device memory. None: the module's setting, or TorchRec's default."""

    load_factor: Fraction | None = None
    prefetch: bool | None = None
    passes: Passes | None = None  # of a multi-pass prefetch
    expected_lookups: Annotated[float, number(0)] | None = None  # statistics: give both or neither
    miss_rate: Annotated[float, number(0, MOST["miss_rate"])] | None = None


class TableSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One embedding table and its constraints."""

    name: Text
    rows: Positive
    dim: Annotated[int, whole(1, MOST["dim"])]
    module: Text = DEFAULT_MODULE  # path of its module
    dtype: DataType = "fp32"
    features: tuple[Text, ...] = ()
    pooling: tuple[Lookups, ...] = (1.0,)  # values looked up, by feature
    poolings: tuple[Lookups, ...] | None = None
    batch_sizes: tuple[Annotated[int, whole(1, MOST["batch_size"])], ...] | None = None
    weighted: bool | None = None  # None: the module's setting
    sharding_types: tuple[ShardingType, ...] | None = None  # None: TorchRec's choice
    compute_kernels: tuple[Kernel, ...] | None = None
    min_partition: Annotated[int, whole(0, MOST["min_partition"])] = 0
    output_dtype: OutputType | None = None
    optimizer: Optimizer | None = None
    cache: CacheSpec | None = None
    ids: IdFields | None = None
    key_value_cache: Size = 0
    virtual: bool = False
    buckets: Count = 0
    tower: Text | None = None
    menu: Text | None = None  # one of ModelSpec.menus instead of TorchRec's rules
    exact: dict[str, Any] = msgspec.field(default_factory=dict)  # fields of request.Table
    settings: dict[str, Any] = msgspec.field(default_factory=dict)  # stored in the plan


class ModuleSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A module with tables, and the settings of its sharder for all of them."""

    kind: ModuleKind = "embedding_bag_collection"
    weighted: bool = False
    cache_load_factor: Fraction | None = None
    prefetch: bool = False
    passes: Passes = 0
    wire: (
        Annotated[
            tuple[Wire, Wire, Wire, Wire],
            with_problem(
                "must be four numbers: bytes per element of the all-to-all forward and backward, "
                "and of the reduce-scatter forward and backward"
            ),
        ]
        | None
    ) = None
    sharding_types: tuple[ShardingType, ...] | None = None  # what the sharder offers
    compute_kernels: dict[ShardingType, tuple[Kernel, ...]] | None = None
    pooled: bool | None = None  # None: the default of its kind


class MenuEntry(NamedTuple):
    """An option whose numbers are given instead of derived."""

    sharding_type: str
    kernel: str
    bandwidth: float
    fwd: tuple[float, float, float, float]
    bwd: tuple[float, float, float, float] | None


class TopologySpec(Struct, frozen=True, kw_only=True):
    """The cluster. Fields that are None come from the hardware or from `on_cluster`."""

    hardware: Hardware | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    pod_size: int | None = None
    rank_hbm: tuple[int, ...] | None = None  # if ranks differ
    rank_ddr: tuple[int, ...] | None = None
    rank_ssd: tuple[int, ...] | None = None


class ReservationSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory that is not available to tables, by one of TorchRec's policies."""

    policy: Policy = "heuristical"
    percentage: Fraction = 0.15
    reserved: Size = 0  # of policy `absolute`
    dense: Size = 0  # for the dense part, its gradients and optimizer included
    kjt: Size | None = None  # for inputs; None: TorchRec's estimate
    margin: Size = 0  # of policy `sku`, like the fields below
    base: Size | None = None
    overhead: Size = 0


class SearchSpec(Struct, frozen=True, kw_only=True):
    """The settings of the search."""

    proposers: tuple[Proposer, ...] = DEFAULT_PROPOSERS
    partitioner: Partitioner = DEFAULT_PARTITIONER
    timeout_seconds: float = 0.0
    deterministic: bool = False


_TOPOLOGY, _RESERVATION, _SEARCH = TopologySpec(), ReservationSpec(), SearchSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The content of a spec file.

    It is a dataclass, because `dataclasses.replace` is documented for it.
    """

    name: str
    tables: tuple[TableSpec, ...]
    batch_size: int = 512
    torchrec: str | None = None  # TorchRec version to match; None: the installed one
    modules: dict[str, ModuleSpec] = field(default_factory=dict)
    menus: dict[str, tuple[MenuEntry, ...]] = field(default_factory=dict)
    topology: TopologySpec = _TOPOLOGY
    reservation: ReservationSpec = _RESERVATION
    search: SearchSpec = _SEARCH
    cost: dict[str, Any] = field(default_factory=dict)  # fields of request.CostModel
    # The name `package.module:function` of a decorated function, or the function itself.
    shard_cost: str | CostFunction | None = None
    costs: str = "torchrec"  # one of COST_MODELS
    pipeline: str = "none"  # what a predicted step hides; one of vocabulary.PIPELINES
    objective: str | ObjectiveFunction | None = None
    source: str = ""  # the file, for messages


def replace(part: P, **changes: Any) -> P:
    """Returns a copy of a spec, or of any part of one, with other values in some fields."""
    if isinstance(part, Struct):
        return msgspec.structs.replace(part, **changes)
    return dataclasses.replace(part, **changes)  # type: ignore[type-var]
