"""Modules with embedding tables, and sharders that cache their results."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from torch import nn
from torchrec.distributed.planner import enumerators
from torchrec.distributed.planner.constants import KV_CACHING_RATIO
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.planner.utils import is_prefetch_pipelined, sharder_name
from torchrec.distributed.types import StorageUsageType
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingBagCollectionInterface,
    EmbeddingCollection,
)
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

_USAGES = {
    StorageUsageType.BASE_QUANT: "base_quant",
    StorageUsageType.BASE: "base",
    StorageUsageType.DEFAULT: "plain",
}
_NAN = math.nan


class Holder:
    """A module with embedding tables, and the values that its tables share."""

    def __init__(self, path: str, module: Any, sharder: Any, data: Any) -> None:
        self.path = path
        self.module = module
        self.sharder = sharder
        self.key = sharder_name(type(module))
        self.data = data
        self.pooled = bool(ShardingOption.module_pooled(module, path))
        self.weighted = _says_weighted(module)
        self.processed = _processed_features(module)
        self.load_factor: float | None = data.fused_params.get("cache_load_factor")
        self.prefetches = bool(is_prefetch_pipelined(SimpleNamespace(cache_params=None), data))
        self.prefetch_passes = passes_of(data.fused_params.get("multipass_prefetch_config"))
        factor = data.fused_params.get("cache_load_factor", KV_CACHING_RATIO)
        self.kv_load_factor = _NAN if factor is None else float(factor)
        self.usage = _USAGES[data.storage_usage_type]
        self._has_towers = isinstance(module, EmbeddingTower | EmbeddingTowerCollection)
        self._has_configs = isinstance(module, EmbeddingBagCollection | EmbeddingCollection)
        self._buckets: dict[str, int] | None = None
        self._towers: dict[str, int] | None = None

    def buckets(self, name: str, enumerator: Any) -> int:
        """Returns the buckets of a virtual table, 0 for others."""
        if self._has_configs:
            if self._buckets is None:
                self._buckets = _virtual_buckets(self.module)
            return self._buckets.get(name, 0)
        return enumerator._get_num_buckets(name, self.module) or 0

    def tower(self, name: str) -> str | None:
        """Returns the tower of a table; None for other modules.

        TorchRec goes through all towers again for each table, which takes time quadratic in their
        number. Here the first search lists the tables of all towers.
        """
        if not self._has_towers:
            return None
        if isinstance(self.module, EmbeddingTower):
            return self.path
        if self._towers is None:
            self._towers = _towers_of_tables(self.module)
        index = self._towers.get(name)
        if index is None:
            index = enumerators._get_tower_index(name, self.module)  # raises TorchRec's error
        return f"{self.path}.tower_{index}"


def _says_weighted(module: Any) -> bool | None:
    if not callable(getattr(module, "is_weighted", None)):
        return None
    if not isinstance(module, EmbeddingBagCollectionInterface):
        return None
    return bool(module.is_weighted())


def _processed_features(module: Any) -> frozenset[str]:
    processor: Any = getattr(module, "_feature_processor", None)
    modules: Any = getattr(processor, "feature_processor_modules", None)
    return frozenset(modules.keys()) if isinstance(modules, nn.ModuleDict) else frozenset()


def _virtual_buckets(module: Any) -> dict[str, int]:
    bags = isinstance(module, EmbeddingBagCollection)
    configs = module.embedding_bag_configs() if bags else module.embedding_configs()
    found: dict[str, int] = {}
    for config in configs:
        if config.use_virtual_table:
            found.setdefault(config.name, config.total_num_buckets or 0)
    return found


def _towers_of_tables(module: EmbeddingTowerCollection) -> dict[str, int]:
    """Returns the first tower of each table, with the rules of TorchRec's _get_tower_index."""
    found: dict[str, int] = {}
    for index, tower in enumerate(module.towers):
        for path, inner in tower.named_modules():
            if isinstance(inner, nn.Embedding | nn.EmbeddingBag):
                found.setdefault(path.rpartition(".")[2], index)
    return found


def passes_of(config: Any) -> int:
    """Returns the passes of a multipass prefetch configuration, 0 if unset."""
    return (config.num_passes or 0) if config else 0


class CachedSharder:
    """A sharder that caches its results and forwards everything else."""

    def __init__(self, sharder: Any) -> None:
        self.sharder = sharder
        self.module_type = sharder.module_type
        self._answers: dict[
            int, tuple[Any, Any]
        ] = {}  # the module is kept alive, so that its id stays unique

    def shardable_parameters(self, module: Any) -> Any:
        known = self._answers.get(id(module))
        if known is None:
            answer = self.sharder.shardable_parameters(module)
            known = self._answers[id(module)] = (module, answer)
        return known[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sharder, name)
