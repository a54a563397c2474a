"""Why nothing fits, in bytes and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fastplan.model.request import Request
from fastplan.planning.result import Result

_CUT_BY_ROWS = frozenset({"row_wise", "table_row_wise", "grid_shard"})
_IN_HOST_MEMORY = frozenset({"fused_uvm", "fused_uvm_caching", "quant_uvm", "quant_uvm_caching"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why nothing fits: the proposal that needs least, against what there is, in bytes."""

    needed: dict[str, int]  # by tier, over all ranks
    available: dict[str, int]
    largest_table: str  # the table with the largest shard of that proposal
    largest_shard: int
    largest_rank: int  # what the rank with most memory has of the tier that is short
    tier: str
    # what that table is not allowed and what would make its shards smaller there, in words
    forbidden: tuple[str, ...] = ()

    @property
    def largest(self) -> str:
        """The table that is hardest to place, and what to do if no rank can hold a shard of it."""
        from fastplan.spec.units import format_size

        text = (
            f"the largest shard is {format_size(self.largest_shard)} of table "
            f"{self.largest_table} in {self.tier.upper()}, and a rank has "
            f"{format_size(self.largest_rank)} there"
        )
        if self.largest_shard > self.largest_rank and self.forbidden:
            text += f": allow that table {', or '.join(self.forbidden)}"
        return text

    def __str__(self) -> str:
        from fastplan.spec.units import format_size

        needed, there = self.needed[self.tier], self.available[self.tier]
        if needed > there:
            return (
                f"short of {format_size(needed - there)} {self.tier.upper()}: at least "
                f"{format_size(needed)} are needed on all ranks together, and there are "
                f"{format_size(there)}"
            )
        if self.largest_shard > self.largest_rank:
            return (
                f"table {self.largest_table} needs {format_size(self.largest_shard)} of "
                f"{self.tier.upper()} on one rank, and the largest rank has "
                f"{format_size(self.largest_rank)}"
            )
        return (
            f"{format_size(needed)} of {format_size(there)} {self.tier.upper()} would be needed, "
            "but the shards do not pack onto the ranks"
        )


def shortage_of(result: Result) -> Shortage:
    """What the proposal that needs least storage lacks, for a job of which nothing fits.

    Args:
        result: of a native search that has found no plan.
    """
    searched, request = result.searched, result.job.request
    assert searched is not None
    assert searched.problem is not None
    assert searched.solution is not None
    assert request is not None
    space, cluster = searched.problem.space, searched.problem.cluster
    ranks = {"hbm": cluster.rank_hbm, "ddr": cluster.rank_ddr, "ssd": cluster.rank_ssd}
    chosen = np.asarray(searched.solution.lowest, np.int64)
    begin, end = space.option_run_begin[chosen], space.option_run_begin[chosen + 1]
    runs = np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)])
    owner = np.repeat(chosen, end - begin)
    needed, available, pressure = {}, {}, {}
    for tier, capacity in ranks.items():
        size = getattr(space, f"run_{tier}")[runs]
        needed[tier] = int((size * space.run_count[runs]).sum())
        available[tier] = int(sum(max(0, n) for n in capacity))
        room = max(max(capacity), 1)
        pressure[tier] = max(needed[tier] / max(available[tier], 1), int(size.max()) / room)
    tier = max(pressure, key=lambda name: pressure[name])
    size = getattr(space, f"run_{tier}")[runs]
    largest = int(size.argmax())
    table = int(np.searchsorted(space.table_option_begin, owner[largest], side="right")) - 1
    return Shortage(
        needed=needed,
        available=available,
        largest_table=request.tables[table].name,
        largest_shard=int(size[largest]),
        largest_rank=max(ranks[tier]),
        tier=tier,
        forbidden=tuple(_forbidden(request, table, tier)),
    )


def _forbidden(request: Request, table: int, tier: str) -> Iterator[str]:
    """What the menu of a table lacks that would need less of a tier on a rank."""
    menu = request.menus[request.tables[table].menu]
    if not _CUT_BY_ROWS & {item.sharding_type for item in menu}:
        yield "sharding types that cut it"
    if tier == "hbm" and not _IN_HOST_MEMORY & {item.kernel for item in menu}:
        yield "kernels in host memory"
