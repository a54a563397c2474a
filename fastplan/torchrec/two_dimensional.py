"""2D parallelism: plans for TorchRec's DMPCollection, and checks of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import nn
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    DeviceHardware,
    Perf,
    PlannerError,
    Storage,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import EnumerableShardingSpec, ShardingPlan

from fastplan.model.plan import COLUMNS, RANK, ROWS, Layout, TableLayout
from fastplan.model.replicas import ReplicaGroups
from fastplan.planning.replicas import Candidate, Replicas, Replication, as_replicas, fastest
from fastplan.planning.sync import STATE_BYTES, Links, Sync, SyncBytes, sync_cost
from fastplan.plans import replicas as checks
from fastplan.plans.replicas import HOST_KERNELS, SYNCED_KERNELS, RankOutsideGroup, full_name
from fastplan.torchrec.planner import EmbeddingShardingPlanner

_TIERS = ("hbm", "ddr", "ssd")
# States that FBGEMM lists as `sum`, which is what DMPCollection reads: numbers per row, where None
# is the number of columns. SGD has no state.
_STATES: dict[str, int | None] = {"SGD": 0, "RowWiseAdagrad": 1, "Adagrad": None}
_FUSED_STATES = {
    "SGD": "SGD",
    "EXACT_SGD": "SGD",
    "EXACT_ROWWISE_ADAGRAD": "RowWiseAdagrad",
    "EXACT_ADAGRAD": "Adagrad",
}


@dataclass(frozen=True, kw_only=True)
class Plan2D:
    """A plan for DMPCollection, with its arguments.

    Example:
        found = fastplan.plan_2d(module, sharders, topology, replicas=2, process_group=pg)
        model = DMPCollection(module, device, found.plan, global_pg=pg, **found.arguments)

    Attributes:
        plan: the plan of one replica group. DMPCollection maps it in place: use it once.
        planner: the planner that made it; `planner.last_run` reports how.
        replication: the replica groups, the cost of their sync, and all candidates.
    """

    plan: ShardingPlan
    planner: EmbeddingShardingPlanner
    replication: Replication

    @property
    def arguments(self) -> dict[str, Any]:
        """DMPCollection's arguments that belong to the plan."""
        return self.replication.arguments


def plan_2d(
    module: nn.Module,
    sharders: list[Any],
    topology: Topology,
    *,
    replicas: Replicas | int | Literal["auto"] = "auto",
    process_group: Any = None,
    **planner: Any,
) -> Plan2D:
    """Plans a model for TorchRec's DMPCollection: the plan of one replica group.

    Args:
        module: the model.
        sharders: its sharders.
        topology: all ranks of the job.
        replicas: the number of replica groups; "auto" for the one with the shortest estimated step;
            or a `Replicas` with more settings.
        process_group: all ranks of the job, for which rank 0 then plans, as `collective_plan` does.
        planner: more arguments of `EmbeddingShardingPlanner`.

    Returns:
        The plan, and DMPCollection's arguments that belong to it.

    Raises:
        ReplicaGroupsError: the ranks can't form such groups.
        PlannerError: nothing fits.
        ReplicaPlanError: DMPCollection can't train the plan.
    """
    settings = as_replicas(replicas)
    found: list[tuple[ShardingPlan, EmbeddingShardingPlanner, Sync] | PlannerError] = []
    candidates = []
    for number in settings.possible(topology.world_size, topology.local_world_size):
        consecutive = settings.use_inter_host_allreduce
        groups = replica_groups_of(topology, number, use_inter_host_allreduce=consecutive)
        used = EmbeddingShardingPlanner(topology=group_topology(topology, groups), **planner)
        try:
            plan = _planned(used, module, sharders, process_group)
        except PlannerError as why:
            found.append(why)
            candidates.append(Candidate(groups=groups, reason=str(why).strip()))
            continue
        sync = _sync(plan, module, sharders, groups, topology, settings)
        found.append((plan, used, sync))
        candidates.append(_candidate(used, groups, sync, settings))
    best = fastest(candidates)
    chosen = found[best]
    if isinstance(chosen, PlannerError):
        raise chosen
    plan, used, sync = chosen
    groups = candidates[best].groups
    check_2d_plan(plan, groups, module=module, sharders=sharders)
    replication = Replication(
        groups=groups,
        node_group_size=used._topology.intra_group_size,
        settings=settings,
        sync=sync,
        candidates=tuple(candidates),
        not_synced={},
    )
    return Plan2D(plan=plan, planner=used, replication=replication)


def _planned(
    planner: EmbeddingShardingPlanner, module: nn.Module, sharders: list[Any], process_group: Any
) -> ShardingPlan:
    if process_group is None:
        return planner.plan(module, sharders)
    return planner.collective_plan(module, sharders, process_group)


