"""Names of sharding types, kernels and other values, in the order of the native core's numbers.

Stored plans contain these numbers: add new names at the end, and never remove one.
"""

from __future__ import annotations

SHARDING_TYPES = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)
# The order in which TorchRec's sharder of bags lists them, and most others.
USUAL_TYPES = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "table_column_wise",
    "row_wise",
    "table_row_wise",
    "grid_shard",
)

KERNELS = (
    "dense",
    "fused",
    "fused_uvm",
    "fused_uvm_caching",
    "quant",
    "quant_uvm",
    "quant_uvm_caching",
    "key_value",
    "customized_kernel",
    "ssd_virtual_table",
    "dram_virtual_table",
    "dram_ssd_virtual_table",
    "fused_triton",
    "unfused_tpu",
)

PROPOSERS = ("grid", "greedy", "uniform", "dynamic_programming")

DEVICE_KINDS = ("hbm", "cpu", "other")
PIPELINES = ("none", "train_sparse_dist", "train_prefetch_sparse_dist")
STORAGE_USAGES = ("base_quant", "base", "plain")

# The allowed values of a request's fields with these names.
FIELD_CHOICES = {
    "usage": STORAGE_USAGES,
    "device_kind": DEVICE_KINDS,
    "pipeline": PIPELINES,
    "kind": PROPOSERS,
}
# The endings of a cost model's fields that count ranks.
SIZE_FIELDS = ("_world_size", "_group_size")

SHARDING_TYPE_INDEX = {name: i for i, name in enumerate(SHARDING_TYPES)}
KERNEL_INDEX = {name: i for i, name in enumerate(KERNELS)}
PROPOSER_INDEX = {name: i for i, name in enumerate(PROPOSERS)}
DEVICE_KIND_INDEX = {name: i for i, name in enumerate(DEVICE_KINDS)}
PIPELINE_INDEX = {name: i for i, name in enumerate(PIPELINES)}
STORAGE_USAGE_INDEX = {name: i for i, name in enumerate(STORAGE_USAGES)}

UNIFORM_TYPES = frozenset({"data_parallel", "row_wise"})
# PyTorch's names of data types, and those of specs.
DTYPE_ALIASES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
}
DTYPE_ALIASES |= {f"torch.{name}": known for name, known in DTYPE_ALIASES.items()}
