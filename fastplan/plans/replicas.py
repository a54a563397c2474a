"""Checks a plan for replica groups, and maps it to the ranks of a group as DMPCollection does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fastplan.model.cuts import cut_of
from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Layout, Plan, Shards, TableLayout
from fastplan.model.replicas import ReplicaGroups, ReplicaGroupsError
from fastplan.model.vocabulary import UNIFORM_TYPES

# DMPCollection.sync() finds tables by FBGEMM's class SplitTableBatchedEmbeddingBagsCodegen, which
# TorchRec uses for these kernels.
SYNCED_KERNELS = frozenset({"fused", "fused_uvm", "fused_uvm_caching"})
HOST_KERNELS = frozenset({"fused_uvm", "fused_uvm_caching"})


class ReplicaPlanError(ValueError):
    """A plan that replica groups can't use.

    Attributes:
        table: the table, with its module.
        rank: the rank, if one is at fault.
        group: the replica group, if one is at fault.
    """

    def __init__(
        self, table: str, problem: str, *, rank: int | None = None, group: int | None = None
    ) -> None:
        super().__init__(f"table {table}: {problem}")
        self.table = table
        self.rank = rank
        self.group = group


class RankOutsideGroup(ReplicaPlanError):
    """A shard is on a rank that is not in its replica group."""


class ShardsMissing(ReplicaPlanError):
    """A replica group would not hold a whole copy of a table."""


class ShardsOverlap(ReplicaPlanError):
    """Two shards of a replica group hold the same part of a table."""


class ReplicasDiffer(ReplicaPlanError):
    """Ranks that are replicas of each other hold different shards."""


class NotSynchronized(ReplicaPlanError):
    """`DMPCollection.sync()` would leave a table out."""


def planned_groups(
    plan: Plan,
    groups: int,
    *,
    world_size: int | None = None,
    use_inter_host_allreduce: bool = False,
) -> ReplicaGroups:
    """Returns the replica groups that a plan of one group is for.

    Args:
        plan: The plan of one group.
        groups: The number of groups.
        world_size: Ranks of the job; by default as many groups as given, of the plan's ranks.
        use_inter_host_allreduce: Whether groups have consecutive ranks.

    Raises:
        ReplicaGroupsError: The ranks can't form such groups, or the plan is for another number.
    """
    if groups < 1:
        raise ReplicaGroupsError(f"`groups` must be 1 or more, not {groups}")
    # A layout does not show the hosts of the whole job, and the checks don't depend on them.
    found = ReplicaGroups(
        world_size=plan.ranks * groups if world_size is None else world_size,
        groups=groups,
        ranks_per_host=1,
        use_inter_host_allreduce=use_inter_host_allreduce,
    )
    if plan.basis is not None and plan.ranks != found.group_size:
        raise ReplicaGroupsError(
            f"the plan is for {plan.ranks} ranks, and {found.world_size} ranks in {groups} replica "
            f"groups are {found.group_size} in each: plan again for these groups"
        )
    return found


def noted_groups(plan: Plan) -> ReplicaGroups:
    """Returns the replica groups in a plan's notes, as `fastplan plan --replica-groups` has them.

    Raises:
        ReplicaGroupsError: The notes are incomplete, or the ranks can't form such groups.
    """
    notes = plan.notes
    try:
        groups, world = int(notes["replica_groups"]), int(notes["world_size"])
    except (KeyError, ValueError):
        raise ReplicaGroupsError(
            "the plan's notes `replica_groups` and `world_size` must be whole numbers: plan again, "
            "or remove both notes"
        ) from None
    consecutive = notes.get("use_inter_host_allreduce") == "true"
    return planned_groups(plan, groups, world_size=world, use_inter_host_allreduce=consecutive)


def check_layout(
    layout: Layout, groups: ReplicaGroups, *, shapes: Mapping[str, tuple[int, int]] | None = None
) -> None:
    """Checks the plan of one replica group, before DMPCollection maps it to ranks of the job.

    Args:
        layout: The plan, with ranks from 0 to `groups.group_size` - 1.
        groups: The replica groups.
        shapes: Rows and columns by full name of a table, if the layout does not have them.

    Raises:
        RankOutsideGroup, ShardsMissing, ShardsOverlap, NotSynchronized: The first problem found.
    """
    for table in layout.tables:
        _check_ranks(table, layout, groups)
        shape = (shapes or {}).get(full_name(table), table.shape)
        if table.sharding_type != "data_parallel" and shape is not None:
            _check_cover(table, shape)
        reason = why_not_synced(table.sharding_type, table.kernel)
        if reason and groups.groups > 1:
            raise NotSynchronized(full_name(table), reason)


def check_replicas(layouts: Mapping[int, Layout], groups: ReplicaGroups) -> None:
    """Checks that all replica groups place the tables alike, from the plans of ranks.

    Args:
        layouts: By rank of the job, its plan after DMPCollection has mapped it to ranks of the job.
        groups: The replica groups.

    Raises:
        RankOutsideGroup: A plan has a rank of another group.
        ReplicasDiffer: The plans of two ranks differ in a table.
    """
    first: tuple[int, Layout] | None = None
    for rank, layout in sorted(layouts.items()):
        own = _unmapped(layout, groups, groups.group_of(rank))
        if first is None:
            first = rank, own
        else:
            _check_alike(*first, rank, own, groups)


def why_not_synced(sharding_type: str, kernel: str) -> str:
    """Returns why `sync()` leaves a table out; empty if it does not, or need not."""
    if sharding_type == "data_parallel" or kernel in SYNCED_KERNELS:
        return ""  # DistributedDataParallel keeps data-parallel tables alike on all ranks
    known = ", ".join(sorted(SYNCED_KERNELS))
    return (
        f"DMPCollection.sync() does not synchronize kernel {kernel}, so its replicas would drift "
        f"apart: allow the table only {known}, with `compute_kernels` in its constraints"
    )


def check_optimizer(table: str, optimizer: str, readable: bool) -> None:
    """Raises NotSynchronized for an optimizer whose state DMPCollection can't read."""
    if not readable:
        raise NotSynchronized(table, why_no_state(optimizer))


