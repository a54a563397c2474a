"""What `reuse --mixed` draws besides: custom parts, callbacks, copies, replaced functions."""

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import PerfModel, ShardingOption, Topology

from . import extenders, meddlers
from .changes import Side
from .custom import (
    CopyingProposer,
    DelegatingEnumerator,
    DuckProposer,
    HostMemoryReservation,
    LastRankReservation,
    ListeningProposer,
    NarrowSharder,
    PaddedStorageEstimator,
    RecordingStats,
    ReversingPartitioner,
    RoundRobinPartitioner,
    RowCountEstimator,
    TotalPerfModel,
)
from .draw import Draw
from .replaced import Place, bound, called_functions, changed, tripled
from .small import small, small_constraints, small_model, small_topology
from .subject import TorchRecPlanner


class LeastMemory(PerfModel):
    """Rates a plan by the memory of its fullest shard, with many ties."""

    def rate(self, plan: list[ShardingOption]) -> float:
        return float(max(shard.storage.hbm >> 16 for o in plan for shard in o.shards))


class RenamedPartitioner(MemoryBalancedPartitioner):
    """TorchRec's partitioner under another name."""


class ImpatientProposer(GreedyProposer):
    """Gives up after a few proposals."""

    def load(self, *args: Any, **kwargs: Any) -> None:
        self._left = 12
        super().load(*args, **kwargs)

    def propose(self) -> Any:
        self._left -= 1
        return super().propose() if self._left >= 0 else None


def reverse(options: list[ShardingOption]) -> list[ShardingOption]:
    return options[::-1]


def drop_last(options: list[ShardingOption]) -> list[ShardingOption]:
    return options[:-1] or options


def move_single_shards(options: list[ShardingOption]) -> list[ShardingOption]:
    for option in options:
        if option.num_shards == 1:
            option.shards[0].rank = 1
    return options


def copied(options: list[ShardingOption]) -> list[ShardingOption]:
    return copy.deepcopy(options)


PROPOSERS: list[Callable[[Draw], Any]] = [
    lambda draw: ListeningProposer(),
    lambda draw: DuckProposer(),
    lambda draw: CopyingProposer(),
    lambda draw: ImpatientProposer(),
    lambda draw: extenders.Choosing(draw.randint(0, 99), plans=12),
    lambda draw: extenders.Editing(draw.randint(0, 99), plans=12),
    lambda draw: draw.pick(
        [meddlers.Sorter, meddlers.Reverser, meddlers.Remover, meddlers.Tagger]
    )(),
    lambda draw: draw.pick([meddlers.Penaliser, meddlers.LatePenaliser, meddlers.CacheTuner])(),
]


def put_enumerator(planner: Any, draw: Draw) -> None:
    enumerator = planner._enumerator
    if type(enumerator) is not EmbeddingEnumerator:
        return
    if draw.chance(0.8):
        enumerator.__class__ = draw.pick(extenders.ENUMERATORS)
        return
    topology, rules = planner._topology, planner._constraints
    planner._enumerator = DelegatingEnumerator(topology, enumerator._batch_size, rules)


def put_estimators(planner: Any, draw: Draw) -> None:
    estimators = getattr(planner._enumerator, "_estimators", None)
    if estimators is None:
        return
    for i, estimator in enumerate(estimators):
        if type(estimator) is EmbeddingStorageEstimator:
            kinds = [extenders.AddingStorage, extenders.SplittingStorage, PaddedStorageEstimator]
            estimator.__class__ = draw.pick(kinds)
        elif draw.chance(0.3):
            estimators[i] = RowCountEstimator(planner._topology)


def put_proposers(planner: Any, draw: Draw) -> None:
    stock = [UniformProposer(), GreedyProposer(use_depth=draw.chance(0.5)), *planner._proposers]
    made = [draw.pick(PROPOSERS)(draw) for _ in range(draw.randint(1, 2))]
    made += draw.sample(stock, draw.randint(0, 2))
    planner._proposers = draw.sample(made, len(made))


