"""The native core: problems, and pure functions over them. What cpp/python/ reads and writes.

Arrays that go in must have the dtype named here, be contiguous and aligned: they are read in place.
A TypeError names what is missing or of the wrong kind. Functions release the GIL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

_Bytes: TypeAlias = NDArray[np.uint8]
_Ints32: TypeAlias = NDArray[np.int32]
_Ints: TypeAlias = NDArray[np.int64]
_Keys: TypeAlias = NDArray[np.uint64]
_Floats: TypeAlias = NDArray[np.float64]
_Shards = TypeVar("_Shards", bound=list[Any])

class OutOfRange(ArithmeticError):
    """An exact answer would need more than the core's arithmetic has."""

class CustomFailed(Exception):
    """A custom cost or objective failed; the first argument is a dict of what it was given."""

SHARD_DTYPE: np.dtype[np.void]
COST_DTYPE: np.dtype[np.void]
RANK_DTYPE: np.dtype[np.void]

class ShardColumns(TypedDict):
    """The estimates of shards."""

    run_fwd_compute: _Floats
    run_fwd_comms: _Floats
    run_bwd_compute: _Floats
    run_bwd_comms: _Floats
    run_input_dist_comms: _Floats
    run_prefetch_compute: _Floats
    run_hbm: _Ints
    run_ddr: _Ints
    run_ssd: _Ints

class SpaceColumns(ShardColumns):
    """Options and their shards: the result of estimate() and the input of a Problem."""

    table_option_begin: _Ints
    option_type: _Bytes
    option_kernel: _Bytes
    option_key: _Keys
    option_run_begin: _Ints
    run_count: _Ints
    run_rows: _Ints
    run_cols: _Ints

class ProblemColumns(SpaceColumns):
    """A search space, what binds its tables together, and the cluster."""

    table_module: _Ints32
    table_group: _Ints32
    rank_hbm: _Ints
    rank_ddr: _Ints
    rank_ssd: _Ints
    local_world_size: int
    group_size: int
    compensated_sum: bool

class PlanColumns(TypedDict):
    """Options by plan position, and the ranks of the shards that are not uniform."""

    options: _Ints32
    ranks: _Ints32

class PartitionerSettings(TypedDict):
    memory_balanced: bool
    sort_by_perf: bool
    balance_modules: bool
    max_search_count: int
    tolerance: float

class ProposerSettings(TypedDict):
    kind: int
    use_depth: bool
    threshold: int
    best_rating: float
    inferior: int
    max_proposals: int
    bins_per_device: int
    exhausted: bool

class SearchSettings(TypedDict):
    partitioner: PartitionerSettings
    proposers: list[ProposerSettings]
    exhaustive: bool
    timeout_seconds: float
    objective: int  # the address of a compiled function; 0 is none
    goal: GoalColumns | None  # what plans are compared by in place of the rating
    goal_per_rating: float  # no plan's goal is less than this times its rating; 0 is unknown

class ProposerReport(TypedDict):
    proposals: int
    repeats: int
    plans: int
    timed_out: bool
    best_rating: float
    state_best_rating: float
    state_inferior: int

class ChosenProposal(TypedDict):
    options: _Ints32
    proposer: int

class SearchResult(TypedDict):
    found: bool
    exhaustive: bool
    rating: float
    best: ChosenProposal
    ranks: _Ints32
    reports: list[ProposerReport]
    evaluated: int
    lowest: ChosenProposal
    last: ChosenProposal

class Proposals(TypedDict):
    size: int
    table_order: _Ints32
    options: _Ints32  # a row per proposal

class OptimizeLimits(TypedDict):
    seconds: float
    moves: int
    seed: int
    threads: int

class CertificateColumns(TypedDict):
    """A certificate's slabs by column."""

    value: float
    threshold: float
    low: list[float]
    high: list[float]
    memory: list[list[float]]  # of three
    uniform: list[float]
    reward: list[_Floats | None]

class BoundSettings(TypedDict):
    upper: float
    evaluations: int
    knapsacks: int

class BoundResult(CertificateColumns):
    most: float

class OptimizeResult(TypedDict):
    found: bool
    rating: float
    options: _Ints32
    ranks: _Ints32
    stopped_by: int
    moves: int
    restarts: int
    trace: list[tuple[float, float]]
    certificate: CertificateColumns

class GoalColumns(TypedDict):
    channels: int
    channel_ranks: _Ints32
    run_part_begin: _Ints
    part_channel: _Ints32
    part_amount: _Ints
    option_amount: _Ints
    run_charge_begin: _Ints
    run_charges: _Ints32
    charge_part_begin: _Ints
    charge_part_channel: _Ints32
    charge_part_amount: _Ints

class RefineResult(TypedDict):
    rating: float
    options: _Ints32
    ranks: _Ints32
    value: int
    value_before: int
    stopped_by: int
    moves: int

class TallyResult(TypedDict):
    """What a plan comes to. `sums` and `charges` go by channel, then by rank."""

    value: int
    sums: _Ints
    charges: _Ints

