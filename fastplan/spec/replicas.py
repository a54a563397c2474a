"""Replica groups of a spec's cluster, and the spec of one group."""

from __future__ import annotations

from dataclasses import replace as replace_fields

from fastplan.model.job import CannotPlan
from fastplan.model.replicas import ReplicaGroups
from fastplan.model.vocabulary import SIZE_FIELDS
from fastplan.spec.hardware import Hardware
from fastplan.spec.model import ModelSpec, replace

_OF_THE_CLUSTER = ("bw_", "layout_rank_memory")


def replica_groups(
    spec: ModelSpec, hardware: Hardware, groups: int, *, use_inter_host_allreduce: bool = False
) -> ReplicaGroups:
    """Returns the replica groups of a spec's cluster.

    Args:
        spec: The spec of the whole job.
        hardware: Its hardware, from `cluster_of`.
        groups: The number of groups.
        use_inter_host_allreduce: Whether groups have consecutive ranks.

    Raises:
        ReplicaGroupsError: The ranks can't form such groups.
    """
    assert spec.topology.world_size is not None
    return ReplicaGroups(
        world_size=spec.topology.world_size,
        groups=groups,
        ranks_per_host=hardware.ranks_per_host,
        use_inter_host_allreduce=use_inter_host_allreduce,
        pod_size=hardware.pod_size or 1,
    )


def group_spec(spec: ModelSpec, groups: ReplicaGroups) -> ModelSpec:
    """Returns the spec of one replica group, whose plan all groups use.

    Ranks that differ in memory have that of their smallest replica, because all replicas hold the
    same shards.

    Args:
        spec: The spec of the whole job.
        groups: Its replica groups.

    Raises:
        CannotPlan: The spec gives costs of the whole cluster, which a group does not have.
    """
    for name in spec.cost:
        if name.startswith(_OF_THE_CLUSTER) or name.endswith(SIZE_FIELDS):
            raise CannotPlan(
                f"`cost.{name}` is a number of the whole cluster, and replica groups are smaller: "
                "remove it from the spec"
            )
    if groups.groups == 1:
        return spec
    topology = spec.topology
    hardware = topology.hardware
    if hardware is not None and hardware.pod_size is not None:
        pod_size = groups.group_pod_size(groups.pod_size)
        hardware = replace_fields(hardware, pod_size=pod_size)
    topology = replace(
        topology,
        hardware=hardware,
        world_size=groups.group_size,
        local_world_size=groups.local_world_size,
        pod_size=topology.pod_size and groups.group_pod_size(topology.pod_size),
        rank_hbm=_smallest(topology.rank_hbm, groups),
        rank_ddr=_smallest(topology.rank_ddr, groups),
        rank_ssd=_smallest(topology.rank_ssd, groups),
    )
    return replace(spec, topology=topology)


def _smallest(given: tuple[int, ...] | None, groups: ReplicaGroups) -> tuple[int, ...] | None:
    if given is None or len(given) != groups.world_size:  # which `lower` reports
        return given
    return tuple(
        min(given[rank] for rank in groups.replicas_at(position))
        for position in range(groups.group_size)
    )
