"""Planner parts as frameworks above TorchRec bring them, written from how those behave.

One framework has tables that grow while the job runs ("dynamic" tables). It gives TorchRec's
enumerator a stand-in for each, takes their memory out of the topology before it plans, and replaces
their sharding afterwards. The other lists the options itself, estimates their storage itself, and
proposes plans from dynamic programming over HBM and DDR.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torchrec.distributed.planner import enumerators, shard_estimators
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator
from torchrec.distributed.planner.types import (
    Proposer,
    Shard,
    ShardEstimator,
    ShardingOption,
    Topology,
)
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import CacheParams

ROW_BYTES = 64
LOAD_FACTORS = (0.1, 0.4, 0.7, 1.0)


@dataclass(frozen=True)
class DynamicTables:
    """Which tables are dynamic: every tenth."""

    names: frozenset[str]

    @classmethod
    def of(cls, tables: int) -> "DynamicTables":
        return cls(frozenset(f"table_{i}" for i in range(0, tables, 10)))


class StandInEnumerator(EmbeddingEnumerator):
    """Offers dynamic tables row-wise only, with one tiny shard on each rank."""

    def __init__(self, dynamic: DynamicTables, topology: Topology, *args: Any) -> None:
        super().__init__(topology, *args)
        self._dynamic = dynamic.names

    def enumerate(self, module: Any, sharders: Any) -> list[ShardingOption]:
        options = super().enumerate(module, sharders)
        stand_ins = []
        for option in options:
            option.use_dynamic = option.name in self._dynamic
            if option.use_dynamic:
                ranks = range(self._world_size)
                option.shards = [Shard(size=[1, 1], offset=[rank, 0]) for rank in ranks]
                stand_ins.append(option)
        self.populate_estimates(stand_ins)
        return options

    def _filter_sharding_types(self, name: str, allowed: Any, *more: Any) -> list[str]:
        if name in self._dynamic:
            return ["row_wise"]
        return super()._filter_sharding_types(name, allowed, *more)

    def _filter_compute_kernels(self, name: str, allowed: Any, sharding_type: str) -> list[str]:
        if name in self._dynamic:
            return ["fused"]
        return super()._filter_compute_kernels(name, allowed, sharding_type)


def dynamic_planner(planner_class: type[Any], dynamic: DynamicTables, **arguments: Any) -> Any:
    """A planner that plans dynamic tables around TorchRec's plan."""

    class DynamicPlanner(planner_class):  # type: ignore[misc,valid-type]
        def plan(self, module: Any, sharders: Any) -> Any:
            whole = self._topology
            self._topology = _without(whole, ROW_BYTES * 1_000_000 * len(dynamic.names))
            try:
                plan = super().plan(module, sharders)
            finally:
                self._topology = whole
            for tables in plan.plan.values():
                for name in dynamic.names & tables.keys():
                    tables[name].compute_kernel = "customized_kernel"
            return plan

    return DynamicPlanner(**arguments)


def _without(whole: Topology, used: int) -> Topology:
    device = whole.devices[0].storage
    return Topology(
        world_size=whole.world_size,
        local_world_size=whole.local_world_size,
        compute_device=whole.compute_device,
        hbm_cap=device.hbm - used // whole.world_size,
        ddr_cap=device.ddr,
    )


class ListingEnumerator(EmbeddingEnumerator):
    """Lists the options itself. A dynamic table has an option for each size of its cache."""

    def __init__(self, dynamic: DynamicTables, topology: Topology, *args: Any) -> None:
        batch_size, constraints = args
        estimators = [
            EmbeddingPerfEstimator(topology, constraints),
            OwnStorageEstimator(topology, constraints),
        ]
        super().__init__(topology, batch_size, constraints, estimators)
        self._dynamic = dynamic.names

    def enumerate(self, module: Any, sharders: Any) -> list[ShardingOption]:
        self._sharder_map = {sharder_name(each.module_type): each for each in sharders}
        self._sharder_data_map = build_sharder_data_map(self._sharder_map)
        options: list[ShardingOption] = []
        for path, holder in module.named_modules():
            sharder = self._sharder_map.get(sharder_name(type(holder)))
            if sharder is not None:
                pooled = ShardingOption.module_pooled(holder, path)
                for name, weight in sharder.shardable_parameters(holder).items():
                    options += self._of_table(sharder, (path, holder), pooled, name, weight)
        self.populate_estimates(options)
        return options

    def _of_table(
        self, sharder: Any, holder: tuple[str, Any], pooled: bool, name: str, weight: Any
    ) -> Iterator[ShardingOption]:
        device = self._compute_device
        rule = self._constraints[name]
        for kind in self._filter_sharding_types(name, sharder.sharding_types(device)):
            sizes, offsets = enumerators.calculate_shard_sizes_and_offsets(
                weight, self._world_size, self._local_world_size, kind, rule.min_partition
            )
            kernels = sharder.compute_kernels(kind, device)
            for kernel in self._filter_compute_kernels(name, kernels, kind):
                for cache in self._caches(name, kernel):
                    option = ShardingOption(
                        name=name,
                        tensor=weight,
                        module=holder,
                        input_lengths=rule.pooling_factors,
                        batch_size=self._batch_size,
                        sharding_type=kind,
                        partition_by=enumerators.get_partition_by_type(kind),
                        compute_kernel=kernel,
                        shards=[Shard(*pair) for pair in zip(sizes, offsets, strict=True)],
                        cache_params=cache,
                        is_pooled=pooled,
                    )
                    option.use_dynamic = name in self._dynamic
                    yield option

    def _caches(self, name: str, kernel: str) -> list[CacheParams | None]:
        if name not in self._dynamic or kernel != "fused_uvm_caching":
            return [None]
        return [CacheParams(load_factor=factor) for factor in LOAD_FACTORS]


