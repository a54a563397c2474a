"""A small job, run as a process of its own: plans, compiles, takes a step, tells what it did.

python -m tests.bundle.job BUNDLE
"""

import json
import sys
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import Topology  # noqa: E402

import fastplan.bundle  # noqa: E402
from fastplan import EmbeddingShardingPlanner  # noqa: E402
from fastplan.bundle import compiled  # noqa: E402
from tests.cli.models import module  # noqa: E402


def unreadable() -> str:
    """What becomes of artifacts that are none of torch's."""
    try:
        compiled.load(b"these are no artifacts")
    except ValueError as error:
        return str(error)
    return "loaded"


def main() -> None:
    start = fastplan.bundle.start(sys.argv[1], trust=True, model="small")
    topology = Topology(world_size=2, compute_device="cpu")
    planner = EmbeddingShardingPlanner(topology=topology, cache=start.cache)
    plan = planner.plan(module(), [EmbeddingBagCollectionSharder()])
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        result = torch.compile(dense)(torch.rand(8, 13)).sum()
    told = {
        "loaded": [start.plans, start.artifacts, start.kernels],
        "cache": planner.last_run.cache.status,
        "plan": str(plan),
        "hits": counters["inductor"]["fxgraph_cache_hit"],
        "misses": counters["inductor"]["fxgraph_cache_miss"],
        "result": result.item().hex(),
        "saved": start.save(),
        "notes": start.notes,
        "unreadable": unreadable(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
