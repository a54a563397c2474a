"""Plans for the tests of plan files, and a comparison of plans without any tolerance."""

import dataclasses
from enum import Enum
from typing import Any

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    BoundsCheckMode,
    CacheAlgorithm,
    MultiPassPrefetchConfig,
)
from fbgemm_gpu.tbe.monitoring import StdLogStatsReporterConfig
from fbgemm_gpu.tbe.ssd.ssd_config import EnrichmentPolicy, EnrichmentType
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    KeyValueParams,
    KVZCHTBEConfig,
    ParameterSharding,
    ShardingPlan,
    ShardMetadata,
)
from torchrec.modules.embedding_configs import DataType

from tests.parity.compare import quiet
from tests.parity.instances import Built, make_instance
from tests.parity.subject import FastPlanner

# Random instances that have a plan.
SEEDS = sorted({*range(102)} - {12, 20, 24, 32, 46, 50, 54, 65, 66, 97, 98, 100})


def made(seed: int) -> tuple[ShardingPlan, Built]:
    """The plan of a random instance and what it was made from."""
    built = make_instance(seed).build()
    with quiet():
        return FastPlanner(**built.planner_kwargs).plan(built.module, built.sharders), built


def spec(*shards: tuple[list[int], list[int], str | None]) -> EnumerableShardingSpec:
    """Shards as (offset, size, placement)."""
    return EnumerableShardingSpec([ShardMetadata(*shard) for shard in shards])


def one_table(**fields: Any) -> ShardingPlan:
    fields = {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0], **fields}
    table = ParameterSharding(**fields)
    return ShardingPlan({"sparse": EmbeddingModuleShardingPlan({"t": table})})


def statistics(dtype: torch.dtype = torch.float32) -> EmbeddingOffloadStats:
    return EmbeddingOffloadStats(
        cacheability=0.1 + 0.2,
        expected_lookups=12345,
        mrc_hist_counts=torch.tensor([3.3, 0.7, 1e-3]).to(dtype),
        height=977,
    )


def every_setting() -> dict[str, Any]:
    """A value other than the default for every setting of a table, and for every part of it."""
    return {
        "cache_params": CacheParams(
            algorithm=CacheAlgorithm.LFU,
            load_factor=0.1,
            reserved_memory=2,
            precision=DataType.BF16,
            prefetch_pipeline=False,
            stats=statistics(),
            multipass_prefetch_config=MultiPassPrefetchConfig(3, 1024),
        ),
        "enforce_hbm": False,
        "stochastic_rounding": True,
        "bounds_check_mode": BoundsCheckMode.V2_WARNING,
        "output_dtype": DataType.FP16,
        "key_value_params": KeyValueParams(
            ssd_storage_directory="data00_nvidia@local_rank",
            ssd_rocksdb_write_buffer_size=1,
            ssd_rocksdb_shards=2,
            gather_ssd_cache_stats=True,
            stats_reporter_config=StdLogStatsReporterConfig(interval=7),
            use_passed_in_path=False,
            l2_cache_size=3,
            max_l1_cache_size=4,
            enable_async_update=False,
            bulk_init_chunk_size=5,
            lazy_bulk_init_enabled=True,
            enable_raw_embedding_streaming=False,
            res_store_shards=6,
            kvzch_tbe_config=KVZCHTBEConfig(
                kvzch_eviction_trigger_mode=5,
                eviction_free_mem_threshold_gb=1,
                eviction_free_mem_check_interval_batch=2,
                threshold_calculation_bucket_stride=1 / 3,
                threshold_calculation_bucket_num=None,
                load_ckpt_without_opt=True,
                optimizer_type_for_st="adam",
                optimizer_state_dtypes_for_st=frozenset({("momentum", 2), ("exp_avg", 1)}),
                enrichment_policy=EnrichmentPolicy(
                    enrichment_type=EnrichmentType.IGR_LASER_SID, provider_name="p"
                ),
            ),
            load_ckpt_without_opt=True,
            ps_hosts=(("::1", 2000), ("::1", 2001)),
            ps_client_thread_num=8,
            ps_max_key_per_request=9,
            ps_max_local_index_length=10,
        ),
    }


def parts(value: Any) -> Any:
    """The value as plain data with the types of all its parts."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return kind, value.dtype, parts(value.tolist())
    if isinstance(value, Enum):
        return kind, value.name
    if isinstance(value, float):
        return kind, value.hex()
    if value is None or isinstance(value, bool | int | str):
        return kind, value
    if isinstance(value, dict):
        return kind, [(parts(key), parts(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list, [parts(item) for item in value]
    if isinstance(value, tuple):
        return kind, [parts(item) for item in value]
    if isinstance(value, frozenset | torch.device):
        return kind, value
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return kind, [(name, parts(getattr(value, name))) for name in names]
    return kind, parts(vars(value))


def assert_equal_plans(expected: ShardingPlan, actual: ShardingPlan) -> None:
    assert parts(expected) == parts(actual)