class OwnStorageEstimator(ShardEstimator):
    """Asks TorchRec's function for each option, and adds the keys of dynamic tables."""

    def __init__(self, topology: Topology, constraints: Any = None) -> None:
        self._topology = topology
        self._constraints = constraints

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None:
        for option in sharding_options:
            lengths = option.input_lengths
            storages = shard_estimators.calculate_shard_storages(
                sharder_data=sharder_data_map[option.module_type_key],
                sharding_type=option.sharding_type,
                tensor=option.tensor,
                compute_device=self._topology.compute_device,
                compute_kernel=option.compute_kernel,
                shard_sizes=[shard.size for shard in option.shards],
                batch_sizes=[option.batch_size] * len(lengths),
                world_size=self._topology.world_size,
                local_world_size=self._topology.local_world_size,
                input_lengths=lengths,
                num_poolings=[1.0] * len(lengths),
                caching_ratio=option.cache_load_factor or 0.2,
                is_pooled=option.is_pooled,
                input_data_type_size=8,
                output_data_type_size=option.tensor.element_size(),
            )
            for shard, storage in zip(option.shards, storages, strict=True):
                if option.use_dynamic:
                    storage.hbm += 20 * shard.size[0]
                shard.storage = storage


class TwoMemoriesProposer(Proposer):
    """Least total cost for each amount of HBM, within the DDR: a knapsack with two weights.

    After the first proposal, whose feedback has the topology, it ignores feedback.
    """

    def __init__(self, hbm_bins_per_rank: int = 100, ddr_bins_per_rank: int = 5) -> None:
        self._bins_per_rank = hbm_bins_per_rank, ddr_bins_per_rank
        self._tables: list[list[ShardingOption]] = []
        self._plans: Iterator[list[int]] | None = None
        self._next: list[int] | None = None

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        tables: dict[str, list[ShardingOption]] = {}
        for option in search_space:
            tables.setdefault(option.fqn, []).append(option)
        self._tables = list(tables.values())
        self._plans = None
        self._next = [
            min(range(len(options)), key=lambda i, of=options: of[i].total_storage.hbm)
            for options in self._tables
        ]

    def propose(self) -> list[ShardingOption] | None:
        if self._next is None:
            return None
        return [options[i] for options, i in zip(self._tables, self._next, strict=True)]

    def feedback(
        self,
        partitionable: bool,
        plan: Any = None,
        perf_rating: Any = None,
        storage_constraint: Any = None,
    ) -> None:
        if self._plans is None:
            self._plans = self._solved(storage_constraint)
        self._next = next(self._plans, None)

    def _solved(self, topology: Topology) -> Iterator[list[int]]:
        capacity = [
            sum(device.storage.hbm for device in topology.devices),
            sum(device.storage.ddr for device in topology.devices),
        ]
        bins = [count * len(topology.devices) for count in self._bins_per_rank]
        weights, costs = [], []
        for options in self._tables:
            weights.append([])
            costs.append([option.total_perf for option in options])
            for option in options:
                storage = option.total_storage
                pairs = zip((storage.hbm, storage.ddr), bins, capacity, strict=True)
                weights[-1].append([amount * count // total for amount, count, total in pairs])
        best = np.full(bins, np.inf)
        best[0, 0] = 0.0
        chosen = np.full((len(costs), *bins), -1, np.int16)
        for table, (sizes, prices) in enumerate(zip(weights, costs, strict=True)):
            reached = np.full(bins, np.inf)
            for number, ((hbm, ddr), price) in enumerate(zip(sizes, prices, strict=True)):
                if hbm < bins[0] and ddr < bins[1]:
                    offered = best[: bins[0] - hbm, : bins[1] - ddr] + price
                    held = reached[hbm:, ddr:]
                    better = offered < held
                    held[better] = offered[better]
                    chosen[table, hbm:, ddr:][better] = number
            best = reached
        cheapest = best.argmin(axis=1)
        for hbm in reversed(range(bins[0])):
            if np.isfinite(best[hbm, cheapest[hbm]]):
                yield _walked_back(chosen, weights, hbm, int(cheapest[hbm]))


def _walked_back(chosen: Any, weights: Any, hbm: int, ddr: int) -> list[int]:
    plan = []
    for table in reversed(range(len(weights))):
        number = int(chosen[table, hbm, ddr])
        plan.append(number)
        hbm, ddr = hbm - weights[table][number][0], ddr - weights[table][number][1]
    return plan[::-1]
