"""The numbers of a table that its estimates read, from TorchRec's objects."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import nn
from torchrec.distributed.planner.constants import NUM_POOLINGS
from torchrec.distributed.planner.shard_estimators import _get_optimizer_multipler
from torchrec.distributed.planner.utils import is_prefetch_pipelined
from torchrec.distributed.types import get_tensor_size_bytes
from torchrec.modules.embedding_configs import DATA_TYPE_NUM_BITS

from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.modules import SharderNumbers, passes_of

_NAN = math.nan
# Whole numbers stay exact as doubles up to here, with a margin for factors.
_EXACT = 2**53


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


def read_cache(params: Any, holder: SharderNumbers) -> Cache:
    """Returns the cache that the parameters of a table describe, or else those of its module."""
    ratio, passes, prefetches = None, None, holder.prefetches
    if params is not None:
        ratio, passes = params.load_factor, params.multipass_prefetch_config
        prefetches = bool(is_prefetch_pipelined(SimpleNamespace(cache_params=params), holder.data))
    ratio = holder.load_factor if ratio is None else ratio
    if ratio is not None and not isinstance(ratio, int | float):
        raise NotNative(f"a load factor is {type(ratio).__name__}")
    passes = holder.prefetch_passes if passes is None else passes_of(passes)
    return Cache(ratio, prefetches, passes, *_cache_statistics(params, ratio))


def _cache_statistics(params: Any, ratio: float | None) -> tuple[float, float]:
    if ratio is None or params is None or params.stats is None:
        return _NAN, _NAN
    lookups, miss_rate = params.stats.expected_lookups, params.stats.expected_miss_rate(ratio)
    if lookups is None or miss_rate is None:
        return _NAN, _NAN
    return float(lookups), float(miss_rate)


def key_value_bytes(constraint: Any, storage_rule: Any) -> int:
    """Returns the bytes of a key-value table's cache."""
    own = constraint.key_value_params if constraint else None
    params = compat.key_value_params(own, storage_rule)
    if params is None:
        return 0
    megabytes = (params.max_l1_cache_size or 0) if params else 0
    if not isinstance(megabytes, int):
        raise NotNative("a key-value cache size is not a whole number")
    return megabytes * 1024 * 1024
