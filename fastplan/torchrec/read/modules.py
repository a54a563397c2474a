"""Modules: those with embedding tables, the numbers of a table that its estimates read, the bytes
of all modules, and sharders that cache their results.

TorchRec asks torch for the parameters of a module several times per plan. That takes longer than
the whole search of a small model, so stock modules are walked here, once.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import enumerators
from torchrec.distributed.planner.constants import KV_CACHING_RATIO, NUM_POOLINGS
from torchrec.distributed.planner.shard_estimators import _get_optimizer_multipler
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ModuleSharder, get_tensor_size_bytes
from torchrec.modules.embedding_configs import DATA_TYPE_NUM_BITS
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingBagCollectionInterface,
    EmbeddingCollection,
)
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences.estimates import is_prefetch_pipelined
from fastplan.torchrec.differences.key_value_params import key_value_params
from fastplan.torchrec.read.miss_rates import MissRates

_USAGES = {"BASE_QUANT": "base_quant", "BASE": "base", "DEFAULT": "plain"}
_NAN = math.nan
# Whole numbers stay exact as doubles up to here, with a margin for factors.
_EXACT = 2**53
# A sharder's own function, and where the modules it lists have their tables.
_CONTAINERS: dict[Any, str] = {
    EmbeddingBagCollectionSharder.shardable_parameters: "embedding_bags",
    EmbeddingCollectionSharder.shardable_parameters: "embeddings",
}
# The functions of a sharder that decide which options its tables have.
_DECIDING = frozenset(("shardable_parameters", "sharding_types", "compute_kernels"))
# The functions of torch that a walk over parameters and buffers calls.
_WALKING = frozenset(
    ("parameters", "named_parameters", "buffers", "named_buffers", "named_modules")
) | {"_named_members", "modules"}
_TORCHS = {name: getattr(nn.Module, name) for name in _WALKING}
_PLAIN_TABLES = frozenset((nn.EmbeddingBag, nn.Embedding))
_PLAIN = (nn.ModuleDict, *_PLAIN_TABLES)


class SharderNumbers:
    """The values of a sharder that the estimates of its tables read."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.load_factor: float | None = data.fused_params.get("cache_load_factor")
        self.prefetches = bool(is_prefetch_pipelined(SimpleNamespace(cache_params=None), data))
        self.prefetch_passes = passes_of(data.fused_params.get("multipass_prefetch_config"))
        factor = data.fused_params.get("cache_load_factor", KV_CACHING_RATIO)
        self.kv_load_factor = _NAN if factor is None else _double(factor, "a load factor")
        self.usage = _USAGES[data.storage_usage_type.name]


class TableModule(SharderNumbers):
    """A module with embedding tables, and the values that its tables share."""

    def __init__(self, path: str, module: Any, asked: CachedSharder, data: Any) -> None:
        super().__init__(data)
        self.path = path
        self.module = module
        self.sharder = asked.sharder
        self.has_stock_sharder = asked.is_stock
        self.key = sharder_name(type(module))
        # A plain collection of bags has no submodule that TorchRec would have to look for.
        pools = type(module) is EmbeddingBagCollection and asked.is_plain(module)
        self.pooled = pools or bool(ShardingOption.module_pooled(module, path))
        self.weighted = _says_weighted(module)
        self.processed = _processed_features(module)
        self.has_towers = isinstance(module, EmbeddingTower | EmbeddingTowerCollection)
        self._has_configs = isinstance(module, EmbeddingBagCollection | EmbeddingCollection)
        self._buckets: dict[str, int] | None = None
        self._towers: dict[str, int] | None = None

    def buckets(self, name: str, enumerator: Any) -> int:
        """Returns the buckets of a virtual table, 0 for others."""
        if self._has_configs:
            if self._buckets is None:
                self._buckets = _virtual_buckets(self.module)
            return self._buckets.get(name, 0) if self._buckets else 0
        return enumerator._get_num_buckets(name, self.module) or 0

    def tower(self, name: str) -> str:
        """Returns the tower of a table, for a module that has towers.

        TorchRec goes through all towers again for each table, which takes time quadratic in their
        number. Here the first search lists the tables of all towers.
        """
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


class Cache(NamedTuple):
    """The software cache of a table, from its own parameters or those of its module."""

    ratio: float | None
    prefetches: bool
    prefetch_passes: int
    lookups: float
    miss_rate: float


