"""A rank that plans with the others through TorchRec's planner API."""

import sys
from pathlib import Path

import torch.distributed as dist
from torchrec.distributed.planner.api import ProductionPlannerOrchestrator

import fastplan
from fastplan.torchrec.loader import ProtocolPlanCache
from tests.torchrec.processes import end_rank
from tests.torchrec.test_planner_api import context, dry_run


def main(rank: int, ranks: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'group'}", rank=rank, world_size=ranks
    )
    own = folder / str(rank)
    executor = fastplan.PlannerExecutor(
        fastplan.PlannerProvider(cache=False), plan_cache=ProtocolPlanCache(own / "cache")
    )
    reporter = fastplan.PlanReporter(own / "reports", formats=["json"])
    asked = dry_run()
    result = ProductionPlannerOrchestrator(executor, "H100", reporter).plan(asked, context(asked))[
        "H100"
    ]
    found = {
        "plan": str(result.sharding_plan),
        "is_planning_rank": result.is_planning_rank,
        "has_qps": result.estimated_qps is not None,
        "reports": sorted(path.name for path in (own / "reports").glob("*")),
        "stored": executor._plan_cache.get(asked.fingerprint("H100")) is not None,
    }
    end_rank(found)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
