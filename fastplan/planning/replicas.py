"""Plans specs for replica groups (2D parallelism), and chooses their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fastplan.model.job import DoesNotFit
from fastplan.model.replicas import ReplicaGroups, possible_groups
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.planning.search import Result
from fastplan.planning.sync import Links, Sync, rank_memory, sync_cost, synced_bytes
from fastplan.plans.replicas import why_no_state, why_not_synced

if TYPE_CHECKING:
    from fastplan.spec.hardware import Hardware
    from fastplan.spec.model import ModelSpec

AUTO: Literal["auto"] = "auto"
_OF_ADAM = 2.0  # states per weight, as TorchRec counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How a job trains several copies of its tables, as TorchRec's DMPCollection does.

    Attributes:
        groups: number of replica groups, each with a whole copy; "auto" takes the number with the
            shortest estimated step.
        use_inter_host_allreduce: as DMPCollection's: each group has consecutive ranks.
        sync_interval: steps from one `sync()` to the next; 1, as in TorchRec's train pipelines.
        sync_optimizer: whether `sync()` also averages optimizer states, as it does by default.
    """

    groups: int | Literal["auto"] = AUTO
    use_inter_host_allreduce: bool = False
    sync_interval: int = 1
    sync_optimizer: bool = True

    def __post_init__(self) -> None:
        groups, interval = self.groups, self.sync_interval
        if groups != AUTO and (type(groups) is not int or groups < 1):
            raise ValueError(f'`groups` must be a whole number from 1 or "auto", not {groups!r}')
        if type(interval) is not int or interval < 1:
            raise ValueError(f"`sync_interval` must be a whole number from 1, not {interval!r}")

    def possible(self, world_size: int, ranks_per_host: int) -> list[int]:
        """Returns the numbers of groups to try."""
        if isinstance(self.groups, int):
            return [self.groups]
        return possible_groups(world_size, ranks_per_host, self.use_inter_host_allreduce)