def why_no_state(optimizer: str) -> str:
    """Returns why DMPCollection fails with an optimizer."""
    return (
        f"DMPCollection reads the optimizer state `sum`, and {optimizer} has none, so its start "
        "fails with KeyError: use SGD, Adagrad or RowWiseAdagrad"
    )


def full_name(table: TableLayout) -> str:
    """Returns the name of a table with that of its module."""
    return f"{table.path}.{table.name}" if table.path else table.name


def _on_ranks(table: TableLayout, ranks: Shards) -> TableLayout:
    shards = table.shards.copy()
    shards[:, RANK] = ranks
    return table._replace(shards=shards)


def _unmapped(layout: Layout, groups: ReplicaGroups, group: int) -> Layout:
    """Returns the plan of one group with positions instead of ranks of the job."""
    tables = []
    for table in layout.tables:
        ranks = table.shards[:, RANK]
        for rank in ranks.tolist():
            if not 0 <= rank < groups.world_size or groups.group_of(rank) != group:
                raise RankOutsideGroup(
                    full_name(table),
                    f"a shard is on rank {rank} in the plan of replica group {group}, which has "
                    f"ranks {_listed(groups.ranks_of(group))}: give every rank the plan of one "
                    "group, from `collective_plan`, and let DMPCollection map it once",
                    rank=rank,
                    group=group,
                )
        positions = np.array([groups.position_of(rank) for rank in ranks.tolist()], np.int64)
        tables.append(_on_ranks(table, positions))
    return replace(layout, tables=tuple(tables))


def _check_ranks(table: TableLayout, layout: Layout, groups: ReplicaGroups) -> None:
    ranks = table.shards[:, RANK]
    size = groups.group_size
    outside = ranks[(ranks < 0) | (ranks >= size)].tolist()
    if outside:
        group = _mapped_to(layout, groups)
        if group is None:
            way_out = f"plan for {size} ranks"
        else:
            way_out = (
                f"all shards are on ranks of replica group {group}, so DMPCollection has mapped "
                "the plan already, in place: plan again, or give it a copy"
            )
        raise RankOutsideGroup(
            full_name(table),
            f"a shard is on rank {outside[0]}, and a replica group has ranks 0 to {size - 1}: "
            f"{way_out}",
            rank=outside[0],
            group=group,
        )
    if table.sharding_type in UNIFORM_TYPES:
        missing = sorted(set(range(size)) - set(ranks.tolist()))
        if missing:
            raise ShardsMissing(
                full_name(table),
                f"{table.sharding_type} needs a shard on every rank of a replica group, and rank "
                f"{missing[0]} of {size} has none: plan for {size} ranks",
                rank=missing[0],
            )


