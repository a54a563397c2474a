"""Proposers that write to the search space they are shown, as users write them."""

from typing import Any

from torchrec.distributed.planner.types import Proposer, ShardingOption


def by_table(options: list[ShardingOption]) -> list[list[ShardingOption]]:
    tables: dict[str, list[ShardingOption]] = {}
    for option in options:
        tables.setdefault(option.fqn, []).append(option)
    return list(tables.values())


class Meddler(Proposer):
    """Changes what it is shown, then proposes a few plans."""

    count = 1

    def meddle(self, search_space: list[ShardingOption]) -> None:
        raise NotImplementedError

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        self.meddle(search_space)
        tables = by_table(search_space)
        self._waiting = [[t[i % len(t)] for t in tables] for i in range(self.count)]

    def propose(self) -> list[ShardingOption] | None:
        return self._waiting[0] if self._waiting else None

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        self._waiting.pop(0)


class Sorter(Meddler):
    def meddle(self, search_space: list[ShardingOption]) -> None:
        search_space.sort(key=lambda option: -option.total_storage.hbm)


class Reverser(Meddler):
    def meddle(self, search_space: list[ShardingOption]) -> None:
        search_space.reverse()


class Remover(Meddler):
    def meddle(self, search_space: list[ShardingOption]) -> None:
        search_space[:] = [o for o in search_space if o.sharding_type != "table_wise"]


class Penaliser(Meddler):
    """Makes some sharding types dear."""

    count = 6

    def meddle(self, search_space: list[ShardingOption]) -> None:
        for option in search_space:
            if option.sharding_type in ("table_wise", "column_wise"):
                for shard in option.shards:
                    shard.perf.fwd_compute += 100.0


class Tagger(Meddler):
    def meddle(self, search_space: list[ShardingOption]) -> None:
        for i, option in enumerate(search_space):
            option.tag = i


class LatePenaliser(Tagger):
    """Makes options dear, and larger, only after the others have read the search space."""

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        self._shown = search_space
        super().load(search_space, enumerator)

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        super().feedback(partitionable, plan, perf_rating, storage_constraint)
        for i, option in enumerate(self._shown):
            for shard in option.shards:
                shard.perf.fwd_compute += i % 5
                shard.storage.hbm += (i % 7) * 1000


class CacheTuner(Meddler):
    """Tries several cache sizes on the options of the search space themselves."""

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        self._enumerator, self._step = enumerator, 0
        cached = [o for o in search_space if o.compute_kernel == "fused_uvm_caching"]
        self._proposal = [table[0] for table in by_table(cached)]

    def propose(self) -> list[ShardingOption] | None:
        if self._step > 4:
            return None
        for option in self._proposal:
            option.cache_params.load_factor = 0.1 + 0.15 * self._step
        self._enumerator.populate_estimates(self._proposal)
        return self._proposal

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        self._step += 1
