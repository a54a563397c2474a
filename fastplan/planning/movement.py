"""The movement from one plan to another: which tables change, and what ranks must fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.model.cuts import copy_shards
from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Plan, Shards, TableLayout
from fastplan.model.request import Table
from fastplan.planning.move_time import Ints, LinkSums, move_seconds

UNCHANGED = "unchanged"
KERNEL = "kernel"  # same shards on the same ranks, another kernel
MOVED = "moved"  # same shards on other ranks
RESHARDED = "re-sharded"  # another sharding type or other shards
ADDED = "added"
REMOVED = "removed"
CHANGES = (RESHARDED, MOVED, KERNEL, ADDED, REMOVED, UNCHANGED)

ASSUMED_ELEMENT_SIZE = 4  # if no request gives it

_NO_SHARDS = np.empty((0, 5), np.int64)


class TableMovement(NamedTuple):
    """The change of one table."""

    path: str
    name: str
    change: str  # one of CHANGES
    # that ranks need and do not hold yet, over all ranks; None if no plan has the shape
    bytes: int | None
    before: TableLayout | None
    after: TableLayout | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """The changes between two plans, with weights and optimizer state in bytes.

    Bytes that a rank needs and does not hold come from another rank, or are created because no
    rank holds them: added tables, and added rows or columns of a table.
    """

    tables: tuple[TableMovement, ...]  # largest first
    rank_received: NDArray[np.int64]
    rank_sent: NDArray[np.int64]
    rank_created: NDArray[np.int64]
    seconds: float | None  # of the rank that takes longest; None without a request
    assumed: bool  # elements of 4 bytes and no optimizer state: there is no request

    @property
    def bytes(self) -> int:
        """All bytes that are sent from rank to rank."""
        return sum(self.rank_received.tolist())

    @property
    def created(self) -> int:
        return sum(self.rank_created.tolist())

    @property
    def unknown(self) -> tuple[TableMovement, ...]:
        """Tables whose bytes are not counted, because no plan has their shape."""
        return tuple(table for table in self.tables if table.bytes is None)

    def count(self, change: str) -> int:
        """Returns the number of tables with this change."""
        return sum(table.change == change for table in self.tables)


def movement(
    before: Plan, after: Plan, transfers: dict[tuple[str, str], Transfers] | None = None
) -> Movement:
    """Returns the changes from `before` to `after`. Tables are matched by module and name.

    Rank 3 of one plan is rank 3 of the other. If several ranks have a copy, a rank fetches from
    its own host if possible. `transfers` receives, by table, what is sent from rank to rank.
    """
    basis = after.basis or before.basis
    log: list[Transfers] | None = None if transfers is None else []
    flows = Flows(max(before.ranks, after.ranks), _ranks_per_host(before, after), log)
    facts = _facts(before) | _facts(after)
    tables = []
    for key, (old, new) in _pairs(before, after).items():
        tables.append(_table(old, new, facts.get(key), flows))
        if transfers is not None and log:
            transfers[key] = log.pop()
    moved = [table for table in tables if table.change != REMOVED and table.bytes != 0]
    return Movement(
        tables=tuple(sorted(tables, key=_largest_first)),
        rank_received=flows.near + flows.far,
        rank_sent=flows.sent,
        rank_created=flows.created,
        seconds=move_seconds(flows.sums, None if basis is None else basis.request, flows.hosts),
        assumed=any((table.path, table.name) not in facts for table in moved),
    )


def _pairs(
    before: Plan, after: Plan
) -> dict[tuple[str, str], tuple[TableLayout | None, TableLayout | None]]:
    old = {(table.path, table.name): table for table in before.layout.tables}
    new = {(table.path, table.name): table for table in after.layout.tables}
    return {key: (old.get(key), new.get(key)) for key in {**new, **old}}


def _facts(plan: Plan) -> dict[tuple[str, str], Table]:
    if plan.basis is None:
        return {}
    return {(table.path, table.name): table for table in plan.basis.request.tables}


def _ranks_per_host(before: Plan, after: Plan) -> int | None:
    for plan in (after, before):
        if plan.basis is not None:
            return plan.basis.cluster.local_world_size
    return after.layout.ranks_per_host or before.layout.ranks_per_host


def _largest_first(table: TableMovement) -> tuple[int, int]:
    return -(table.bytes or 0), CHANGES.index(table.change)


def _table(
    old: TableLayout | None, new: TableLayout | None, facts: Table | None, flows: Flows
) -> TableMovement:
    known = new or old
    assert known is not None
    if new is None:
        return TableMovement(known.path, known.name, REMOVED, 0, old, new)
    shapes = [table.shape for table in (new, old) if table is not None]
    if facts is not None:
        shapes.append((facts.rows, facts.dim))
    shape = next((found for found in shapes if found is not None), None)
    held = _NO_SHARDS if old is None else _filled(old, shape)
    needed = _filled(new, shape)
    change = ADDED if old is None else _change(old, new, held, needed)
    size: int | None = 0
    if change not in (UNCHANGED, KERNEL):
        size = None
        if held is not None and needed is not None:
            size = flows.add(
                held,
                needed,
                held_copies=old is not None and _is_copied(old),
                needed_copies=_is_copied(new),
                element_size=ASSUMED_ELEMENT_SIZE if facts is None else facts.element_size,
                state=0.0 if facts is None else facts.optimizer_multiplier,
            )
    return TableMovement(known.path, known.name, change, size, old, new)


def _is_copied(table: TableLayout) -> bool:
    return table.sharding_type == "data_parallel"


def _filled(table: TableLayout, shape: tuple[int, int] | None) -> Shards | None:
    """Returns the table's shards, with `shape` if they have none; None without a shape."""
    if table.shape is not None:
        return table.shards
    if shape is None or not (_is_copied(table) or len(table.shards) == 1):
        return None
    return copy_shards(shape, table.shards[:, RANK])