def _candidate(
    planner: EmbeddingShardingPlanner, groups: ReplicaGroups, sync: Sync, settings: Replicas
) -> Candidate:
    assert planner.last_run is not None
    rating = planner.last_run.rating
    if rating is None:
        return Candidate(groups=groups, reason="its plan was loaded, and has no rating")
    return Candidate.of(groups, rating, sync, settings)


def replica_groups_of(
    topology: Topology, groups: int, *, use_inter_host_allreduce: bool = False
) -> ReplicaGroups:
    """Returns the replica groups of a topology's ranks, as DMPCollection forms them.

    Args:
        topology: all ranks of the job.
        groups: the number of replica groups.
        use_inter_host_allreduce: as DMPCollection's.

    Raises:
        ReplicaGroupsError: the ranks can't form such groups.
    """
    return ReplicaGroups(
        world_size=topology.world_size,
        groups=groups,
        ranks_per_host=topology.local_world_size,
        use_inter_host_allreduce=use_inter_host_allreduce,
    )


def group_topology(topology: Topology, groups: ReplicaGroups) -> Topology:
    """Returns the topology of one replica group, to plan for with any planner.

    A rank has the memory of the smallest of its replicas, because all of them hold its shards.
    Give DMPCollection the topology's `intra_group_size` as `node_group_size`.

    Args:
        topology: all ranks of the job.
        groups: its replica groups, from `replica_groups_of`.
    """
    found = copy.copy(topology)
    pod_size: int | None = getattr(topology, "_pod_size", None)
    pod_size = pod_size and groups.group_pod_size(pod_size)
    found._world_size = groups.group_size
    found._local_world_size = groups.local_world_size
    found._pod_size = pod_size
    found._intra_group_size = groups.local_world_size * (pod_size or 1)
    found._devices = [
        DeviceHardware(rank=position, storage=_least(topology, groups, position), perf=_no_perf())
        for position in range(groups.group_size)
    ]
    if topology._custom_topology_data is not None:
        given = topology._custom_topology_data
        found._custom_topology_data = CustomTopologyData(
            data={
                name: [
                    min(values[rank] for rank in groups.replicas_at(i))
                    for i in range(groups.group_size)
                ]
                for name in CustomTopologyData.supported_fields
                if given.has_data(name)
                for values in [given.get_data(name)]
            },
            world_size=groups.group_size,
        )
    return found


def _least(topology: Topology, groups: ReplicaGroups, position: int) -> Storage:
    """Returns the memory that every replica of a position has."""
    replicas = [topology.devices[rank].storage for rank in groups.replicas_at(position)]
    return Storage(*(min(getattr(each, tier) for each in replicas) for tier in _TIERS))


def _no_perf() -> Perf:
    return Perf(fwd_compute=0, fwd_comms=0, bwd_compute=0, bwd_comms=0)


def check_2d_plan(
    plan: ShardingPlan,
    groups: ReplicaGroups,
    *,
    module: nn.Module | None = None,
    sharders: list[Any] | None = None,
) -> None:
    """Checks the plan of one replica group, before it is given to DMPCollection.

    Args:
        plan: the plan.
        groups: the replica groups.
        module: the model, to know the sizes of its tables and their optimizers.
        sharders: its sharders; TorchRec's default ones if not given.

    Raises:
        ReplicaPlanError: the first problem: a rank outside of the group, shards that are missing or
            overlap, or a table that `sync()` can't average.
    """
    tables = {} if module is None else _parameters(plan, module, sharders)
    shapes = {name: (table.rows, table.columns) for name, table in tables.items()}
    layout = plan_layout_of(plan)
    checks.check_layout(layout, groups, shapes=shapes)
    for table in layout.tables if groups.groups > 1 else ():
        known = tables.get(full_name(table))
        if known is not None and table.kernel in SYNCED_KERNELS:
            checks.check_optimizer(full_name(table), known.optimizer, known.state is not _NO_SUM)


def check_replicas(plans: Mapping[int, ShardingPlan], groups: ReplicaGroups) -> None:
    """Checks that replicas hold the same shards, from the plans that ranks have.

    Args:
        plans: by rank of the job, the plan that its DMPCollection has mapped, `model.plan`. Gather
            one of each replica group, or those of all ranks.
        groups: the replica groups.

    Raises:
        RankOutsideGroup: a plan has a rank of another group.
        ReplicasDiffer: two groups place a table differently.
    """
    checks.check_replicas({rank: plan_layout_of(plan) for rank, plan in plans.items()}, groups)


