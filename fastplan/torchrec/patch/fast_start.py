"""Faster replacements of what DistributedModelParallel calls once per shard of the cluster.

Each calls the stock function for one of many equal cases and derives the others, so that the
results stay those of TorchRec and torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from operator import attrgetter, is_
from typing import Any

import torch.distributed as dist
from torch.distributed import _remote_device
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec

from fastplan.torchrec import compat
from fastplan.torchrec.patch.substitutes import Replacement

# All fields of a table that grouping reads, except for its fused parameters.
_GROUPED_BY = attrgetter(
    "name",
    "data_type",
    "pooling",
    "is_weighted",
    "has_feature_processor",
    "compute_kernel",
    "local_cols",
    "num_embeddings",
    "use_virtual_table",
    "enable_embedding_update",
    "stash_weights",
)
_FUSED_PARAMS = attrgetter("fused_params")


def group_tables(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Groups the tables of a rank only if they differ from those of the previous rank.

    With row-wise tables, ranks differ only in shards, which grouping ignores.
    """

    @wraps(stock)
    def grouped(tables_per_rank: list[list[Any]]) -> list[list[Any]]:
        model_of = _first_equal_rank(tables_per_rank)
        groups = stock(
            [
                tables if model == rank else []
                for rank, (model, tables) in enumerate(zip(model_of, tables_per_rank, strict=True))
            ]
        )
        positions: dict[int, list[list[int]]] = {}
        for rank, model in enumerate(model_of):
            if model == rank:
                continue
            if model not in positions:
                positions[model] = _positions(groups[model], tables_per_rank[model])
            groups[rank] = [
                replace(
                    group,
                    embedding_tables=[tables_per_rank[rank][i] for i in own],
                    fused_params=dict(group.fused_params),
                )
                for group, own in zip(groups[model], positions[model], strict=True)
            ]
        return groups  # type: ignore[no-any-return]

    return grouped


def _first_equal_rank(tables_per_rank: list[list[Any]]) -> list[int]:
    """Returns, for each rank, the first of the preceding ranks with the same grouping."""
    models: list[int] = []
    keys_before: list[Any] = []
    params_before: list[Any] = []
    for rank, tables in enumerate(tables_per_rank):
        keys = list(map(_GROUPED_BY, tables))
        params = list(map(_FUSED_PARAMS, tables))
        if rank and keys == keys_before and all(map(is_, params, params_before)):
            models.append(models[-1])
            continue
        models.append(rank)
        keys_before, params_before = keys, params
    return models


def _positions(groups: list[Any], tables: list[Any]) -> list[list[int]]:
    place = {id(table): i for i, table in enumerate(tables)}
    return [[place[id(table)] for table in group.embedding_tables] for group in groups]


def row_wise_tables(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Creates a table for rank 0, and for each other rank a copy with its own shard."""

    @wraps(stock)
    def tables(self: Any, sharding_infos: list[Any]) -> list[list[Any]]:
        alone = copy.copy(self)
        alone._world_size = 1
        [firsts] = stock(alone, sharding_infos)
        per_rank: list[list[Any]] = [firsts]
        all_shards = [info.param_sharding.sharding_spec.shards for info in sharding_infos]
        for rank in range(1, self._world_size):
            own = []
            for first, shards in zip(firsts, all_shards, strict=True):
                table = first.__class__.__new__(first.__class__)
                shard = shards[rank]
                table.__dict__ = {
                    **first.__dict__,
                    "local_metadata": shard,
                    "local_rows": shard.shard_sizes[0],
                }
                own.append(table)
            per_rank.append(own)
        return per_rank

    return tables


def remote_device(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Looks a rank up in a cached group; the stock function lists the group for every shard."""

    @wraps(stock)
    def parsed(pg: Any, remote_device: Any) -> Any:
        if remote_device is not None and remote_device.worker_name() is None:
            rank = remote_device.rank()
            if rank in _group_ranks(pg):
                return rank, remote_device.device()
        return stock(pg, remote_device)

    return parsed


def _group_ranks(pg: Any) -> Any:
    world = dist.distributed_c10d._world
    return world.pg_group_ranks.get(pg or dist.distributed_c10d._get_default_group(), ())


def sharding_spec(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Detects even chunks of rows without a loop over shards."""

    @wraps(stock)
    def inferred(shards_metadata: list[Any]) -> Any:
        offsets = [shard.shard_offsets for shard in shards_metadata]
        placements = [shard.placement for shard in shards_metadata]
        usual = all(offsets) and set(map(type, placements)) == {_remote_device}
        if not usual or any(any(offset[1:]) for offset in offsets):
            return stock(shards_metadata)
        starts = [offset[0] for offset in offsets]
        rows = [shard.shard_sizes[0] for shard in shards_metadata]
        if not any(starts) or not _are_chunks(starts, rows):
            return EnumerableShardingSpec(shards_metadata)
        in_order = sorted(range(len(starts)), key=starts.__getitem__)
        return ChunkShardingSpec(dim=0, placements=[placements[i] for i in in_order])

    return inferred


def _are_chunks(starts: list[int], rows: list[int]) -> bool:
    """Whether blocks are those of torch.chunk, in any order."""
    total, chunks = sum(rows), len(rows)
    size = -(-total // chunks)
    if sorted(starts) != [size * i for i in range(chunks)]:
        return False
    return sorted(rows) == sorted(max(min(total - size * i, size), 0) for i in range(chunks))


def with_gc_paused(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Runs with the garbage collector paused, because no new object becomes garbage."""

    @wraps(stock)
    def started(*args: Any, **kwargs: Any) -> Any:
        with compat.paused():
            return stock(*args, **kwargs)

    return started


REPLACEMENTS = (
    Replacement(
        module="torchrec.distributed.embedding_sharding",
        function="group_tables",
        make=group_tables,
        relies_on=(
            "_get_weighted_avg_cache_load_factor",
            "_get_grouping_fused_params",
            "_get_compute_kernel_type",
            "_prefetch_and_cached",
            "_all_tables_are_quant_kernel",
            "EmbDimBucketer",
            "detect_technique",
            "log_tbe_composition",
        ),
        digest="d9f5ce82b9a6f6db",
    ),
    Replacement(
        module="torchrec.distributed.sharding.rw_sharding",
        function="BaseRwEmbeddingSharding._shard",
        make=row_wise_tables,
        digest="0f6c8e485e74c2b6",
    ),
    Replacement(
        module="torch.distributed._shard.sharded_tensor.utils",
        function="_parse_and_validate_remote_device",
        make=remote_device,
        digest="a494fbc977f15834",
    ),
    Replacement(
        module="torch.distributed._shard.sharding_spec.api",
        function="_infer_sharding_spec_from_shards_metadata",
        make=sharding_spec,
        relies_on=("get_split_size", "get_chunked_dim_size"),
        digest="a1d3ae70de90d7ee",
    ),
    Replacement(
        module="torchrec.distributed.model_parallel",
        function="DistributedModelParallel._init_dmp",
        make=with_gc_paused,
        may_be_wrapped=True,
        digest="d4b5dbdfcad99d0a",
    ),
)