def _mapped_to(layout: Layout, groups: ReplicaGroups) -> int | None:
    """Returns the group whose ranks a layout has, if all of them are of one group."""
    ranks = {rank for table in layout.tables for rank in table.shards[:, RANK].tolist()}
    if min(ranks) < 0 or max(ranks) >= groups.world_size:
        return None
    found = {groups.group_of(rank) for rank in ranks}
    return found.pop() if len(found) == 1 and len(ranks) > 1 else None


def _check_cover(table: TableLayout, shape: tuple[int, int]) -> None:
    """Checks that the shards hold every cell of the table once."""
    shards = table.shards
    cut = cut_of(shards)
    if cut is not None and cut.shape == shape:
        return
    if (pair := _overlap(shards)) is not None:
        one, other = (int(shards[i, RANK]) for i in pair)
        raise ShardsOverlap(
            full_name(table),
            f"shards {pair[0]} (rank {one}) and {pair[1]} (rank {other}) overlap: plan again, or "
            "correct their offsets and sizes",
            rank=other,
        )
    outside = (shards[:, ROW] + shards[:, ROWS] > shape[0]) | (
        shards[:, COLUMN] + shards[:, COLUMNS] > shape[1]
    )
    for i in np.flatnonzero(outside).tolist():
        raise ShardsOverlap(
            full_name(table),
            f"shard {i} reaches beyond the table's {shape[0]} x {shape[1]}: plan again",
            rank=int(shards[i, RANK]),
        )
    held, cells = int((shards[:, ROWS] * shards[:, COLUMNS]).sum()), shape[0] * shape[1]
    if held != cells:
        raise ShardsMissing(
            full_name(table),
            f"its {len(shards)} shards hold {held:,} of {cells:,} cells ({shape[0]} x {shape[1]}) "
            "in each replica group: plan again, or add the missing shards",
        )


def _overlap(shards: Shards) -> tuple[int, int] | None:
    """Returns the numbers of two shards that overlap, if any."""
    filled = np.flatnonzero((shards[:, ROWS] > 0) & (shards[:, COLUMNS] > 0))
    order = filled[np.argsort(shards[filled, ROW], kind="stable")]
    top, left = shards[order, ROW], shards[order, COLUMN]
    bottom, right = top + shards[order, ROWS], left + shards[order, COLUMNS]
    for i in range(len(order) - 1):
        rest = slice(i + 1, int(np.searchsorted(top, bottom[i])))
        hits = np.flatnonzero((left[rest] < right[i]) & (left[i] < right[rest]))
        if len(hits):
            pair = sorted((int(order[i]), int(order[i + 1 + hits[0]])))
            return pair[0], pair[1]
    return None


_ONE_PLAN = "plan on one rank for all of them, with `collective_plan` over all ranks of the job"


def _check_alike(
    rank: int, one: Layout, other_rank: int, other: Layout, groups: ReplicaGroups
) -> None:
    """Raises ReplicasDiffer for the first table that two ranks' plans place differently."""
    tables = {full_name(table): table for table in one.tables}
    others = {full_name(table): table for table in other.tables}
    here = f"rank {rank} (replica group {groups.group_of(rank)})"
    group = groups.group_of(other_rank)
    there = f"rank {other_rank} (replica group {group})"
    for name in {**tables, **others}:
        if name not in others:
            problem = f"{there} does not have it in its plan, and {here} has"
        elif name not in tables:
            problem = f"{here} does not have it in its plan, and {there} has"
        elif difference := _difference(tables[name], others[name]):
            problem = f"the plans of {here} and {there} differ in {difference}"
        else:
            continue
        raise ReplicasDiffer(name, f"{problem}: {_ONE_PLAN}", rank=other_rank, group=group)


def _difference(one: TableLayout, other: TableLayout) -> str:
    for name in ("sharding_type", "kernel"):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            return f"their {name.replace('_', ' ')}, {values[0]} and {values[1]}"
    if len(one.shards) != len(other.shards):
        return f"their number of shards, {len(one.shards)} and {len(other.shards)}"
    differing = np.flatnonzero((one.shards != other.shards).any(axis=1))
    if not len(differing):
        return ""
    first = int(differing[0])
    here, there = one.shards[first].tolist(), other.shards[first].tolist()
    if here[:RANK] != there[:RANK]:
        return f"the offsets or sizes of shard {first}"
    return f"shard {first}, which is at position {here[RANK]} and {there[RANK]} of the group"


def _listed(ranks: Iterable[int]) -> str:
    found = list(ranks)
    return ", ".join(map(str, found[:8])) + (", ..." if len(found) > 8 else "")