def batch_counts(
    lengths: list[float], poolings: Any, sizes: Any, batch_size: Any, name: str
) -> tuple[float, float]:
    """Returns values looked up and vectors returned for one local batch."""
    if len(lengths) == 1 and not poolings and not sizes:
        length, size = lengths[0], batch_size
        inputs = length * NUM_POOLINGS * size
        outputs = min(1.0, length) * NUM_POOLINGS * size
    else:
        poolings = poolings or [NUM_POOLINGS] * len(lengths)
        sizes = sizes or [batch_size] * len(lengths)
        if not len(lengths) == len(poolings) == len(sizes):
            raise NotNative(
                f"table {name}: pooling factors, poolings and batch sizes differ in number"
            )
        features = list(zip(lengths, poolings, sizes, strict=True))
        if len(features) == 1:  # a sum would begin with 0
            ((length, pooling, size),) = features
            inputs, outputs = length * pooling * size, min(1.0, length) * pooling * size
        else:
            inputs = sum(x * y * z for x, y, z in features)
            outputs = sum(min(1.0, x) * y * z for x, y, z in features)
    if type(inputs) is not float:
        if not isinstance(inputs, int | float):  # numpy's and torch's may round differently
            raise NotNative(f"table {name}: a batch is counted in {type(inputs).__name__}")
        if isinstance(inputs, int) and abs(inputs) >= _EXACT >> 30:
            raise NotNative(f"table {name}: the batch is too large for exact doubles")
    return float(inputs), float(outputs)


def tensor_bytes(parameter: Any, elements: int) -> int:
    """Returns TorchRec's size of a parameter; only other tensor types pack their elements."""
    return elements if type(parameter) is nn.Parameter else get_tensor_size_bytes(parameter)


def optimizer_multiplier(parameter: Any) -> float:
    classes = getattr(parameter, "_optimizer_classes", None)
    if classes is None:
        return 0.0
    return float(_get_optimizer_multipler(classes[0], parameter.shape))


def output_size(constraint: Any, element_size: int) -> float:
    if constraint and constraint.output_dtype:
        return float(DATA_TYPE_NUM_BITS[constraint.output_dtype] / 8)
    return float(element_size)


def read_cache(params: Any, holder: SharderNumbers, miss_rates: MissRates | None = None) -> Cache:
    """Returns the cache that the parameters of a table describe, or else those of its module."""
    ratio, passes, prefetches = None, None, holder.prefetches
    if params is not None:
        ratio, passes = params.load_factor, params.multipass_prefetch_config
        prefetches = bool(is_prefetch_pipelined(SimpleNamespace(cache_params=params), holder.data))
    ratio = holder.load_factor if ratio is None else ratio
    if ratio is not None and not isinstance(ratio, int | float):
        raise NotNative(f"a load factor is {type(ratio).__name__}")
    passes = holder.prefetch_passes if passes is None else passes_of(passes)
    return Cache(ratio, prefetches, passes, *_cache_statistics(params, ratio, miss_rates))


def _cache_statistics(
    params: Any, ratio: float | None, miss_rates: MissRates | None
) -> tuple[float, float]:
    if ratio is None or params is None or params.stats is None:
        return _NAN, _NAN
    lookups = params.stats.expected_lookups
    if miss_rates is None:
        miss_rate = params.stats.expected_miss_rate(ratio)
    else:
        miss_rate = miss_rates.of(params.stats, ratio)
    if lookups is None or miss_rate is None:
        return _NAN, _NAN
    return _double(lookups, "the lookups of a cache"), _double(miss_rate, "a miss rate")


def _double(value: Any, what: str) -> float:
    """Returns a number. Raises NotNative for types that may round otherwise."""
    if not isinstance(value, int | float):
        raise NotNative(f"{what} is a {type(value).__name__}")
    return float(value)


def key_value_bytes(constraint: Any, storage_rule: Any) -> int:
    """Returns the bytes of a key-value table's cache."""
    own = constraint.key_value_params if constraint else None
    params = key_value_params(own, storage_rule)
    if params is None:
        return 0
    megabytes = (params.max_l1_cache_size or 0) if params else 0
    if not isinstance(megabytes, int):
        raise NotNative("a key-value cache size is not a whole number")
    return megabytes * 1024 * 1024