def _change(old: TableLayout, new: TableLayout, held: Shards | None, needed: Shards | None) -> str:
    if old.sharding_type != new.sharding_type:
        return RESHARDED
    if held is None or needed is None:
        held, needed = old.shards, new.shards
        # An unknown size does not count as a changed size.
        same_cut = _is_copied(old) or len(held) == len(needed)
    elif _is_copied(old):
        same_cut = np.array_equal(held[:1, :RANK], needed[:1, :RANK])
    else:
        same_cut = np.array_equal(held[:, :RANK], needed[:, :RANK])
    if not same_cut:
        return RESHARDED
    if not np.array_equal(held[:, RANK], needed[:, RANK]):
        return MOVED
    return UNCHANGED if old.kernel == new.kernel else KERNEL


_NOBODY = -1


class Transfers(NamedTuple):
    """The transfers of one table: number of the new shard, ranks from and to, bytes."""

    shard: Ints
    source: Ints
    target: Ints
    bytes: Ints


class Flows:
    """Sums over tables, by rank: received from its own host and from others, sent, created.

    If `transfers` is a list, each added table appends its transfers to it.
    """

    def __init__(
        self, ranks: int, ranks_per_host: int | None, transfers: list[Transfers] | None = None
    ) -> None:
        self.transfers = transfers
        self.near = np.zeros(ranks, np.int64)
        self.far = np.zeros(ranks, np.int64)
        self.sent = np.zeros(ranks, np.int64)
        self.created = np.zeros(ranks, np.int64)
        self.sent_far = np.zeros(ranks, np.int64)
        self.hosts = np.arange(ranks) // (ranks_per_host or 1)

    @property
    def sums(self) -> LinkSums:
        """What all tables come to, by link."""
        return LinkSums(self.near, self.far, self.sent - self.sent_far, self.sent_far)

    def add(
        self,
        held: Shards,
        needed: Shards,
        *,
        held_copies: bool,
        needed_copies: bool,
        element_size: int,
        state: float,
    ) -> int:
        """Adds one table: the shards that ranks hold, and those that they need.

        Both sides may be copies of the whole table. `state` is the size of the optimizer state
        relative to the weights. Returns the bytes that ranks need and do not hold.
        """

        def size(cells: Any) -> Ints:
            weights: Ints = np.asarray(cells, np.int64) * element_size
            optimizer: Ints = np.rint(weights * state).astype(np.int64)
            return weights + optimizer

        if not len(needed):
            return 0
        if needed_copies:
            needed = needed[np.unique(needed[:, RANK], return_index=True)[1]]
        if held_copies and len(held):
            return self._from_copies(held, needed, size)
        if needed_copies:
            return self._to_copies(held, needed, size)
        return self._from_shards(held, needed, size)

    def _from_shards(self, held: Shards, needed: Shards, size: Any) -> int:
        """Counts each cell of the grid of all shard borders."""
        rows, columns = (_edges(held, needed, at) for at in ((ROW, ROWS), (COLUMN, COLUMNS)))
        cells = np.outer(np.diff(rows), np.diff(columns)).ravel()
        holder, shard = _owners(held, rows, columns), _owners(needed, rows, columns)
        source = np.append(held[:, RANK], _NOBODY)[holder]
        target = np.append(needed[:, RANK], _NOBODY)[shard]
        missing = (target != _NOBODY) & (target != source)
        return self._receive(source[missing], target[missing], size(cells[missing]), shard[missing])

    def _from_copies(self, held: Shards, needed: Shards, size: Any) -> int:
        """Each holder has the whole table, so a rank fetches what it needs from one of them."""
        holders = np.unique(held[:, RANK])
        target = needed[:, RANK]
        cells = needed[:, ROWS] * needed[:, COLUMNS]
        there = _inside(needed, held[0, ROWS], held[0, COLUMNS])
        lacking = ~np.isin(target, holders)
        count = self._create(target, size(cells - there))
        source = self._nearest(holders, target[lacking])
        shard = np.flatnonzero(lacking)
        return count + self._receive(source, target[lacking], size(there[lacking]), shard)

    def _to_copies(self, held: Shards, needed: Shards, size: Any) -> int:
        """Each rank of `needed` fetches the whole table, except for what it has."""
        targets = needed[:, RANK]
        shape = needed[0, ROWS], needed[0, COLUMNS]
        cells = _inside(held, *shape)
        own = np.zeros(len(self.near), np.int64)
        np.add.at(own, held[:, RANK], size(cells))
        by_host = np.zeros(len(self.near), np.int64)
        np.add.at(by_host, self.hosts, own)
        near = by_host[self.hosts[targets]] - own[targets]
        far = own.sum() - own[targets] - near
        self.near[targets] += near
        self.far[targets] += far
        self.sent += own * len(targets)
        self.sent[targets] -= own[targets]
        beside = np.zeros(len(own), np.int64)
        np.add.at(beside, self.hosts[targets], 1)
        self.sent_far += own * (len(targets) - beside[self.hosts])
        if self.transfers is not None:
            copy, source = (each.ravel() for each in np.indices((len(targets), len(own))))
            sent = (source != targets[copy]) & (own[source] > 0)
            copy, source = copy[sent], source[sent]
            self.transfers.append(Transfers(copy, source, targets[copy], own[source]))
        created = np.full(len(targets), size(shape[0] * shape[1] - cells.sum()))
        return int(near.sum() + far.sum()) + self._create(targets, created)

    def _receive(self, source: Ints, target: Ints, amount: Ints, shard: Ints) -> int:
        nowhere = source == _NOBODY
        self._create(target[nowhere], amount[nowhere])
        here = ~nowhere
        is_near = here & (self.hosts[source] == self.hosts[target])
        is_far = here & ~is_near
        np.add.at(self.near, target[is_near], amount[is_near])
        np.add.at(self.far, target[is_far], amount[is_far])
        np.add.at(self.sent, source[here], amount[here])
        np.add.at(self.sent_far, source[is_far], amount[is_far])
        if self.transfers is not None:
            self.transfers.append(
                Transfers(*(each[here] for each in (shard, source, target, amount)))
            )
        return int(amount.sum())

    def _create(self, target: Ints, amount: Ints) -> int:
        np.add.at(self.created, target, amount)
        return int(amount.sum())

    def _nearest(self, holders: Ints, targets: Ints) -> Ints:
        """Returns a holder for each target, in turn, and on the target's host if possible."""
        hosts = self.hosts[holders]
        begin = np.searchsorted(hosts, self.hosts[targets], "left")
        count = np.searchsorted(hosts, self.hosts[targets], "right") - begin
        alone = count == 0
        begin[alone], count[alone] = 0, len(holders)
        found: Ints = holders[begin + targets % count]
        return found