def as_replicas(given: Replicas | int | Literal["auto"]) -> Replicas:
    """Returns the settings that an argument stands for."""
    return given if isinstance(given, Replicas) else Replicas(groups=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A number of replica groups, with its estimates; these are None if its plan does not fit.

    Attributes:
        groups: the replica groups.
        rating: the rating of the plan of one group, in ms.
        sync_ms: the time of one `sync()`.
        step_ms: the rating, and the part of a sync that falls to one step.
        memory: by tier, bytes on the fullest rank and its capacity. Replicas hold the same.
        reason: why nothing fits; empty if a plan fits.
    """

    groups: ReplicaGroups
    rating: float | None = None
    sync_ms: float | None = None
    step_ms: float | None = None
    memory: dict[str, tuple[int, int]] | None = None
    reason: str = ""

    @staticmethod
    def of(
        groups: ReplicaGroups,
        rating: float,
        sync: Sync,
        settings: Replicas,
        memory: dict[str, tuple[int, int]] | None = None,
    ) -> Candidate:
        """Returns a candidate that fits."""
        return Candidate(
            groups=groups,
            rating=rating,
            sync_ms=sync.total_ms,
            step_ms=rating + sync.total_ms / settings.sync_interval,
            memory=memory,
        )


def fastest(candidates: Sequence[Candidate]) -> int:
    """Returns the number of the candidate with the shortest step.

    Among equal ones, the fewest groups win: they leave the most memory. If none fits, it is the
    first one, which has the most ranks per group.
    """
    steps = [(each.step_ms, i) for i, each in enumerate(candidates) if each.step_ms is not None]
    return min(steps)[1] if steps else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The replica groups of a plan.

    Attributes:
        groups: the replica groups.
        node_group_size: ranks of a group that share a table's rows, as table_row_wise does.
        settings: the settings that were given.
        sync: the cost of one sync; None if nothing fits.
        candidates: the numbers of groups that were tried, ascending.
        not_synced: tables that `sync()` leaves out, with the reason.
    """

    groups: ReplicaGroups
    node_group_size: int
    settings: Replicas
    sync: Sync | None
    candidates: tuple[Candidate, ...]
    not_synced: dict[str, str]

    @property
    def chosen(self) -> Candidate:
        """The candidate of these groups."""
        return next(each for each in self.candidates if each.groups == self.groups)

    @property
    def arguments(self) -> dict[str, Any]:
        """DMPCollection's arguments that belong to the plan."""
        return {
            "world_size": self.groups.world_size,
            "sharding_group_size": self.groups.group_size,
            "node_group_size": self.node_group_size,
            "use_inter_host_allreduce": self.groups.use_inter_host_allreduce,
        }

    @property
    def notes(self) -> dict[str, str]:
        """What a plan file says about the groups."""
        return {
            "world_size": str(self.groups.world_size),
            "replica_groups": str(self.groups.groups),
            "use_inter_host_allreduce": str(self.groups.use_inter_host_allreduce).lower(),
            "sync_interval": str(self.settings.sync_interval),
        }


def plan_replicas(
    spec: ModelSpec, settings: Replicas, *, trust: bool = False, **arguments: Any
) -> Result:
    """Plans one replica group of a spec. All groups use its plan.

    If the number of groups is "auto", candidates are compared by TorchRec's plans: `optimize`,
    `previous` and `replan` are for the chosen one.

    Args:
        spec: the spec, with the cluster of the whole job.
        settings: the replica groups.
        trust: whether to import the functions that the spec names.
        arguments: those of `plan_job`.

    Returns:
        The plan of one group; `replication` has the groups and the cost of their sync.

    Raises:
        ReplicaGroupsError: the ranks can't form such groups.
        CannotPlan: as `lower` and `plan_job`.
    """
    from fastplan.planning.specs import plan_job
    from fastplan.spec.cluster import cluster_of
    from fastplan.spec.lower import lower
    from fastplan.spec.replicas import group_spec, replica_groups

    hardware, shape = cluster_of(spec)
    numbers = settings.possible(shape.world_size, shape.local_world_size)
    several = len(numbers) > 1
    common = {"cache": arguments.get("cache")} if several else arguments
    candidates: list[Candidate] = []
    results: list[Result | DoesNotFit] = []
    job = None
    for number in numbers:
        groups = replica_groups(
            spec,
            hardware,
            number,
            use_inter_host_allreduce=settings.use_inter_host_allreduce,
        )
        try:
            like = None if spec.topology.rank_ssd else job  # tables may use SSDs if ranks have them
            job = lower(group_spec(spec, groups), trust=trust, like=like)
            results.append(plan_job(job, **common))
        except DoesNotFit as why:
            results.append(why)
        candidates.append(_candidate(results[-1], groups, hardware, settings))
    best = fastest(candidates)
    result = results[best]
    if isinstance(result, DoesNotFit):
        raise result
    if several and any(arguments[name] is not None for name in arguments if name != "cache"):
        result = plan_job(result.job, **arguments)  # type: ignore[arg-type]
        candidates[best] = _candidate(result, candidates[best].groups, hardware, settings)
    return _replicated(result, candidates[best].groups, hardware, settings, tuple(candidates))


def _links(hardware: Hardware) -> Links:
    return Links(hardware.intra_host_bw, hardware.inter_host_bw, hardware.hbm_to_ddr_mem_bw)


def _sync(result: Result, groups: ReplicaGroups, hardware: Hardware, settings: Replicas) -> Sync:
    synced = synced_bytes(result, optimizer=settings.sync_optimizer)
    return sync_cost(synced, groups, _links(hardware))


def _candidate(
    result: Result | DoesNotFit, groups: ReplicaGroups, hardware: Hardware, settings: Replicas
) -> Candidate:
    if isinstance(result, DoesNotFit):
        return Candidate(groups=groups, reason=str(result))
    if result.rating is None:
        return Candidate(groups=groups, reason=str(result.shortage))
    sync = _sync(result, groups, hardware, settings)
    return Candidate.of(groups, result.rating, sync, settings, rank_memory(result))


def _replicated(
    result: Result,
    groups: ReplicaGroups,
    hardware: Hardware,
    settings: Replicas,
    candidates: tuple[Candidate, ...],
) -> Result:
    """Returns the result with its replica groups."""
    fits = result.placement is not None
    replication = Replication(
        groups=groups,
        node_group_size=result.job.cluster.group_size,
        settings=settings,
        sync=_sync(result, groups, hardware, settings) if fits else None,
        candidates=candidates,
        not_synced=_not_synced(result) if fits and groups.groups > 1 else {},
    )
    return replace(result, replication=replication)


def _not_synced(result: Result) -> dict[str, str]:
    request, record = result.job.request, result.record
    assert request is not None
    assert record is not None
    found = {}
    for number, kind, kernel in zip(
        record.table.tolist(), record.sharding_type.tolist(), record.kernel.tolist(), strict=True
    ):
        table = request.tables[number]
        if reason := why_not_synced(SHARDING_TYPES[kind], KERNELS[kernel]):
            found[table.name] = reason
        elif table.optimizer_multiplier == _OF_ADAM and SHARDING_TYPES[kind] != "data_parallel":
            found[table.name] = why_no_state("adam")
    return found
