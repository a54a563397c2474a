"""Sharding types and kernels as numbers that compiled functions can compare.

The numbers are the native core's, those of the lists in `spec/vocabulary.py`.
"""

from __future__ import annotations

from enum import IntEnum


class ShardingType(IntEnum):
    """What `shard.sharding_type` can be."""

    DATA_PARALLEL = 0
    TABLE_WISE = 1
    COLUMN_WISE = 2
    ROW_WISE = 3
    TABLE_ROW_WISE = 4
    TABLE_COLUMN_WISE = 5
    GRID_SHARD = 6


class Kernel(IntEnum):
    """What `shard.kernel` can be."""

    DENSE = 0
    FUSED = 1
    FUSED_UVM = 2
    FUSED_UVM_CACHING = 3
    QUANT = 4
    QUANT_UVM = 5
    QUANT_UVM_CACHING = 6
    KEY_VALUE = 7
    CUSTOMIZED_KERNEL = 8
    SSD_VIRTUAL_TABLE = 9
    DRAM_VIRTUAL_TABLE = 10
    DRAM_SSD_VIRTUAL_TABLE = 11
    FUSED_TRITON = 12
    UNFUSED_TPU = 13
