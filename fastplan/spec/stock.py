"""TorchRec's stock numbers. The rules that use them are in `stock_rules`.

Tests compare them with the installed TorchRec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastplan.model.vocabulary import SHARDING_TYPES

VERSIONS = ("1.8.0", "1.9.2")  # supported planner versions

POOLING_FACTOR = 1.0
NUM_POOLINGS = 1.0
INPUT_ELEMENT_SIZE = 8
CACHE_LOAD_FACTOR = 0.2
WEIGHTED_KERNEL_MULTIPLIER = 1.1

DTYPE_SIZES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}
OUTPUT_BITS = {
    "fp32": 32,
    "fp16": 16,
    "bf16": 16,
    "nfp8": 8,
    "uint8": 8,
    "int8": 8,
    "int4": 4,
    "int2": 2,
}
OPTIMIZERS = (
    "sgd",
    "adam",
    "rowwise_adagrad",
    "adagrad",
    "lamb",
    "lars_sgd",
    "partial_rowwise_adam",
    "partial_rowwise_lamb",
    "other",
)

DEVICES = ("cuda", "cpu", "mtia")
GUARDED_KERNELS = frozenset(
    {"key_value", "ssd_virtual_table", "dram_virtual_table", "dram_ssd_virtual_table"}
)
# Feature-processed tables are sharded row-wise only if a constraint allows it.
GUARDED_TYPES_OF_PROCESSED = frozenset({"row_wise", "table_row_wise", "grid_shard"})

_DP, _TW, _CW, _RW, _TWRW, _TWCW, _GRID = SHARDING_TYPES
_DEVICE_KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
_ALL_KERNELS = (
    *_DEVICE_KERNELS,
    "key_value",
    "ssd_virtual_table",
    "dram_virtual_table",
    "dram_ssd_virtual_table",
)
_COLLISION_KERNELS = ("fused", "fused_uvm_caching", "fused_uvm", "key_value")
_QUANT_KERNELS = ("quant", "quant_uvm", "quant_uvm_caching")


class Kind(NamedTuple):
    """A kind of module: the options of its stock sharder, and how its memory is counted."""

    pooled: bool
    usage: str  # one of vocabulary.STORAGE_USAGES
    types: Mapping[str, tuple[str, ...]]  # by device
    kernels: Mapping[str, tuple[str, ...]]  # by device, for all types except data_parallel
    processed: bool = False  # features are processed: see GUARDED_TYPES_OF_PROCESSED


def _by_device(
    cuda: tuple[str, ...], cpu: tuple[str, ...], mtia: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    return {"cuda": cuda, "cpu": cpu, "mtia": mtia}


_FUSED = ("fused",)
_QUANT = ("quant",)
_TRAINED = _by_device(_ALL_KERNELS, _FUSED, _FUSED)
_TRAINED_FUSED = _by_device(_DEVICE_KERNELS, _FUSED, _FUSED)
_COLLIDING = dict.fromkeys(DEVICES, _COLLISION_KERNELS)
_BAG_TYPES = _by_device(
    (_DP, _TW, _CW, _TWCW, _RW, _TWRW, _GRID),
    (_DP, _TW, _CW, _TWCW),
    (_TW, _CW, _TWCW, _RW, _TWRW, _GRID),
)
_SEQUENCE_TYPES = dict.fromkeys(DEVICES, (_DP, _TW, _CW, _RW))
_QUANT_TYPES = dict.fromkeys(DEVICES, (_TW, _RW, _CW))
_TOWER_TYPES = dict.fromkeys(DEVICES, (_TWRW, _TWCW))

KINDS = {
    "embedding_bag_collection": Kind(True, "base", _BAG_TYPES, _TRAINED),
    "embedding_collection": Kind(False, "base", _SEQUENCE_TYPES, _TRAINED),
    "embedding_bag": Kind(True, "base", _BAG_TYPES, _TRAINED),
    "fused_embedding_bag_collection": Kind(
        True,
        "base",
        _by_device(
            (_DP, _TW, _CW, _TWCW, _RW, _TWRW), (_DP, _TW, _CW, _TWCW), (_DP, _TW, _CW, _TWCW)
        ),
        _TRAINED_FUSED,
    ),
    "fused_embedding_collection": Kind(False, "base", _SEQUENCE_TYPES, _TRAINED_FUSED),
    "feature_processed_embedding_bag_collection": Kind(
        True,
        "base",
        _by_device(
            (_DP, _TW, _CW, _TWCW, _TWRW, _RW, _GRID),
            (_DP, _TW, _CW, _TWCW, _TWRW, _RW, _GRID),
            (_TW, _CW),
        ),
        _TRAINED,
        processed=True,
    ),
    "managed_collision_embedding_bag_collection": Kind(
        True, "base", _by_device((_RW,), (), (_RW,)), _COLLIDING
    ),
    "managed_collision_embedding_collection": Kind(
        False, "base", dict.fromkeys(DEVICES, (_RW,)), _COLLIDING
    ),
    "embedding_tower": Kind(True, "base", _TOWER_TYPES, _TRAINED),
    "embedding_tower_collection": Kind(True, "base", _TOWER_TYPES, _TRAINED),
    "quant_embedding_bag_collection": Kind(
        True, "base_quant", _QUANT_TYPES, _by_device(_QUANT_KERNELS, _QUANT, _QUANT)
    ),
    "quant_embedding_collection": Kind(
        False, "base_quant", _QUANT_TYPES, _by_device(_QUANT_KERNELS, _QUANT, _QUANT)
    ),
    "quant_feature_processed_embedding_bag_collection": Kind(
        True,
        "base_quant",
        dict.fromkeys(DEVICES, (_TW, _CW)),
        dict.fromkeys(DEVICES, _QUANT),
        processed=True,
    ),
}
