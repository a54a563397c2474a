"""Replica groups: which ranks hold a whole copy of the tables, and which hold the same shards.

TorchRec's DMPCollection trains several copies of the tables. A replica group (a sharding group in
TorchRec) holds all tables once and is planned for. Replicas (TorchRec's `replica_pg`) are the ranks
with the same position in every group: they hold the same shards, and `sync()` averages them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


class ReplicaGroupsError(ValueError):
    """Ranks that can't form such replica groups. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroups:
    """The ranks of a job in groups of equal size, as DMPCollection forms them.

    Attributes:
        world_size: ranks of the job.
        groups: number of replica groups, so of copies of the tables.
        ranks_per_host: ranks of one host.
        use_inter_host_allreduce: as DMPCollection's. False: ranks of a group are `groups` apart, so
            that replicas are neighbours. True: a group has consecutive ranks.
        pod_size: hosts whose ranks are linked as fast as those of one host.

    Raises:
        ReplicaGroupsError: the groups differ in size, or a group has more ranks on one of its hosts
            than on another.
    """

    world_size: int
    groups: int
    ranks_per_host: int
    use_inter_host_allreduce: bool = False
    pod_size: int = 1

    def __post_init__(self) -> None:
        for name in ("world_size", "groups", "ranks_per_host", "pod_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ReplicaGroupsError(f"`{name}` must be a whole number from 1, not {value!r}")
        if self.world_size % self.ranks_per_host:
            raise ReplicaGroupsError(
                f"{self.world_size} ranks do not fill hosts of {self.ranks_per_host}: change "
                "`world_size` or `ranks_per_host`"
            )
        if self.world_size % self.groups:
            raise ReplicaGroupsError(
                f"{self.world_size} ranks can't form {self.groups} replica groups of the same "
                f"size: choose one of {self._choices()}"
            )
        if not self._fills(self.ranks_per_host):
            way_out = f"choose one of {self._choices()}"
            if not self.use_inter_host_allreduce and self.group_size % self.ranks_per_host == 0:
                way_out += ", or use `use_inter_host_allreduce`"
            raise ReplicaGroupsError(
                f"{self.groups} replica groups of {self.group_size} ranks can't be spread evenly "
                f"over hosts of {self.ranks_per_host} ranks: {way_out}"
            )

    def _fills(self, near_ranks: int) -> bool:
        """Whether each host or pod of `near_ranks` has as many ranks of a group as any other."""
        # Ranks of a group are consecutive, or replicas are.
        unit = self.group_size if self.use_inter_host_allreduce else self.groups
        return unit % near_ranks == 0 or near_ranks % unit == 0

    def _choices(self) -> str:
        sizes = possible_groups(self.world_size, self.ranks_per_host, self.use_inter_host_allreduce)
        return ", ".join(map(str, sizes))

    @property
    def group_size(self) -> int:
        """Ranks of one group: the world size that is planned for."""
        return self.world_size // self.groups

    @property
    def local_world_size(self) -> int:
        """Ranks of one group on one host."""
        if self.use_inter_host_allreduce:
            return min(self.group_size, self.ranks_per_host)
        return max(1, self.ranks_per_host // self.groups)

    def ranks_of(self, group: int) -> range:
        """Returns the ranks of a group, by their position in it."""
        if self.use_inter_host_allreduce:
            return range(group * self.group_size, (group + 1) * self.group_size)
        return range(group, self.world_size, self.groups)

    def replicas_at(self, position: int) -> range:
        """Returns the ranks that hold the shards of one position, by group."""
        if self.use_inter_host_allreduce:
            return range(position, self.world_size, self.group_size)
        return range(position * self.groups, (position + 1) * self.groups)

    def group_of(self, rank: int) -> int:
        """Returns the group of a rank."""
        return rank // self.group_size if self.use_inter_host_allreduce else rank % self.groups

    def position_of(self, rank: int) -> int:
        """Returns the position of a rank in its group: its rank in the plan."""
        return rank % self.group_size if self.use_inter_host_allreduce else rank // self.groups

    @property
    def near_replicas(self) -> int:
        """Of the ranks that hold the same shards, how many share a host or a pod.

        A pod counts only if every pod has the same number of them.
        """
        near_ranks = self.pod_size * self.ranks_per_host
        if not self._fills(near_ranks):
            near_ranks = self.ranks_per_host
        apart = self.group_size if self.use_inter_host_allreduce else 1
        return min(self.groups, max(1, near_ranks // apart))

    def group_pod_size(self, pod_size: int) -> int:
        """Returns how many hosts of a group share a pod of `pod_size` hosts."""
        ranks = pod_size * self.ranks_per_host
        hosts = self.group_size // self.local_world_size
        if self.use_inter_host_allreduce or self.groups <= self.ranks_per_host:
            return next((size for size in (pod_size, hosts) if _divide(size, pod_size, hosts)), 1)
        return ranks // self.groups if ranks % self.groups == 0 else 1


def _divide(size: int, *numbers: int) -> bool:
    return all(number % size == 0 for number in numbers)


def possible_groups(
    world_size: int, ranks_per_host: int, use_inter_host_allreduce: bool = False
) -> list[int]:
    """Returns the numbers of replica groups that ReplicaGroups accepts, ascending."""
    return [*_possible(world_size, ranks_per_host, use_inter_host_allreduce)]


def _possible(world: int, host: int, inter_host: bool) -> Iterator[int]:
    for groups in range(1, world + 1):
        if world % groups:
            continue
        unit = world // groups if inter_host else groups
        if unit % host == 0 or host % unit == 0:
            yield groups
