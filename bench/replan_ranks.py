"""The best numbers for the ranks of a plan from scratch, with which it moves the fewest bytes."""

import numpy as np
from numpy.typing import NDArray

from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Plan
from fastplan.planning.held import RankMap


def best_renumbering(plan: Plan, previous: Plan) -> RankMap:
    """Returns new numbers for a plan's ranks that minimise the moves from the previous plan.

    Ranks of one host stay on one host: hosts are matched first, then the ranks within them, by
    the elements that they could keep. For jobs that can choose which process gets which rank.
    """
    size = plan.layout.ranks_per_host or plan.ranks
    hosts = -(-max(plan.ranks, previous.ranks) // size)
    kept = _kept(plan, previous, hosts * size).reshape(hosts, size, hosts, size)
    inner = [[_assign(kept[new, :, old, :]) for old in range(hosts)] for new in range(hosts)]
    whole = np.array(
        [
            [kept[new, range(size), old, inner[new][old]].sum() for old in range(hosts)]
            for new in range(hosts)
        ]
    )
    numbers = []
    for new, old in enumerate(_assign(whole)):
        numbers += [old * size + at for at in inner[new][old]]
    # A number beyond the plan's own ranks would mean a lost rank.
    found = tuple(numbers[: plan.ranks])
    return found if sorted(found) == list(range(plan.ranks)) else tuple(range(plan.ranks))


def _kept(plan: Plan, previous: Plan, ranks: int) -> NDArray[np.float64]:
    """Returns, by rank of the plan and of the previous plan, the elements that could stay."""
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


def _assign(gain: NDArray[np.float64]) -> list[int]:
    """Assigns each row of a square matrix to its own column, with the largest sum.

    This is the Hungarian method: each row is added along the cheapest path to a free column.
    """
    size = len(gain)
    cost = gain.max(initial=0.0) - gain
    of_row, of_column = np.zeros(size), np.zeros(size + 1)
    row_at = np.full(size + 1, -1)  # of each column; the last column is where a new row waits
    for row in range(size):
        row_at[size], at = row, size
        least, came_from = np.full(size, np.inf), np.full(size, size)
        done = np.zeros(size + 1, bool)
        while row_at[at] >= 0:
            done[at] = True
            here = row_at[at]
            reduced = cost[here] - of_row[here] - of_column[:size]
            better = ~done[:size] & (reduced < least)
            least[better], came_from[better] = reduced[better], at
            at = int(np.where(done[:size], np.inf, least).argmin())
            step = least[at]
            of_row[row_at[done]] += step
            of_column[done] -= step
            least[~done[:size]] -= step
        while at != size:
            row_at[at] = row_at[came_from[at]]
            at = int(came_from[at])
        row_at[size] = -1
    columns = [0] * size
    for column in range(size):
        columns[int(row_at[column])] = column
    return columns
