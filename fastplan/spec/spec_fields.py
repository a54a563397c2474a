"""The names of a spec's fields, for its reader, its writer and its schema."""

from __future__ import annotations

from fastplan.model.request import Table

MODEL_FIELDS = (
    "model",
    "batch_size",
    "torchrec",
    "modules",
    "tables",
    "menus",
    "topology",
    "reservation",
    "search",
    "cost",
    "objective",
)
TABLE_FIELDS = (
    "name",
    "rows",
    "dim",
    "module",
    "dtype",
    "features",
    "pooling",
    "poolings",
    "batch_sizes",
    "weighted",
    "sharding_types",
    "compute_kernels",
    "min_partition",
    "output_dtype",
    "optimizer",
    "cache",
    "key_value_cache",
    "virtual",
    "buckets",
    "tower",
    "menu",
    "exact",
    "settings",
)
CACHE_FIELDS = ("load_factor", "prefetch", "passes", "expected_lookups", "miss_rate")
MODULE_FIELDS = (
    "kind",
    "weighted",
    "cache_load_factor",
    "prefetch",
    "passes",
    "wire",
    "sharding_types",
    "compute_kernels",
    "pooled",
)
MENU_FIELDS = ("sharding_type", "kernel", "bandwidth", "fwd", "bwd")
CAPACITIES = ("hbm", "ddr", "ssd")
BANDWIDTHS = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)
MULTIPLIERS = ("bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier")
TOPOLOGY_FIELDS = (
    "sku",
    "device",
    "world_size",
    "local_world_size",
    "pod_size",
    *CAPACITIES,
    *BANDWIDTHS,
    *MULTIPLIERS,
    "rank_hbm",
    "rank_ddr",
    "rank_ssd",
)
RESERVATION_FIELDS = (
    "policy",
    "percentage",
    "reserved",
    "dense",
    "kjt",
    "margin",
    "base",
    "overhead",
)
SEARCH_FIELDS = ("proposers", "partitioner", "timeout_seconds", "deterministic")
PROPOSER_FIELDS = ("kind", "use_depth", "threshold", "max_proposals", "bins_per_device")
PARTITIONER_FIELDS = (
    "memory_balanced",
    "sort_by_perf",
    "balance_modules",
    "max_search_count",
    "tolerance",
)
EXACT_FIELDS = tuple(
    name for name in Table._fields if name not in ("name", "path", "menu", "tower")
)
