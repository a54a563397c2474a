"""Tables moved in a running job, by TorchRec's own reshard()."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv, ShardingPlan

from fastplan.torchrec.resharding import Resharding, reshard_arguments


def reshard(job: DistributedModelParallel, after: ShardingPlan) -> Resharding:
    """Moves the tables of a running job to where a plan has them, all of them or none.

    Every rank calls it at the same step, with no batch in flight. Where the result's
    `needs_restart` names a table, nothing has moved, on any rank. A model that is not sharded is a
    TypeError.
    """
    for name, value, kind in (
        ("job", job, DistributedModelParallel),
        ("after", after, ShardingPlan),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` must be a {kind.__name__}, not a {type(value).__name__}")
    found = reshard_arguments(job.plan, after)
    if found.needs_restart or not found.steps:
        return found
    if why := _why_restart(job, found):
        return Resharding([], why)
    for step in found.steps:
        for path in step:
            job.reshard(step, path)
            # TorchRec leaves it as the last batch had it: features that were in the order of the
            # tables before would go to wrong tables now that they are not.
            _module(job, path)._has_features_permute = True
    return found


def _why_restart(job: DistributedModelParallel, found: Resharding) -> dict[str, str]:
    """Table -> what of the job stands against moving it, the same on all ranks."""
    own = {path: _why_module(job, path) for path in found.steps[-1]}
    # A rank without a table knows nothing of its optimizer, so that all have to tell.
    told: list[Any] = [None] * job._env.world_size
    dist.all_gather_object(told, (hash("fastplan"), own), group=job._env.process_group)
    hashes, reasons = zip(*told, strict=True)
    why_all = ""
    if job.device.type == "cpu" and len(set(hashes)) > 1:
        # TorchRec's tags of messages over gloo are hashes of tables' names.
        why_all = "PYTHONHASHSEED must be the same on all ranks"
    return {
        f"{path}.{name}": why
        for path, (_, shardings) in found.steps[-1].items()
        for name in shardings
        if (why := next(filter(None, (why_all, *(each[path] for each in reasons))), ""))
    }


def _why_module(job: DistributedModelParallel, path: str) -> str:
    module = _module(job, path)
    if type(job._env) is not ShardingEnv:
        return "TorchRec's reshard knows no replicas of tables"
    if not hasattr(job._dmp_wrapped_module, "module"):
        return "TorchRec's reshard needs dense weights beside the tables"
    if not hasattr(module, "update_shards"):
        return f"TorchRec can't reshard a {type(module).__name__}"
    states = (
        name for table in module.fused_optimizer.state_dict()["state"].values() for name in table
    )
    lost = sorted({name.split(".")[-1] for name in states} - {"momentum1"})
    return f"TorchRec's reshard loses the optimizer's {lost[0]}" if lost else ""


def _module(job: DistributedModelParallel, path: str) -> Any:
    return job.module.get_submodule(path)
