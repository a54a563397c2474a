"""Ranks that a table can have: what TorchRec can run, by sharding type.

Row-wise and data-parallel tables are on every rank of the job, table-row-wise ones on every rank of
one host, or of one group of hosts, and so is each column of a grid. Column-wise shards may be
anywhere, and share a rank. A file does not say how many ranks the job has. So without a topology or
a basis it is only asked that no rank has such a table twice, and that a module's tables agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from fastplan.engine.layout import blocks_in
from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.plans.checks import below, refuse
from fastplan.plans.entries import RankRuns, TableEntry

_BY_HOST = frozenset({"table_row_wise", "grid_shard"})


class Ranks(NamedTuple):
    """The ranks of a job, and how many of them are a host, or a group of hosts."""

    world: int
    group: int


def check_ranks(entries: Iterable[TableEntry], known: Ranks | None = None) -> None:
    """Raises BadValue, which names the table, for ranks that TorchRec can't run."""
    for _, tables in groupby(entries, key=lambda entry: entry.path):
        every: RankRuns | None = None  # of a row-wise table, so of all others in the module
        for entry in sorted(tables, key=lambda entry: entry.sharding_type != "row_wise"):
            if entry.ranks is None:
                continue
            _check_own(entry, entry.ranks)
            if known is not None:
                _check_known(entry, entry.ranks, known)
            if entry.cut is not None:
                every = every or (_in_order(entry.ranks) if _is_everywhere(entry) else None)
                _check_module(entry, entry.ranks, every)


def _is_everywhere(entry: TableEntry) -> bool:
    return entry.sharding_type == "row_wise"


def _check_own(entry: TableEntry, ranks: RankRuns) -> None:
    """What holds for a table by itself."""
    place = below(entry.place, "ranks")
    if entry.sharding_type == "table_wise" and _count(ranks) > 1:
        refuse(place, "one rank, for the table is in one piece", _shown(ranks))
    if entry.sharding_type not in UNIFORM_TYPES | _BY_HOST:
        return
    for column in _columns(entry, ranks):
        before = -1
        for first, last in _in_order(column):
            if first <= before:
                what = entry.sharding_type
                refuse(place, f"ranks that are there once, as {what} needs", _shown(column))
            before = last


def _check_known(entry: TableEntry, ranks: RankRuns, known: Ranks) -> None:
    """What holds on a cluster."""
    place = below(entry.place, "ranks")
    for _, last in ranks:
        if last >= known.world:
            refuse(place, f"below the {known.world} ranks that there are", last)
    if entry.listed is not None:  # on devices of another kind, of which there may be fewer
        return
    if entry.sharding_type in UNIFORM_TYPES and _joined(ranks) != ((0, known.world - 1),):
        everywhere = f"every rank in order, 0-{known.world - 1}, as {entry.sharding_type} needs"
        refuse(place, everywhere, _shown(ranks))
    if entry.sharding_type not in _BY_HOST:
        return
    for column in _columns(entry, ranks):
        hosts = {rank // known.group for run in column for rank in run}
        if len(hosts) > 1 or _count(column) != known.group:
            one_host = f"all ranks of one host of {known.group}, as {entry.sharding_type} needs"
            refuse(place, one_host, _shown(column))


def _check_module(entry: TableEntry, ranks: RankRuns, every: RankRuns | None) -> None:
    """A row-wise table tells the ranks that its module is sharded over."""
    if every is None:
        return
    place = below(entry.place, "ranks")
    if _is_everywhere(entry) and _in_order(ranks) != every:
        refuse(place, f"{_shown(every)}, as of the module's other row-wise tables", _shown(ranks))
    for i, run in enumerate(ranks):
        if not any(low <= run[0] and run[1] <= high for low, high in every):
            where = f"among {_shown(every)}, where the module's row-wise tables are"
            refuse(f"{place}[{i}]", where, *_shown((run,)))


def _columns(entry: TableEntry, ranks: RankRuns) -> list[RankRuns]:
    """The ranks of each column of blocks; shards go down the rows first."""
    if entry.sharding_type != "grid_shard" or entry.cut is None:
        return [ranks]
    height = blocks_in(entry.cut.rows)
    every = entry.all_ranks()
    return [
        tuple((rank, rank) for rank in every[i : i + height]) for i in range(0, len(every), height)
    ]


def _count(ranks: RankRuns) -> int:
    return sum(last - first + 1 for first, last in ranks)


def _in_order(ranks: RankRuns) -> RankRuns:
    """Runs in the order of their ranks, as few as there can be."""
    return _joined(tuple(sorted(ranks)))


def _joined(ranks: RankRuns) -> RankRuns:
    joined: list[tuple[int, int]] = []
    for first, last in ranks:
        if joined and joined[-1][1] + 1 == first:
            first = joined.pop()[0]
        joined.append((first, last))
    return tuple(joined)


def _shown(ranks: RankRuns) -> list[int | str]:
    return [first if first == last else f"{first}-{last}" for first, last in _joined(ranks)]
