"""What a table was when a checkpoint was saved, and what it is now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import Entry
from fastplan.checkpoint.sources import Region, column_cuts
from fastplan.checkpoint.storage import PLAN, Checkpoint
from fastplan.model.plan import RANK, TableLayout
from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import parse_plan


class Move(NamedTuple):
    """A table of a checkpoint that was loaded.

    Attributes:
        table: its key.
        before: how it was sharded when it was saved; without a plan, how its chunks are cut.
        after: how the job shards it.
        states: its states that were loaded.
    """

    table: str
    before: str
    after: str
    states: tuple[str, ...]

    def __str__(self) -> str:
        what = ", ".join(("weights", *self.states))
        return f"{self.table}: {self.before} > {self.after} ({what})"


def describe_layout(table: TableLayout) -> str:
    """Returns a table's sharding in a few words, such as `row_wise fused on ranks 0-3`."""
    ranks = sorted({int(rank) for rank in table.shards[:, RANK]})
    runs = _runs(ranks)
    cut = "" if table.sharding_type == "data_parallel" else f" in {len(table.shards)}"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{table.sharding_type} {table.kernel}{cut} on {noun} {runs}"


def _runs(ranks: list[int]) -> str:
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def saved_layouts(checkpoint: Checkpoint) -> dict[tuple[str, str], TableLayout] | None:
    """Returns the plan that was saved with a checkpoint, by module and table; None without one."""
    try:
        text = checkpoint.plan_text()
        if text is None:
            return None
        layout = parse_plan(text, f"{checkpoint.name}/{PLAN}").layout
    except (PlanFileError, CheckpointError):
        return None  # a damaged plan must not keep anyone from the weights
    return {(table.path, table.name): table for table in layout.tables}


def _describe_chunks(entry: Entry, after: TableLayout) -> str:
    """Returns how a table is cut in a checkpoint that has no plan; `after` if it is the same."""
    regions = [Region(*chunk.offsets, *chunk.sizes) for chunk in entry.chunks]
    whole = after.sharding_type == "data_parallel" and len(regions) == 1
    if whole or {*regions} == {Region(*map(int, shard)) for shard in after.shards[:, :RANK]}:
        return describe_layout(after)
    rows = len({(region.row, region.rows) for region in regions})
    return f"{rows} x {len(column_cuts(regions))} chunks"


def describe_moves(
    checkpoint: Checkpoint, plan: Any, weights: Iterable[tuple[Any, Entry]]
) -> tuple[Move, ...]:
    """Returns what becomes of each table of a job, without the states that are loaded.

    Args:
        checkpoint: where it is loaded from.
        plan: the job's plan.
        weights: the job's tables, each with its entry in the checkpoint.
    """
    from fastplan.torchrec.plan_files import describe_plan

    before = saved_layouts(checkpoint) or {}
    layout = describe_plan(plan, drop_statistics=True).layout
    after = {(table.path, table.name): table for table in layout.tables}
    found = []
    for table, entry in weights:
        place = table.path, table.name
        old, new = before.get(place), after[place]
        text = _describe_chunks(entry, new) if old is None else describe_layout(old)
        found.append(Move(table.key, text, describe_layout(new), ()))
    return tuple(found)