def plan_layout_of(plan: ShardingPlan) -> Layout:
    """Returns the shards of a plan and their ranks.

    Raises:
        RankOutsideGroup: the ranks of a table are not those of its shards.
    """
    tables = []
    for path, module_plan in plan.plan.items():
        for name, sharding in module_plan.items():
            ranks, spec = list(sharding.ranks or ()), sharding.sharding_spec
            rows = [(0, 0, 0, 0, rank) for rank in ranks]
            table = TableLayout(
                path, name, sharding.sharding_type, sharding.compute_kernel, None, _array(rows), {}
            )
            if isinstance(spec, EnumerableShardingSpec):
                placed = [shard.placement.rank() for shard in spec.shards]
                if placed != ranks:
                    raise RankOutsideGroup(
                        full_name(table),
                        f"`ranks` is {ranks}, but its shards are on ranks {placed}: plan again",
                    )
                table = table._replace(shards=_array(map(_numbers, spec.shards, placed)))
                ends = table.shards[:, :2] + table.shards[:, 2:4]
                table = table._replace(shape=(int(ends[:, 0].max()), int(ends[:, 1].max())))
            tables.append(table)
    return Layout(tables=tuple(tables))


def _array(rows: Any) -> Any:
    return np.array([*rows], np.int64).reshape(-1, 5)


def _numbers(shard: Any, rank: int) -> tuple[int, ...]:
    return (*shard.shard_offsets, *shard.shard_sizes, rank)


_NO_SUM = -1


class _Parameter(NamedTuple):
    """A table of a module: its size, and what DMPCollection reads of its optimizer."""

    rows: int
    columns: int
    element_size: int
    optimizer: str
    state: int | None  # numbers per row; None is the number of columns, _NO_SUM is unreadable


def _parameters(
    plan: ShardingPlan, module: nn.Module, sharders: list[Any] | None
) -> dict[str, _Parameter]:
    """Returns the tables of a plan that the module has, by full name."""
    known = {each.module_type: each for each in sharders or get_default_sharders()}
    found = {}
    for path, module_plan in plan.plan.items():
        holder = module.get_submodule(path)
        sharder = known.get(type(holder))
        listed = {} if sharder is None else sharder.shardable_parameters(holder)
        fused = getattr(sharder, "fused_params", None) or {}
        for name in module_plan:
            if name in listed:
                found[f"{path}.{name}" if path else name] = _parameter(listed[name], fused)
    return found


def _parameter(parameter: Any, fused: Mapping[str, Any]) -> _Parameter:
    classes = getattr(parameter, "_optimizer_classes", None)
    if classes:
        optimizer = classes[0].__name__
    else:  # FBGEMM's default is SGD
        optimizer = getattr(fused.get("optimizer"), "name", "SGD")
        optimizer = _FUSED_STATES.get(optimizer, optimizer)
    rows, columns = parameter.shape
    state = _STATES.get(optimizer, _NO_SUM)
    return _Parameter(rows, columns, parameter.element_size(), optimizer, state)


def _sync(
    plan: ShardingPlan,
    module: nn.Module,
    sharders: list[Any],
    groups: ReplicaGroups,
    topology: Topology,
    settings: Replicas,
) -> Sync:
    bytes = synced_bytes(plan, module, sharders, groups, optimizer=settings.sync_optimizer)
    links = Links(topology.intra_host_bw, topology.inter_host_bw, topology.hbm_to_ddr_mem_bw)
    return sync_cost(bytes, groups, links)


def synced_bytes(
    plan: ShardingPlan,
    module: nn.Module,
    sharders: list[Any] | None,
    groups: ReplicaGroups,
    *,
    optimizer: bool = True,
) -> SyncBytes:
    """Returns the bytes that `sync()` all-reduces, by position of a rank in its group.

    Args:
        plan: the plan of one replica group.
        module: the model, not yet sharded.
        sharders: its sharders.
        groups: the replica groups.
        optimizer: whether optimizer states are included.
    """
    weights, states, host = (np.zeros(groups.group_size, np.int64) for _ in range(3))
    parameters = _parameters(plan, module, sharders)
    for table in plan_layout_of(plan).tables:
        known = parameters.get(full_name(table))
        if known is None or table.kernel not in SYNCED_KERNELS:
            continue
        rows, columns = table.shards[:, ROWS], table.shards[:, COLUMNS]
        weight = rows * columns * known.element_size
        per_row = columns if known.state is None else max(known.state, 0)
        state = rows * per_row * STATE_BYTES * optimizer
        position = table.shards[:, RANK]
        np.add.at(weights, position, weight)
        np.add.at(states, position, state)
        if table.kernel in HOST_KERNELS:
            np.add.at(host, position, weight + state)
    return SyncBytes(weights, states, host)
