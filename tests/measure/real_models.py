"""Real models and datasets for measuring, and one that fails when it is built again and again."""

import os
import signal

import torch
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    KeyedJaggedTensor,
)

ROWS, DIM, TABLES = 600, 16, 4
BUILT = 0


class Whole(torch.nn.Module):
    """A sparse part, and a dense one that is not measured."""

    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(1 << 12, 1 << 10)
        self.sparse = torch.nn.Module()
        self.sparse.bags = EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(
                    name=f"t{i}",
                    embedding_dim=DIM,
                    num_embeddings=ROWS,
                    feature_names=[f"f{i}"],
                )
                for i in range(TABLES)
            ],
        )


def build():
    return Whole()


def build_until_third():
    """The third model that rank 1 builds is its end."""
    global BUILT
    BUILT += 1
    if os.environ.get("RANK") == "1" and BUILT == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return Whole()


def batches(rank, ranks):
    """Endless batches of a user's own."""
    random = torch.Generator().manual_seed(rank)
    while True:
        lengths = torch.randint(0, 5, (TABLES * 8,), generator=random)
        yield KeyedJaggedTensor(
            keys=[f"f{i}" for i in range(TABLES)],
            values=torch.randint(ROWS, (int(lengths.sum()),), generator=random),
            lengths=lengths,
        )
