"""Plans a small model with copies of TorchRec that standard input lists, each in a fork."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from importlib import import_module
from typing import Any

_LIST = """
import sys
before = set(sys.modules)
import torchrec.distributed.model_parallel, torchrec.distributed.planner, fastplan.torchrec.planning
print("\\n".join(name for name in sys.modules if name not in before))
"""


def preload() -> None:
    """Imports what TorchRec and fastplan import, but neither of them."""
    import subprocess

    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LIST], capture_output=True, text=True, check=True
    )
    for name in ended.stdout.split():
        if name.partition(".")[0] not in ("torchrec", "fastplan"):
            try:
                import_module(name)
            except Exception:  # some are only imported by others in a certain order
                continue


def build() -> tuple[Any, list[Any], dict[str, Any]]:
    import torch
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import ParameterConstraints, Topology
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    tables = [
        EmbeddingBagConfig(
            name=f"t{number}",
            embedding_dim=dim,
            num_embeddings=rows,
            feature_names=[f"f{number}"],
        )
        for number, (rows, dim) in enumerate([(40_000, 64), (1_000, 128), (250_000, 16)])
    ]
    model = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    constraints = {f"t{n}": ParameterConstraints(pooling_factors=[3.5 * n + 1]) for n in range(3)}
    topology = Topology(
        world_size=4, local_world_size=2, compute_device="cuda", hbm_cap=64 * 1024**2
    )
    arguments = {"topology": topology, "constraints": constraints, "stats": []}
    return model, [EmbeddingBagCollectionSharder()], arguments


def outcome(kind: Any) -> tuple[Any, Any, str]:
    """Returns the planner, its plan as text, and its error."""
    model, sharders, arguments = build()
    planner = kind(**arguments)
    try:
        plan = planner.plan(model, sharders)
    except Exception as error:
        return planner, None, f"{type(error).__name__}: {error}"
    specs = {
        name: [str(sharding), str(getattr(sharding.sharding_spec, "shards", None))]
        for tables in plan.plan.values()
        for name, sharding in tables.items()
    }
    return planner, [specs, planner._num_proposals, planner._num_plans], ""


def compare() -> dict[str, Any]:
    from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner

    from fastplan import EmbeddingShardingPlanner

    _, expected, failure = outcome(TorchRecPlanner)
    planner, actual, error = outcome(EmbeddingShardingPlanner)
    run = planner.last_run
    return {
        "same": (expected, failure) == (actual, error),
        "engine": run and run.engine,
        "reason": (run and run.reason) or "",
        "error": "" if failure else error,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    preload()
    for name, folder in json.load(sys.stdin).items():
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.path.insert(0, folder)
            try:
                found = compare()
            except BaseException as error:
                found = {
                    "same": False,
                    "engine": None,
                    "reason": "",
                    "error": f"{type(error).__name__}: {error}",
                }
            print(json.dumps({"name": name, **found}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
