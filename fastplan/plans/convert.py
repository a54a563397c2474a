"""Converts the tables of a plan file to layouts and back.

A layout says where shards are. Other content of a file, such as placements that follow no rule, is
stored in the layout's settings, so that nothing is lost when the file is written again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastplan.engine.layout import block_shards, copy_shards, cut_of
from fastplan.model.plan import COLUMN, COLUMNS, RANK, ROW, ROWS, Shards, TableLayout
from fastplan.plans.checks import BadValue, below, check_fields, refuse
from fastplan.plans.entries import SETTINGS, EntryReader, ListedShard, TableEntry, rank_runs
from fastplan.plans.placement import Device, PlacementRule, infer_rule, read_placement

# Limits beyond any real cluster and memory; below them, sums of bytes fit into 64 bits.
MOST_RANKS = 2**20
MOST_CELLS = 2**56

_ENTRY = ("shards", "ranks")  # fields that are settings only if a layout can't represent them


def table_layout(entry: TableEntry) -> TableLayout:
    """Returns the layout of a table.

    Raises:
        BadValue: The file does not say where its shards are, or the table is too large.
    """
    settings = dict(entry.settings)
    shape = None
    if entry.cut is not None:
        shape = entry.cut.shape
        shards = block_shards(entry.cut, entry.all_ranks())
    elif entry.listed is not None:
        shards = listed_shards(entry)
        shape = _extent(shards)
        settings |= {name: value for name, value in entry.json().items() if name in _ENTRY}
    else:
        shards = copy_shards(None, entry.all_ranks())
        if entry.ranks is None:
            settings["ranks"] = None
    if shape is not None and shape[0] * shape[1] > MOST_CELLS:
        refuse(entry.place, f"a table of up to {MOST_CELLS} cells", shape)
    if len(shards) and (rank := int(shards[:, RANK].max())) >= MOST_RANKS:
        refuse(below(entry.place, "ranks"), f"ranks below {MOST_RANKS}", rank)
    return TableLayout(
        entry.path, entry.name, entry.sharding_type, entry.kernel, shape, shards, settings
    )


def table_entry(table: TableLayout, rule: PlacementRule | None) -> TableEntry:
    """Returns the entry of a table in a plan file.

    Args:
        table: The layout of the table.
        rule: The placement rule of the file, if any.

    Raises:
        BadValue: A plan file can't represent the layout.
    """
    place = below(below("modules", table.path), table.name)
    settings = {name: value for name, value in table.settings.items() if name not in _ENTRY}
    check_fields(settings, SETTINGS, place)
    for name, value in settings.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(below(place, name), f"is not JSON: {error}") from error
    entry = TableEntry(
        table.path,
        table.name,
        table.sharding_type,
        table.kernel,
        rank_runs(table.shards[:, RANK]),
        None,
        None,
        settings,
    )
    if any(name in table.settings for name in _ENTRY):
        return _keep_listed_shards(entry, table.settings)
    if table.sharding_type == "data_parallel" or table.shape is None:
        return entry
    cut = cut_of(table.shards)
    if rule is None:
        raise BadValue("device", f"must be known, because {entry.place} has shards")
    if cut is not None and cut.shape == table.shape:
        return entry._replace(cut=cut)
    return entry._replace(listed=_placed(table.shards, rule))


def compacted(entries: list[TableEntry]) -> tuple[list[TableEntry], PlacementRule | None]:
    """Writes listed shards as blocks if they follow the placement rule; also returns the rule."""
    rule = infer_rule(Counter(_devices(entries)))
    return [_compact(entry, rule) for entry in entries], rule


def _compact(entry: TableEntry, rule: PlacementRule | None) -> TableEntry:
    listed, ranks = entry.listed, entry.all_ranks()
    if rule is None or listed is None or len(ranks) != len(listed):
        return entry
    if any(len(shard.size) != 2 for shard in listed):
        return entry
    if any(rule.text(rank) != shard.placement for rank, shard in zip(ranks, listed, strict=True)):
        return entry
    cut = cut_of(listed_shards(entry))
    return entry if cut is None else entry._replace(cut=cut, listed=None)


def _devices(entries: list[TableEntry]) -> Iterable[Device]:
    for entry in entries:
        for i, shard in enumerate(entry.listed or ()):
            place = below(f"{below(entry.place, 'shards')}[{i}]", "placement")
            if shard.placement is not None and (found := read_placement(shard.placement, place)):
                yield found


def _keep_listed_shards(entry: TableEntry, settings: dict[str, Any]) -> TableEntry:
    """Returns the table with the shards and ranks that its file had."""
    fields = {
        "sharding_type": entry.sharding_type,
        "compute_kernel": entry.kernel,
        "ranks": settings.get("ranks", entry.json()["ranks"]),
        "shards": settings.get("shards"),
    }
    read = EntryReader(has_device=True).read(entry.path, entry.name, fields)
    return read._replace(settings=entry.settings)


def listed_shards(entry: TableEntry) -> Shards:
    """Returns listed shards for a layout. Placements take precedence over `ranks`.

    Raises:
        BadValue: A shard names no rank, or is not inside a table of valid size.
    """
    place = below(entry.place, "shards")
    listed = entry.listed or ()
    ranks = entry.all_ranks()
    lines = []
    for i, shard in enumerate(listed):
        offset, size, placement = shard.offset, shard.size, shard.placement
        if not 1 <= len(size) <= 2:
            refuse(below(f"{place}[{i}]", "size"), "rows and columns", size)
        device = None
        if placement is not None:
            device = read_placement(placement, below(f"{place}[{i}]", "placement"))
        if device is None and len(ranks) != len(listed):
            raise BadValue(f"{place}[{i}]", "names no rank, so its place is unknown")
        rank = ranks[i] if device is None else device.rank
        ends = [start + length for start, length in zip(offset, size, strict=True)]
        if max(ends) > MOST_CELLS:
            refuse(f"{place}[{i}]", f"inside a table of up to {MOST_CELLS} cells", ends)
        lines.append((*(*offset, 0)[:2], *(*size, 1)[:2], rank))
    return np.array(lines, np.int64).reshape(-1, 5)


def _extent(shards: Shards) -> tuple[int, int]:
    ends = shards[:, [ROW, COLUMN]] + shards[:, [ROWS, COLUMNS]]
    rows, columns = ends.max(axis=0).tolist()
    return rows, columns


def _placed(shards: Shards, rule: PlacementRule) -> tuple[ListedShard, ...]:
    return tuple(
        ListedShard([row, column], [rows, columns], rule.text(rank))
        for row, column, rows, columns, rank in shards.tolist()
    )