def put_partitioner(planner: Any, draw: Draw) -> None:
    planner._partitioner = draw.pick(
        [
            lambda: RoundRobinPartitioner(),
            lambda: ReversingPartitioner(),
            lambda: RenamedPartitioner(max_search_count=3),
            lambda: GreedyPerfPartitioner(sort_by=SortBy.PERF, balance_modules=True),
            lambda: MemoryBalancedPartitioner(max_search_count=4, tolerance=0.3),
        ]
    )()


def put_perf_model(planner: Any, draw: Draw) -> None:
    kind = draw.pick([TotalPerfModel, LeastMemory, NoopPerfModel])
    planner._perf_model = kind(planner._topology) if kind is NoopPerfModel else kind()


def put_reservation(planner: Any, draw: Draw) -> None:
    made = [lambda: HostMemoryReservation(0.05), lambda: LastRankReservation()]
    planner._storage_reservation = draw.pick(made)()


def put_callbacks(planner: Any, draw: Draw) -> None:
    planner._callbacks = draw.subset([reverse, drop_last, move_single_shards, copied])


def put_stats(planner: Any, draw: Draw) -> None:
    planner._stats = [*planner._stats, RecordingStats()]


PUTS: list[tuple[float, Callable[[Any, Draw], None]]] = [
    (0.35, put_enumerator),
    (0.25, put_estimators),
    (0.35, put_proposers),
    (0.25, put_partitioner),
    (0.25, put_perf_model),
    (0.15, put_reservation),
    (0.2, put_callbacks),
    (0.2, put_stats),
]


def put_parts(side: Side, draw: Draw) -> None:
    """Exchanges some parts of both planners, which are made already."""
    for planner in side.planners:
        for chance, put in PUTS:
            if draw.chance(chance):
                put(planner, draw)
    if draw.chance(0.15):
        for sharder in side.sharders:
            if type(sharder) is NarrowSharder.__mro__[1]:
                sharder.__class__ = NarrowSharder


def exchange_a_part(side: Side, draw: Draw) -> None:
    draw.pick(PUTS)[1](side.planner, draw)


def copy_the_planner(side: Side, draw: Draw) -> None:
    side.planners[0] = copy.deepcopy(side.planner)


def pickle_the_planner(side: Side, draw: Draw) -> None:
    try:
        side.planners[0] = pickle.loads(pickle.dumps(side.planner))
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # classes and functions that tests made


def change_the_ranks(side: Side, draw: Draw) -> None:
    """The planner gets another cluster, and its parts stay those of the old one."""
    before = side.planner._topology
    ranks = draw.pick([1, 2, 3, 4, 6])
    side.planner._topology = Topology(
        world_size=ranks,
        local_world_size=draw.pick([1, 2, ranks]),
        compute_device=before.compute_device,
        hbm_cap=max(before.devices[0].storage.hbm, 1),
        ddr_cap=max(before.devices[0].storage.ddr, 1),
    )


def repeat_a_proposer(side: Side, draw: Draw) -> None:
    """The same object twice in the list. TorchRec's scale-up proposer would never end."""
    planner = side.planner
    kind = EmbeddingOffloadScaleupProposer
    if once := [each for each in planner._proposers if not isinstance(each, kind)]:
        planner._proposers = [*planner._proposers, draw.pick(once)]


MORE_CHANGES: list[Callable[[Side, Draw], None]] = [
    exchange_a_part,
    exchange_a_part,
    copy_the_planner,
    pickle_the_planner,
    change_the_ranks,
    repeat_a_proposer,
]


@cache
def functions() -> list[Place]:
    """Every function that TorchRec's planner calls for a small model."""
    arguments = {
        "topology": small_topology(2),
        "constraints": small_constraints(2, compute_kernels=["fused", "fused_uvm_caching"]),
    }

    def plan() -> None:
        built = small(small_model(2), **arguments)
        TorchRecPlanner(**built.planner_kwargs).plan(built.module, built.sharders)

    own = "planners.EmbeddingShardingPlanner.plan"  # each planner's own
    return [place for place in called_functions(plan) if not place.title.endswith(own)]


@contextmanager
def replaced_function(draw: Draw, chance: float) -> Iterator[str]:
    """Sometimes makes one of TorchRec's functions return something else; yields its name."""
    place = draw.pick(functions()) if draw.chance(chance) else None
    with nullcontext() if place is None else bound(place, changed(place, tripled)):
        yield place.title if place else ""
