"""One rank of a real DMPCollection over gloo: starts it, trains a step, syncs, prints what it saw.

DMPCollection is for GPUs. Two things stop it on CPUs, and are changed here and nowhere else: an
assertion about the device, and placements with an index (`cpu:1`), which torch refuses.
"""

import ast
import inspect
import logging
import sys
import textwrap
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.remote_device import _remote_device
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.optim import RowWiseAdagrad

from fastplan import (
    ReplicaPlanError,
    Replicas,
    check_2d_plan,
    check_replicas,
    group_topology,
    plan_2d,
)
from fastplan.torchrec.two_dimensional import plan_layout_of
from tests.torchrec.processes import end_rank
from tests.torchrec.small_job import SHARDERS, batch, model

CPU = torch.device("cpu")
TYPES = ("table_wise", "row_wise", "column_wise", "table_row_wise")
CONSTRAINTS = {
    f"t{i}": ParameterConstraints(sharding_types=[kind], compute_kernels=["fused"], min_partition=4)
    for i, kind in enumerate(TYPES)
}


def without_assertion(cls: Any) -> Any:
    """DMPCollection's own constructor, without its first statement."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__)))
    constructor = tree.body[0]
    assert isinstance(constructor, ast.FunctionDef)
    assert "device.type" in ast.unparse(constructor.body.pop(0))
    outer = ast.parse("def make(__class__):\n    return __init__").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, constructor)
    names = dict(vars(sys.modules[cls.__module__]))
    code = ast.fix_missing_locations(ast.Module([outer], []))
    exec(compile(code, cls.__module__, "exec"), names)
    return names["make"](cls)


class CpuCollection(DMPCollection):
    """DMPCollection on CPUs."""

    __init__ = without_assertion(DMPCollection)

    def _remap_sharding_plan(self, plan: Any, *args: Any, **kwargs: Any) -> None:
        super()._remap_sharding_plan(plan, *args, **kwargs)
        for module_plan in plan.plan.values():
            for sharding in module_plan.values():
                for shard in sharding.sharding_spec.shards:
                    shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")


def shards(plan: Any) -> Any:
    """Shards of all tables, by name."""
    return {table.name: table.shards.tolist() for table in plan_layout_of(plan).tables}


def weights(collection: Any) -> list[Any]:
    """What sync() all-reduces on this rank: weights, then optimizer states."""
    context = collection._default_ctx
    found = []
    for tensors in (context.weights_by_dtype, context.optimizer_tensors_by_dtype):
        found.append([each.tolist() for values in tensors.values() for each in values])
    return found


def synced_bytes(collection: Any) -> list[int]:
    context = collection._default_ctx
    return [
        sum(each.nbytes for values in tensors.values() for each in values)
        for tensors in (context.weights_by_dtype, context.optimizer_tensors_by_dtype)
    ]


def trained(plan: Any, arguments: dict[str, Any], rank: int, optimizer: Any) -> dict[str, Any]:
    """A start, a step with this rank's batch and a sync."""
    group = dist.GroupMember.WORLD
    collection = CpuCollection(
        model(optimizer=optimizer), CPU, plan, global_pg=group, sharders=SHARDERS, **arguments
    )
    out = collection(batch(rank))
    (out * out).sum().backward()
    before = weights(collection)
    collection.sync()
    context = collection._default_ctx
    plans: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(plans, collection.plan)
    return {
        "group": dist.get_process_group_ranks(context.sharding_pg),
        "replicas": dist.get_process_group_ranks(context.replica_pg),
        "shards": shards(collection.plan),
        "bytes": synced_bytes(collection),
        "before": before,
        "after": weights(collection),
        "plans": plans,
    }


def refused(call: Any, *args: Any, **kwargs: Any) -> str | None:
    try:
        call(*args, **kwargs)
    except (ReplicaPlanError, AssertionError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def run(rank: int, world: int, host: int, consecutive: bool) -> dict[str, Any]:
    topology = Topology(
        world_size=world, local_world_size=host, compute_device="cuda", hbm_cap=1 << 34
    )
    settings = Replicas(groups=2, use_inter_host_allreduce=consecutive)
    everyone = dist.GroupMember.WORLD
    results: dict[str, Any] = {}
    for name, optimizer in (("ours", torch.optim.Adagrad), ("torchrecs", RowWiseAdagrad)):
        module = model(optimizer=optimizer)
        found = plan_2d(
            module,
            SHARDERS,
            topology,
            replicas=settings,
            process_group=everyone,
            constraints=CONSTRAINTS,
            stats=[],
        )
        plan, groups = found.plan, found.replication.groups
        if name == "torchrecs":
            own = EmbeddingShardingPlanner(
                topology=group_topology(topology, groups), constraints=CONSTRAINTS, stats=[]
            )
            plan = own.collective_plan(module, SHARDERS, everyone)
            results["same plan"] = plan == found.plan
        check_2d_plan(plan, groups, module=module, sharders=SHARDERS)
        sync = found.replication.sync
        assert sync is not None
        planned = {
            "planned": shards(plan),
            "planned bytes": [sync.bytes.weights.tolist(), sync.bytes.states.tolist()],
            "stopped": refused(
                DMPCollection, module, CPU, plan, global_pg=everyone, **found.arguments
            ),
        }
        seen = trained(plan, found.arguments, rank, optimizer)
        plans = dict(enumerate(seen.pop("plans")))
        check_replicas(plans, groups)
        seen["used twice"] = refused(check_2d_plan, plan, groups)
        plans[world - 1].plan["tables"]["t0"].sharding_type = "column_wise"
        seen["differing"] = refused(check_replicas, plans, groups)
        results[name] = {**planned, **seen}
    return results


def main(rank: int, world: int, folder: str, host: int, consecutive: bool) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    results = run(rank, world, host, consecutive)
    end_rank(results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1")
