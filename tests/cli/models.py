"""Models that the tests name on command lines."""

import torch
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection


def module() -> nn.Module:
    root = nn.Module()
    root.ebc = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}",
                num_embeddings=1000 * (i + 1),
                embedding_dim=64,
                feature_names=[f"f{i}"],
            )
            for i in range(4)
        ],
        device=torch.device("meta"),
    )
    return root


def with_constraints():
    constraints = {"t0": ParameterConstraints(sharding_types=["row_wise"], pooling_factors=[7.0])}
    return module(), [EmbeddingBagCollectionSharder()], constraints


def raises():
    raise RuntimeError("no data here")


def nothing():
    return None


def too_much():
    return module(), [], {}, 4


not_a_function = 3
