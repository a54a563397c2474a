"""Small checkpoints, as plain DCP writes them, and plan files."""

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from fastplan import save_plan
from tests.torchrec.shardings import DIM, Shardings, column_wise, plan_of, row_wise, table_wise

ROWS = 6
KEY = "tables.embedding_bags.t{}.weight"


def weights(number: int = 0) -> torch.Tensor:
    return torch.arange(ROWS * DIM, dtype=torch.float32).view(ROWS, DIM) + 100 * number


def content(tables: int = 2) -> dict[str, Any]:
    """What a job with row-wise Adagrad and whole tables saves."""
    keys = [KEY.format(i) for i in range(tables)]
    return {
        "model": {
            **{key: weights(i) for i, key in enumerate(keys)},
            "over.weight": torch.ones(2, 2),
        },
        "optim": {
            "state": {key: {f"t{i}.momentum1": momentum(i)} for i, key in enumerate(keys)},
        },
        "epoch": 7,
    }


def momentum(number: int = 0) -> torch.Tensor:
    return torch.arange(ROWS, dtype=torch.float32) + 10 * number


def write(path: Path, state: dict[str, Any] | None = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DCP says that there is no process group
        dcp.save(content() if state is None else state, checkpoint_id=path, no_dist=True)
    return path


def write_plan(path: Path, shardings: Shardings | None = None) -> Path:
    if shardings is None:
        shardings = {"t0": row_wise(ROWS, 0, 1, 2), "t1": column_wise(ROWS, 0, 1)}
    save_plan(plan_of(shardings), path)
    return path


def whole_plan(path: Path) -> Path:
    return write_plan(path, {"t0": table_wise(ROWS, 0), "t1": table_wise(ROWS, 1)})
