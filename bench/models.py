"""The models of the benchmarks: real TorchRec modules on the meta device, which use no memory."""

import math
import random

import torch
from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

Constraints = dict[str, ParameterConstraints]

# MLPerf DLRM-DCNv2: the 26 categorical features of Criteo 1TB, capped at 40 million rows, with the
# multi-hot sizes of the benchmark's synthetic multi-hot dataset.
CRITEO_ROWS = (
    *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956),
    *(405_282, 10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152),
    *(12_973, 108, 36),
)
CRITEO_POOLING = (
    *(3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1),
)
CRITEO_DIM = 128

SYNTHETIC_ROWS = (1e3, 5e7)
SYNTHETIC_DIMS = (16, 32, 64, 128, 256)
SYNTHETIC_POOLING = (1, 50)
# Weights of a synthetic model stay below this, half of 64 devices of 80 GB: the planner also needs
# room for optimizer state, activations and its reservation.
SYNTHETIC_BYTES = 64 * 80e9 / 2
BYTES_PER_WEIGHT = 4


class SparseArch(nn.Module):
    """The sparse part of a recommendation model, which is all a planner looks at."""

    def __init__(self, tables: list[EmbeddingBagConfig]) -> None:
        super().__init__()
        self.sparse = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def criteo() -> tuple[nn.Module, Constraints]:
    """The 26 tables of MLPerf DLRM-DCNv2."""
    dims = [CRITEO_DIM] * len(CRITEO_ROWS)
    return _model(list(CRITEO_ROWS), dims, [float(size) for size in CRITEO_POOLING])


def synthetic(tables: int, seed: int = 0) -> tuple[nn.Module, Constraints]:
    """`tables` random tables, few of them large: the same seed gives the same model anywhere."""
    return _model(*synthetic_sizes(tables, seed))


def synthetic_sizes(tables: int, seed: int = 0) -> tuple[list[int], list[int], list[float]]:
    """Rows, columns and pooling factors of a synthetic model."""
    generator = random.Random(seed)
    rows, dims, pooling = [], [], []
    for _ in range(tables):
        rows.append(_log_uniform(generator, SYNTHETIC_ROWS))
        dims.append(generator.choice(SYNTHETIC_DIMS))
        pooling.append(round(_log_uniform(generator, SYNTHETIC_POOLING), 1))
    weight_bytes = sum(map(math.prod, zip(rows, dims, strict=True))) * BYTES_PER_WEIGHT
    scale = min(1.0, SYNTHETIC_BYTES / weight_bytes)
    return [max(1, round(count * scale)) for count in rows], dims, pooling


def _log_uniform(generator: random.Random, limits: tuple[float, float]) -> float:
    low, high = map(math.log, limits)
    return math.exp(generator.uniform(low, high))


def _model(rows: list[int], dims: list[int], pooling: list[float]) -> tuple[nn.Module, Constraints]:
    width = len(str(len(rows) - 1))
    names = [f"table_{index:0{width}}" for index in range(len(rows))]
    return build(names, rows, dims, pooling)


def build(
    names: list[str], rows: list[int], dims: list[int], pooling: list[float]
) -> tuple[nn.Module, Constraints]:
    """A model of tables given by their sizes."""
    configs = [
        EmbeddingBagConfig(
            name=name,
            num_embeddings=count,
            embedding_dim=dim,
            feature_names=[name.replace("table", "feature")],
        )
        for name, count, dim in zip(names, rows, dims, strict=True)
    ]
    constraints = {
        name: ParameterConstraints(pooling_factors=[size])
        for name, size in zip(names, pooling, strict=True)
    }
    return SparseArch(configs), constraints