class HeldColumns(TypedDict):
    table_held_begin: _Ints
    table_held_type: _Bytes
    table_held_kernel: _Bytes
    held_row: _Ints
    held_column: _Ints
    held_rows: _Ints
    held_columns: _Ints
    held_rank: _Ints
    table_rows: _Ints
    table_dim: _Ints
    table_element_size: _Ints
    table_state: _Floats

class ReplanSettings(TypedDict):
    lower_bytes: bool
    target: float
    budgets: list[float]
    moves: int
    seed: int
    seconds: float
    reached_options: _Ints32
    reached_ranks: _Ints32

class ReplanPoint(TypedDict):
    found: bool
    rating: float
    options: _Ints32
    ranks: _Ints32
    moved: int

class ReplanResult(TypedDict):
    points: list[ReplanPoint]
    start: ReplanPoint
    mean: float
    least: int
    held: int
    moves: int
    stopped_by: int

class Problem:
    """A problem, read and checked once. It never changes, so threads may share it."""

    def __init__(self, columns: ProblemColumns) -> None: ...

# fastplan.engine.solve.request_columns() returns the columns of a request.
def estimate(columns: Mapping[str, object]) -> SpaceColumns: ...
def lookup_times(
    constants: NDArray[np.float64], lookups: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def exchange_times(
    constants: NDArray[np.float64], exchanges: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]: ...
def hardware_latencies(
    columns: Mapping[str, Any],
) -> tuple[list[tuple[float, float, float]], list[list[tuple[float, ...]]]]: ...
def estimate_shards(columns: Mapping[str, object], given: Mapping[str, object]) -> ShardColumns: ...
def solve(problem: Problem, settings: SearchSettings) -> SearchResult: ...
def count_plans(problem: Problem, settings: SearchSettings) -> tuple[list[int], int]: ...
def better_proposal(problem: Problem, settings: SearchSettings, limit: float) -> float | None: ...
def propose(problem: Problem, proposer: ProposerSettings, begin: int, end: int) -> Proposals: ...
def verify(
    problem: Problem, options: _Ints32, ranks: _Ints32, rating: float, objective: int = 0
) -> str: ...
def rate(problem: Problem, plan: PlanColumns) -> float: ...
def lower_bound(problem: Problem, settings: BoundSettings) -> BoundResult: ...
def optimize(problem: Problem, settings: OptimizeLimits, start: PlanColumns) -> OptimizeResult: ...
def refine(
    problem: Problem, settings: OptimizeLimits, start: PlanColumns, limit: float, goal: GoalColumns
) -> RefineResult: ...
def tally(problem: Problem, plan: PlanColumns, goal: GoalColumns) -> TallyResult: ...
def moved_bytes(problem: Problem, held: HeldColumns, plan: PlanColumns) -> int: ...
def replan(problem: Problem, held: HeldColumns, settings: ReplanSettings) -> ReplanResult: ...

class Placer:
    """Places and rates single proposals, with its own buffers. Holds the GIL."""

    def __init__(
        self, problem: Problem, partitioner: PartitionerSettings, objective: int = 0
    ) -> None: ...
    def place(self, options: list[int]) -> tuple[list[int], float] | None: ...
    def partial_ranks(self) -> list[int]: ...
    def ranks_before_failure(self) -> list[int]: ...

class ObjectWatch:
    """Remembers what objects consist of, by fields (name, how to follow it, inner fields)."""

    def __init__(self, objects: Sequence[object], fields: Sequence[object]) -> None: ...
    def numbers(self, objects: Iterable[object]) -> list[int] | None: ...
    def remember(self, numbers: list[int]) -> None: ...
    def changed(self, numbers: list[int]) -> list[int]: ...
    def assign(
        self, objects: list[Any], values: Sequence[int | None] | None, counted: list[bool]
    ) -> None: ...

_Record = tuple[str, type, tuple[str, ...]]

def read_parts(
    objects: Sequence[object],
    *,
    list: str,
    type: type,
    sizes: str,
    ints: _Record,
    floats: _Record,
) -> tuple[_Ints, _Ints, list[_Ints], list[_Floats]] | None: ...
def number_columns(
    rows: tuple[tuple[Any, ...], ...], fields: list[int], dtypes: list[Any]
) -> list[NDArray[Any] | None]: ...
def rebound(owners: list[Any], values: list[tuple[Any, ...]]) -> list[int]: ...
def are_unchanged(functions: list[Any], codes: list[Any], defaults: list[Any]) -> bool: ...
def canonical_json(document: object, *, spell: bool) -> bytes | None: ...
def columns_of(rows: tuple[tuple[Any, ...], ...]) -> list[list[Any]]: ...
def shard_lists(
    shards: _Ints,
    begin: _Ints,
    *,
    list_type: type[_Shards],
    shard_type: type,
    placement_type: type,
    placement: Callable[[int], object],
) -> list[_Shards]: ...

class IdStream:
    """A stream of ids, followed with bounded memory."""

    def __init__(self, limit: int) -> None: ...
    def add(self, ids: _Ints) -> None: ...
    def columns(self) -> dict[str, NDArray[Any]]: ...
    def restore(self, columns: dict[str, NDArray[Any]]) -> None: ...
    @property
    def limit(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def ids(self) -> int: ...

def id_hashes(ids: _Ints) -> _Keys: ...
def bin_edges() -> _Keys: ...
