"""Which rank of a new cluster is which of the old one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Layout, Plan
from fastplan.planning.assignment import assign

LOST = -1

RankMap = tuple[int, ...]  # old rank -> new rank, or LOST


def rank_map(given: Sequence[int | None] | None, old: int, new: int) -> RankMap:
    """Where each of `old` ranks is among `new` ones.

    Without a mapping, ranks keep their number as far as there are as many. A mapping has the new
    rank of each old one, None or -1 for a rank that is lost. Raises ValueError that names the rank.
    """
    if given is None:
        return tuple(rank if rank < new else LOST for rank in range(old))
    if len(given) != old:
        raise ValueError(
            f"`rank_map` must have a new rank for each of the {old} old ones, not {len(given)}"
        )
    found = tuple(LOST if rank is None else int(rank) for rank in given)
    seen: dict[int, int] = {}
    for before, after in enumerate(found):
        if after == LOST:
            continue
        if not 0 <= after < new:
            raise ValueError(f"`rank_map` sends rank {before} to {after}; there are {new} ranks")
        if after in seen:
            raise ValueError(f"`rank_map` sends ranks {seen[after]} and {before} to {after}")
        seen[after] = before
    return found


def renumbered(plan: Plan, ranks: RankMap, new: int) -> Plan:
    """The plan's shards under the new numbers. Lost ranks get numbers beyond the `new` ranks.

    What the plan was made from is left out, since it speaks of other ranks.
    """
    numbers = np.array(ranks, np.int64)
    lost = np.flatnonzero(numbers == LOST)
    numbers[lost] = new + np.arange(len(lost))
    if np.array_equal(numbers, np.arange(len(numbers))):
        return plan
    tables = []
    for table in plan.layout.tables:
        shards = table.shards.copy()
        shards[:, RANK] = numbers[shards[:, RANK]]
        tables.append(table._replace(shards=shards))
    layout = Layout(
        tables=tuple(tables), device=plan.layout.device, ranks_per_host=plan.layout.ranks_per_host
    )
    return replace(plan, layout=layout, basis=None)


def best_renumbering(plan: Plan, previous: Plan) -> RankMap:
    """New numbers for a plan's ranks under which it moves least from the previous plan.

    Ranks of one host stay on one host: hosts are matched by what their ranks could keep, ranks
    within them by what they hold. For a job that may choose which process gets which rank.
    """
    size = plan.layout.ranks_per_host or plan.ranks
    hosts = -(-max(plan.ranks, previous.ranks) // size)
    kept = _kept(plan, previous, hosts * size).reshape(hosts, size, hosts, size)
    inner = [[assign(kept[new, :, old, :]) for old in range(hosts)] for new in range(hosts)]
    whole = np.array(
        [
            [kept[new, range(size), old, inner[new][old]].sum() for old in range(hosts)]
            for new in range(hosts)
        ]
    )
    numbers = []
    for new, old in enumerate(assign(whole)):
        numbers += [old * size + at for at in inner[new][old]]
    # A number beyond the plan's own ranks would be a rank that is lost.
    found = tuple(numbers[: plan.ranks])
    return found if sorted(found) == list(range(plan.ranks)) else tuple(range(plan.ranks))


def _kept(plan: Plan, previous: Plan, ranks: int) -> NDArray[np.float64]:
    """Elements that a rank of the plan would keep if it were a rank of the previous one."""
    held = {(table.path, table.name): table for table in previous.layout.tables}
    kept = np.zeros((ranks, ranks))
    for table in plan.layout.tables:
        old = held.get((table.path, table.name))
        if old is None or "data_parallel" in (table.sharding_type, old.sharding_type):
            continue
        for shard in table.shards:
            rows, columns = (
                np.minimum(old.shards[:, at] + old.shards[:, of], shard[at] + shard[of])
                - np.maximum(old.shards[:, at], shard[at])
                for at, of in ((ROW, ROWS), (COLUMN, COLUMNS))
            )
            cells = np.maximum(rows, 0) * np.maximum(columns, 0)
            np.add.at(kept[shard[RANK]], old.shards[:, RANK], cells)
    return kept
