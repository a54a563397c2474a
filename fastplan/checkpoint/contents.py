"""What a checkpoint holds: tables, their states and how they are cut, read from its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastplan.checkpoint.metadata import Entry
from fastplan.checkpoint.moves import describe_layout, saved_layouts
from fastplan.checkpoint.sources import Source, SourceTable, StateIndex, read_table
from fastplan.checkpoint.storage import Checkpoint, Path
from fastplan.model.plan import TableLayout

HOLDERS = (".embedding_bags.", ".embeddings.")


@dataclass(frozen=True, kw_only=True)
class StateContents:
    """The weights or a state of a table in a checkpoint."""

    name: str
    key: str
    kind: str
    dtype: str
    size: tuple[int, ...]
    chunks: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """A table of a checkpoint.

    Attributes:
        key: its key in `state_dict()`.
        rows: its rows.
        columns: its columns.
        sharding: how it was sharded, if the plan was saved; else empty.
        parts: its weights, and then its states.
    """

    key: str
    rows: int
    columns: int
    sharding: str
    parts: tuple[StateContents, ...]

    @property
    def bytes(self) -> int:
        """The bytes of weights and states."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a checkpoint holds.

    Attributes:
        path: the checkpoint.
        has_plan: whether the plan was saved with it.
        files: its files with data.
        tables: its tables.
        others: keys of what belongs to no table, with bytes.
    """

    path: str
    has_plan: bool
    files: int
    tables: tuple[TableContents, ...]
    others: dict[str, int]

    @property
    def bytes(self) -> int:
        """The bytes of everything."""
        return sum(table.bytes for table in self.tables) + sum(self.others.values())


def inspect(path: Path) -> Contents:
    """Reads what a checkpoint holds: its metadata and plan, no weights.

    Args:
        path: a directory or a URL that fsspec knows.

    Raises:
        CheckpointError: it is no checkpoint, or its metadata is damaged.
    """
    with Checkpoint(path) as checkpoint:
        layouts = saved_layouts(checkpoint)
        tables = list(find_tables(checkpoint))
        taken = {s.entry.key for t in tables for s in (t.weight, *t.states.values())}
        entries = checkpoint.entries.values()
        return Contents(
            path=checkpoint.name,
            has_plan=layouts is not None,
            files=len({chunk.file for entry in entries for chunk in entry.chunks}),
            tables=tuple(_table(table, layouts or {}) for table in tables),
            others={entry.key: entry.bytes for entry in entries if entry.key not in taken},
        )


def table_key(entry: Entry) -> str:
    """Returns an entry's key in `state_dict()` if it can be the weights of a table, or else ''."""
    own = str(entry.path[-1])
    is_table = own.endswith(".weight") and any(word in f".{own}" for word in HOLDERS)
    return own if is_table and entry.dtype is not None and len(entry.size) == 2 else ""


def find_tables(checkpoint: Checkpoint, under: str | None = None) -> Iterator[SourceTable]:
    """Yields the tables of a checkpoint.

    Args:
        checkpoint: the checkpoint.
        under: the nesting of the weights, such as `model`, to leave out others.
    """
    entries = checkpoint.entries
    keys = {entry.key: key for entry in entries.values() if (key := table_key(entry))}
    index = StateIndex(entries, keys.values())
    for full, key in keys.items():
        prefix = full.removesuffix(key).rstrip(".")
        if under is None or prefix == under:
            yield read_table(entries, index, key, prefix)


def place_of(key: str, layouts: dict[tuple[str, str], TableLayout]) -> tuple[str, str] | None:
    """Returns the module and name in a plan of the table with a key in `state_dict()`."""
    for holder in HOLDERS:
        path, found, name = f".{key}".rpartition(holder)
        if found:
            name = name.removesuffix(".weight")
            path = path.removeprefix(".")
            # The plan names the outermost sharded module, which may hold the tables' one.
            words = path.split(".") if path else []
            for end in range(len(words), -1, -1):
                if (place := (".".join(words[:end]), name)) in layouts:
                    return place
    return None


def _table(table: SourceTable, layouts: dict[tuple[str, str], TableLayout]) -> TableContents:
    place = place_of(table.key, layouts)
    return TableContents(
        key=table.key,
        rows=table.rows,
        columns=table.columns,
        sharding=describe_layout(layouts[place]) if place else "",
        parts=tuple(_part(source) for source in (table.weight, *table.states.values())),
    )


def _part(source: Source) -> StateContents:
    entry = source.entry
    return StateContents(
        name=source.name,
        key=entry.key,
        kind=source.kind,
        dtype=str(entry.dtype).removeprefix("torch."),
        size=entry.size,
        chunks=len(entry.chunks),
        bytes=entry.bytes,
    )


def contents_json(contents: Contents) -> dict[str, Any]:
    """Returns contents as plain data."""
    from dataclasses import asdict

    tables = [{**asdict(table), "bytes": table.bytes} for table in contents.tables]
    return {**asdict(contents), "tables": tables, "bytes": contents.bytes}