class CachedSharder:
    """A sharder that caches its results and forwards everything else."""

    def __init__(self, sharder: Any) -> None:
        self.sharder = sharder
        # Other code may give another answer each time: it is asked as often as by TorchRec.
        self.is_stock = _is_stock_sharder(sharder)
        self.module_type = sharder.module_type
        # The module is kept alive, so that its id stays unique.
        self._answers: dict[int, tuple[Any, Any, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self.sharder)

    def shardable_parameters(self, module: Any) -> Any:
        known = self._answers.get(id(module))
        if known is not None:
            return known[1]
        plain = self._plain_parameters(module)
        answer = self.sharder.shardable_parameters(module) if plain is None else plain
        if plain is not None or self.is_stock:
            self._answers[id(module)] = (module, answer, plain is not None)
        return answer

    def is_plain(self, module: Any) -> bool:
        """Whether the module has nothing but a ModuleDict of torch's own embeddings."""
        if len(module._modules) != 1:
            return False
        known = self._answers.get(id(module))
        return self._plain_parameters(module) is not None if known is None else known[2]

    def _plain_parameters(self, module: Any) -> dict[str, Any] | None:
        """Returns what TorchRec's sharder would list for a plain module, else None."""
        sharder = self.sharder
        container = _CONTAINERS.get(getattr(type(sharder), "shardable_parameters", None))
        if container is None or "shardable_parameters" in vars(sharder):
            return None
        return _plain_tables(getattr(module, container, None))

    def __getattr__(self, name: str) -> Any:
        if name == "sharder":
            raise AttributeError(name)  # a copy has no attributes yet
        return getattr(self.sharder, name)


def cached_sharders(sharders: Any) -> list[CachedSharder]:
    """Returns sharders that cache. Raises NotNative if others can't be read again."""
    if not isinstance(sharders, list | tuple):
        raise NotNative(f"the sharders are a {type(sharders).__name__}, not a list")
    return [CachedSharder(sharder) for sharder in sharders]


def _is_stock_sharder(sharder: Any) -> bool:
    functions = [getattr(type(sharder), name, None) for name in _DECIDING]
    if not all(getattr(f, "__module__", "").startswith("torchrec.") for f in functions):
        return False
    own = getattr(sharder, "__dict__", {})
    if not own.keys().isdisjoint(_DECIDING):
        return False
    # TorchRec's wrappers ask the sharder inside.
    inner = [value for value in own.values() if isinstance(value, ModuleSharder)]
    return all(map(_is_stock_sharder, inner))


def _plain_tables(tables: Any) -> dict[str, Any] | None:
    """Returns the weights of a plain ModuleDict of embeddings by name, else None."""
    if type(tables) is not nn.ModuleDict or tables._parameters:
        return None
    if not (_WALKING.isdisjoint(vars(tables)) and all(map(_walks_as_torch, _PLAIN))):
        return None
    found: dict[str, Any] = {}
    for name, table in tables._modules.items():
        if type(table) not in _PLAIN_TABLES:
            return None
        own = table.__dict__
        if own["_modules"] or not _WALKING.isdisjoint(own):
            return None
        weights = own["_parameters"]
        if len(weights) != 1 or (weight := weights.get("weight")) is None:
            return None
        found[name] = weight
    # torch lists a parameter or module that occurs twice only once.
    return found if len({*map(id, found.values())}) == len(found) else None


def _walks_as_torch(kind: type) -> bool:
    """Whether a class lists parameters, buffers and modules by torch's own functions."""
    return all(getattr(kind, name) is function for name, function in _TORCHS.items())


class ModuleSizes:
    """The bytes of the parameters and buffers below each module, from one walk.

    Modules, parameters and buffers come in torch's order, so that sums round as TorchRec's do.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parameters: list[int] = []
        self._buffers: list[int] = []
        self._spans: dict[int, tuple[int, int, int, int]] = {}
        self._seen: set[int] = set()
        self._twice = 0  # objects that occurred before
        self._walkable: dict[type, bool] = {}
        self._walk(module)

    def size(self, module: nn.Module, multiplier: float) -> int | None:
        """Returns TorchRec's size of a module; None if the walk does not know it."""
        span = self._spans.get(id(module))
        if span is None:
            return None
        parameters = sum([multiplier * size for size in self._parameters[span[0] : span[1]]])
        return round(parameters + sum(self._buffers[span[2] : span[3]]))

    def _walk(self, module: nn.Module) -> bool:
        """Adds a module; returns whether torch's own walk over it is known."""
        if id(module) in self._seen:
            self._twice += 1
            return True
        self._seen.add(id(module))
        own, kind = module.__dict__, type(module)
        known = self._walkable.get(kind)
        if known is None:
            known = self._walkable[kind] = _walks_as_torch(kind)
        if not known or not _WALKING.isdisjoint(own):
            return False
        twice, first, first_buffer = self._twice, len(self._parameters), len(self._buffers)
        if own["_parameters"]:
            self._add(own["_parameters"], self._parameters)
        if own["_buffers"]:
            self._add(own["_buffers"], self._buffers)
        for child in own["_modules"].values():
            if child is not None and not self._walk(child):
                known = False
        if known and twice == self._twice:
            span = first, len(self._parameters), first_buffer, len(self._buffers)
            self._spans[id(module)] = span
        return known

    def _add(self, tensors: dict[str, Any], sizes: list[int]) -> None:
        seen = self._seen
        for tensor in tensors.values():
            if tensor is None:
                continue
            if id(tensor) in seen:
                self._twice += 1
                continue
            seen.add(id(tensor))
            plain = type(tensor) is nn.Parameter
            sizes.append(
                tensor.numel() * tensor.element_size() if plain else get_tensor_size_bytes(tensor)
            )
