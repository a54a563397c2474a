"""Plans after a previous plan and without one, with a cache; prints keys and plans."""

import json
import logging
import sys
import warnings
from pathlib import Path

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology

from fastplan import EmbeddingShardingPlanner, Replan, save_plan

# Equal tables: the order of options decides most ties.
OLD = [f"t{i}" for i in range(8)]
NEW = [*OLD[1:], "n0", "n1"]
TYPES = ["table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise"]
RULES = {name: ParameterConstraints(sharding_types=TYPES) for name in {*OLD, *NEW}}
SHARDERS = [EmbeddingBagCollectionSharder()]


def model(names):
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=128, num_embeddings=1000, feature_names=[f"f_{name}"]
        )
        for name in names
    ]
    return EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def planner(**more):
    topology = Topology(world_size=4, compute_device="cuda")
    return EmbeddingShardingPlanner(topology=topology, constraints=RULES, stats=[], **more)


def main(folder):
    previous = folder / "previous.json"
    if not previous.exists():
        used = planner(deterministic=True)
        save_plan(used.plan(model(OLD), SHARDERS), previous, planner=used)
    policy = Replan(slack=0.0, reference="scratch")
    given = {"previous": previous, "replan": policy}
    found = []
    for more in (given, {**given, "deterministic": True}, {}):
        used = planner(cache=folder / "cache", **more)
        plan = used.plan(model(NEW), SHARDERS)
        run = used.last_run
        found.append(
            {
                "key": run.cache.fingerprint,
                "plan": str(plan),
                "followed": run.replan is not None and run.replan.followed,
                "status": run.cache.status,
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main(Path(sys.argv[1]))
