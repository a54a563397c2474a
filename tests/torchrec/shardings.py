"""Shardings of tables, written by hand."""

import copy
from collections.abc import Sequence

from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingPlan,
    ShardMetadata,
)

DIM = 8
Shardings = dict[str, ParameterSharding]


def table_wise(rows: int, rank: int, device: str = "cpu") -> ParameterSharding:
    return _sharded("table_wise", [(0, 0, rows, DIM)], [rank], device)


def column_wise(rows: int, *ranks: int, device: str = "cpu") -> ParameterSharding:
    """As many shards as ranks, all of the same width."""
    width = DIM // len(ranks)
    cuts = [(0, i * width, rows, width) for i in range(len(ranks))]
    return _sharded("column_wise", cuts, ranks, device)


def row_wise(rows: int, *ranks: int, device: str = "cpu") -> ParameterSharding:
    height = -(-rows // len(ranks))
    cuts = [(i * height, 0, min(height, rows - i * height), DIM) for i in range(len(ranks))]
    return _sharded("row_wise", cuts, ranks, device)


def plan_of(shardings: Shardings, path: str = "tables") -> ShardingPlan:
    """A plan with shardings of its own: TorchRec writes into what it is given."""
    return ShardingPlan({path: EmbeddingModuleShardingPlan(copy.deepcopy(shardings))})


def _sharded(
    kind: str, cuts: list[tuple[int, ...]], ranks: Sequence[int], device: str
) -> ParameterSharding:
    shards = [
        ShardMetadata(list(cut[:2]), list(cut[2:]), f"rank:{rank}/{device}")
        for cut, rank in zip(cuts, ranks, strict=True)
    ]
    return ParameterSharding(kind, "fused", list(ranks), EnumerableShardingSpec(shards))