def _edges(held: Shards, needed: Shards, at: tuple[int, int]) -> Ints:
    """Returns the distinct positions where shards begin and end."""
    start, length = at
    starts = [side[:, start] for side in (held, needed)]
    ends = [side[:, start] + side[:, length] for side in (held, needed)]
    edges = np.concatenate(starts + ends)
    edges.sort(kind="stable")  # mostly a merge
    first: Ints = edges[np.append(True, edges[1:] != edges[:-1])]
    return first


def _owners(shards: Shards, rows: Ints, columns: Ints) -> Ints:
    """Returns the shard of each cell of a grid, row by row."""
    top = np.searchsorted(rows, shards[:, ROW])
    left = np.searchsorted(columns, shards[:, COLUMN])
    height = np.searchsorted(rows, shards[:, ROW] + shards[:, ROWS]) - top
    width = np.searchsorted(columns, shards[:, COLUMN] + shards[:, COLUMNS]) - left
    covered = height * width
    shard = np.repeat(np.arange(len(shards)), covered)
    number = np.arange(len(shard)) - np.repeat(np.cumsum(covered) - covered, covered)
    across = width[shard]
    row = top[shard] + number // across
    column = left[shard] + number % across
    owners = np.full((len(rows) - 1) * (len(columns) - 1), _NOBODY, np.int64)
    owners[row * (len(columns) - 1) + column] = shard
    return owners


def _inside(shards: Shards, rows: int, columns: int) -> Ints:
    """Returns the number of cells of each shard inside a table of this shape."""
    height = np.minimum(shards[:, ROW] + shards[:, ROWS], rows) - shards[:, ROW]
    width = np.minimum(shards[:, COLUMN] + shards[:, COLUMNS], columns) - shards[:, COLUMN]
    cells: Ints = np.maximum(height, 0) * np.maximum(width, 0)
    return cells
