"""Enumerators, estimators and proposers that extend TorchRec's, as frameworks write them."""

import copy
import random
from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import Perf, Proposer, Shard, ShardingOption, Storage
from torchrec.distributed.types import CacheParams

from .meddlers import by_table

KIB = 1024


class Extending(EmbeddingEnumerator):
    """Edits TorchRec's options; a subclass says how."""

    def enumerate(self, module: Any, sharders: Any) -> list[ShardingOption]:
        options = self.edited(super().enumerate(module, sharders))
        self.returned = options
        return options

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        raise NotImplementedError


class Annotating(Extending):
    """Hangs values on options and shards, some of them shared and mutable."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        shared = {"hits": 0}
        for i, option in enumerate(options):
            option.use_dynamic, option.extra, option.shared = i % 3 == 0, [i], shared
            for shard in option.shards:
                shard.note = f"{i}"
        return options


class Filtering(Extending):
    """Drops options at random, but the first of each table."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        draw = random.Random(5)
        kept = []
        for table in by_table(options):
            kept += [table[0], *(o for o in table[1:] if draw.random() < 0.6)]
        return kept


class Reordering(Extending):
    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        return [option for table in by_table(options)[::-1] for option in table[::-1]]


class Interleaving(Extending):
    """The options of a table are not next to each other."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        return sorted(options, key=lambda option: option.total_perf)


class Adding(Extending):
    """Adds options with other caches and kernels, estimated by TorchRec's estimators."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        grown = []
        for table in by_table(options):
            grown += table
            for factor in (0.15, 0.55):
                added = copy.deepcopy(table[-1])
                added.cache_params = CacheParams(load_factor=factor)
                if added.sharding_type != "data_parallel":
                    added.compute_kernel = "fused_uvm_caching"
                added.is_added = True
                self.populate_estimates([added])
                grown.append(added)
        return grown


class Recutting(Extending):
    """Gives some options other shards: stand-ins, or rows dealt out otherwise."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        draw = random.Random(11)
        changed = []
        for option in options:
            if option.sharding_type == "row_wise":
                ranks = range(self._world_size)
                option.shards = [Shard(size=[1, 1], offset=[rank, 0]) for rank in ranks]
            elif option.num_shards > 1 and option.sharding_type != "data_parallel":
                for shard in option.shards:
                    shard.size = [draw.randint(0, 2 * shard.size[0]), shard.size[1]]
            else:
                continue
            changed.append(option)
        self.populate_estimates(changed)
        return options


class Pricing(Extending):
    """Changes the estimates in place and by new objects."""

    def edited(self, options: list[ShardingOption]) -> list[ShardingOption]:
        for option in options:
            for i, shard in enumerate(option.shards):
                shard.perf.fwd_compute *= 1.25
                if i % 2:
                    shard.storage = Storage(*[2 * n for n in vars(shard.storage).values()])
        return options


class FilteringByName(EmbeddingEnumerator):
    """Decides types and kernels by the table's name, and counts the questions."""

    asked = 0

    def _filter_sharding_types(self, name: str, allowed: Any, *more: Any) -> list[str]:
        self.asked += 1
        found = super()._filter_sharding_types(name, allowed, *more)
        return found[:2] if self.asked % 3 == 0 else found

    def _filter_compute_kernels(self, name: str, allowed: Any, kind: str) -> list[str]:
        self.asked += 1
        found = super()._filter_compute_kernels(name, allowed, kind)
        return found[-1:] if len(name) % 2 else found


class Estimating(EmbeddingEnumerator):
    """Adds to what the estimators say."""

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        super().populate_estimates(sharding_options)
        for option in sharding_options:
            for shard in option.shards:
                shard.storage += Storage(hbm=3 * KIB, ddr=KIB)


class Asking(EmbeddingEnumerator):
    """Enumerates twice, and keeps what it finds out about itself."""

    def enumerate(self, module: Any, sharders: Any) -> list[ShardingOption]:
        super().enumerate(module, sharders)
        self.seen = self.__class__.__name__, isinstance(self, Asking), list(vars(self))
        self.me = self
        return super().enumerate(module, list(sharders))


class AddingStorage(EmbeddingStorageEstimator):
    def estimate(self, sharding_options: list[ShardingOption], *args: Any, **kwargs: Any) -> None:
        super().estimate(sharding_options, *args, **kwargs)
        for option in sharding_options:
            for shard in option.shards:
                shard.storage += Storage(hbm=shard.size[0], ddr=7)


class SplittingStorage(EmbeddingStorageEstimator):
    """Leaves some options to TorchRec, and estimates the others itself."""

    def estimate(self, sharding_options: list[ShardingOption], *args: Any, **kwargs: Any) -> None:
        own = [option for option in sharding_options if option.sharding_type == "row_wise"]
        rest = [option for option in sharding_options if option.sharding_type != "row_wise"]
        super().estimate(rest, *args, **kwargs)
        for option in own:
            for shard in option.shards:
                shard.storage = Storage(hbm=4 * shard.size[0] * shard.size[1], ddr=0)


class PenalisingPerf(EmbeddingPerfEstimator):
    def estimate(self, sharding_options: list[ShardingOption], *args: Any, **kwargs: Any) -> None:
        super().estimate(sharding_options, *args, **kwargs)
        for option in sharding_options:
            for shard in option.shards:
                values = vars(shard.perf) | {"bwd_comms": shard.perf.bwd_comms + 0.01}
                shard.perf = Perf(**values)


class Choosing(Proposer):
    """Proposes random choices, and ignores feedback but for what it keeps of it."""

    def __init__(self, seed: int = 0, plans: int = 40) -> None:
        self._draw, self._left = random.Random(seed), plans
        self.heard: list[Any] = []
        self.kept: list[Any] = []

    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        self._tables = by_table(search_space)
        self._chosen = self._choice()

    def propose(self) -> list[ShardingOption] | None:
        return self._chosen

    def feedback(self, partitionable: bool, plan=None, perf_rating=None, storage_constraint=None):
        ranks = [[shard.rank for shard in option.shards] for option in plan]
        rating = None if perf_rating is None else float(perf_rating).hex()
        self.heard.append((partitionable, rating, ranks))
        self.kept.append(plan)
        self.edit(plan)
        self._left -= 1
        self._chosen = self._choice() if self._left > 0 else None

    def edit(self, plan: list[ShardingOption]) -> None:
        """Changes nothing."""

    def _choice(self) -> list[ShardingOption]:
        if self.kept and self._draw.random() < 0.2:
            return self._draw.choice(self.kept)
        return [self._draw.choice(table) for table in self._tables]


class Editing(Choosing):
    """Changes options that it has proposed, in all ways: objects, values, lists, attributes."""

    def edit(self, plan: list[ShardingOption]) -> None:
        option = self._draw.choice(plan)
        shard = self._draw.choice(option.shards)
        way = self._draw.randrange(7)
        if way == 0:
            shard.perf.fwd_compute += 0.125
        elif way == 1:
            shard.storage = Storage(hbm=shard.storage.hbm + 8, ddr=shard.storage.ddr)
        elif way == 2:
            option.tag = len(self.heard)
        elif way == 3:
            option.shards = list(option.shards)
        elif way == 4:
            shard.perf = copy.copy(shard.perf)
        elif way == 5:
            option.input_lengths.append(1.0)
        else:
            shard.offset[0] += 1


ENUMERATORS = (
    Annotating,
    Filtering,
    Reordering,
    Interleaving,
    Adding,
    Recutting,
    Pricing,
    FilteringByName,
    Estimating,
    Asking,
)
