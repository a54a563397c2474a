"""Sharding types and kernels as numbers that compiled functions can compare.

The numbers are those of the native core and of the lists in `model/vocabulary.py`.
"""

from __future__ import annotations

from enum import IntEnum


class ShardingType(IntEnum):
    """The values of `shard.sharding_type`."""

    DATA_PARALLEL = 0
    TABLE_WISE = 1
    COLUMN_WISE = 2
    ROW_WISE = 3
    TABLE_ROW_WISE = 4
    TABLE_COLUMN_WISE = 5
    GRID_SHARD = 6


class Kernel(IntEnum):
    """The values of `shard.kernel`."""

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
