"""Planner parts as users write them: subclasses of TorchRec's, and parts of their own."""

import copy
from typing import Any

from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    forward_compute,
)
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import (
    Enumerator,
    Partitioner,
    Perf,
    PerfModel,
    PlannerError,
    PlannerErrorType,
    Proposer,
    ShardEstimator,
    ShardingOption,
    Stats,
    Storage,
    StorageReservation,
    Topology,
)

from .compare import (
    ADDRESS,
    options_record,
    plain,
    plan_record,
)
from .small import (
    MIB,
)


class TaggingEnumerator(EmbeddingEnumerator):
    """Hangs an attribute on every option and drops one sharding type."""

    def enumerate(self, module: nn.Module, sharders: list[Any]) -> list[ShardingOption]:
        options = super().enumerate(module, sharders)
        for i, option in enumerate(options):
            option.tag = f"option {i}"
        return [option for option in options if option.sharding_type != "row_wise"]


class DelegatingEnumerator(Enumerator):
    """Shares nothing with TorchRec's enumerator but the interface."""

    def __init__(self, topology: Topology, batch_size: int = 512, constraints=None, estimator=None):
        self._inner = EmbeddingEnumerator(topology, batch_size, constraints, estimator)

    def enumerate(self, module: nn.Module, sharders: list[Any]) -> list[ShardingOption]:
        return list(reversed(self._inner.enumerate(module, sharders)))

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        self._inner.populate_estimates(sharding_options)


class PaddedStorageEstimator(EmbeddingStorageEstimator):
    """Adds a megabyte to every shard."""

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None:
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            for shard in option.shards:
                shard.storage += Storage(hbm=MIB, ddr=0)


class RowCountEstimator(ShardEstimator):
    """Costs proportional to the rows of a shard, from nothing of TorchRec's."""

    def __init__(self, topology: Topology, constraints: Any = None) -> None:
        self._topology = topology

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None:
        for option in sharding_options:
            for i, shard in enumerate(option.shards):
                rows, columns = shard.size
                shard.perf = Perf(rows / 1e4, i / 7, columns / 3e3, 0.1)


class OwnFormulaConfig(EmbeddingPerfEstimatorConfig):
    """Replaces the forward formula of one sharding type."""

    @forward_compute(sharding_type="table_wise")
    def forward(self, context: Any) -> float:
        return context.hash_size * 1e-6 + context.emb_dim * 1e-4


class PenalisingConfig(EmbeddingPerfEstimatorConfig):
    """Changes the estimates of a whole option after the fact."""

    def post_process_perfs(
        self,
        shard_perfs: list[Perf],
        shard_sizes: list[list[int]],
        sharding_type: str,
        uneven_sharding_perf_multiplier: float = 1.0,
    ) -> list[Perf]:
        for perf in shard_perfs:
            perf.fwd_comms *= 1.0 + 1.0 / len(shard_perfs)
        return shard_perfs


class ListeningProposer(GreedyProposer):
    """Greedy with an ear: keeps every feedback, and stops after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        ranks = [shard.rank for option in plan for shard in option.shards]
        kinds = [(option.name, option.sharding_type, option.compute_kernel) for option in plan]
        capacity = [device.storage.hbm for device in storage_constraint.devices]
        self.heard.append(plain([partitionable, perf_rating, ranks, kinds, capacity]))
        super().feedback(partitionable, plan, perf_rating, storage_constraint)
        if len(self.heard) == 25:
            self._current_proposal = {}


class DuckProposer:
    """Only the methods of a proposer: the first option of every table, then the last."""

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        by_name: dict[str, list[ShardingOption]] = {}
        for option in search_space:
            by_name.setdefault(option.fqn, []).append(option)
        self._proposals = [[options[i] for options in by_name.values()] for i in (0, -1)]

    def propose(self) -> list[ShardingOption] | None:
        return self._proposals[0] if self._proposals else None

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        self._proposals.pop(0)


class CopyingProposer(Proposer):
    """Proposes options that are in no search space: changed copies."""

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        options = {option.fqn: option for option in search_space if option.num_shards == 1}
        self._proposal: list[ShardingOption] | None = copy.deepcopy(list(options.values()))
        for option in self._proposal:
            option.shards[0].perf.fwd_compute *= 0.5

    def propose(self) -> list[ShardingOption] | None:
        return self._proposal

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        self._proposal = None


class RoundRobinPartitioner(Partitioner):
    """Deals shards out in turn and refuses proposals with many shards."""

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        shards = [shard for option in proposal for shard in option.shards]
        if len(shards) > 12:
            raise PlannerError("too many shards", PlannerErrorType.PARTITION)
        for i, shard in enumerate(shards):
            shard.rank = i % storage_constraint.world_size
        return proposal


class ReversingPartitioner(GreedyPerfPartitioner):
    """TorchRec's partitioner given the tables in another order."""

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology, hbm_per_device=None
    ) -> list[ShardingOption]:
        super().partition(proposal[::-1], storage_constraint, hbm_per_device)
        return proposal


class TotalPerfModel(PerfModel):
    """Rates a plan by the sum over all ranks."""

    def rate(self, plan: list[ShardingOption]) -> float:
        return sum(shard.perf.total for option in plan for shard in option.shards)


class HostMemoryReservation(FixedPercentageStorageReservation):
    """Reserves DDR as well."""

    def reserve(self, topology: Topology, *args: Any, **kwargs: Any) -> Topology:
        reserved = super().reserve(topology, *args, **kwargs)
        for device in reserved.devices:
            device.storage.ddr //= 2
        return reserved


class LastRankReservation(StorageReservation):
    """Keeps the last rank free, and has none of the stock reservations' attributes."""

    def __init__(self) -> None:
        self._reserved: Topology | None = None

    def reserve(self, topology: Topology, *args: Any, **kwargs: Any) -> Topology:
        self._reserved = copy.deepcopy(topology)
        self._reserved.devices[-1].storage = Storage(hbm=0, ddr=0)
        return self._reserved

    @property
    def last_reserved_topology(self) -> Topology | None:
        return self._reserved


class NarrowSharder(EmbeddingBagCollectionSharder):
    """Allows two sharding types, one of them twice."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return ["column_wise", "table_wise", "column_wise"]


class FailingSharder(EmbeddingBagCollectionSharder):
    def shardable_parameters(self, module: nn.Module) -> dict[str, nn.Parameter]:
        raise LookupError("no parameters today")


class RecordingStats(Stats):
    """Writes down what it is told, except the time."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def log(self, **told: Any) -> None:
        told["run_time"] = type(told["run_time"]).__name__
        told["sharding_plan"] = plan_record(told["sharding_plan"])
        told["best_plan"] = options_record(told["best_plan"])
        told["topology"] = ADDRESS.sub("address", repr(told["topology"]))
        enumerator = told["enumerator"]
        told["enumerator"] = type(enumerator).__name__
        told["search_space"] = options_record(enumerator.last_stored_search_space)
        told["storage_reservation"] = type(told["storage_reservation"]).__name__
        told["sharders"] = [type(sharder).__name__ for sharder in told["sharders"]]
        self.told.append(plain(told))
