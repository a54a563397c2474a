"""Brings the database of a fleet up to date: reads what is new or has grown, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastplan.ett.fleet.places import Walk
from fastplan.ett.fleet.read import read_places, usual_workers
from fastplan.ett.fleet.store import FleetStore

_STAGE_BYTES = 1 << 20
_STAGE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """What an update did.

    Attributes:
        read: Places that were read.
        unchanged: Places that were not.
        gone: Places that the database has, and the disk has not. Their jobs are kept.
        problems: Directories that can't be listed, and files and links that can't be read.
    """

    read: int
    unchanged: int
    gone: tuple[str, ...]
    problems: tuple[str, ...]


def update(
    store: FleetStore,
    roots: Iterable[str],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Update:
    """Reads what is new below some roots into a store.

    Args:
        store: The database.
        roots: Directories, files, or URLs of fsspec.
        workers: Processes that read; one per core by default.
        progress: Called with the number of places that have been read since the last call.

    Raises:
        FleetError: A root can't be read, or the database can't be used.
    """
    walk = Walk(roots, store.known())
    held: list[bytes] = []
    size, since, count = 0, time.monotonic(), 0
    try:
        for lines, number in read_places(walk, usual_workers() if workers is None else workers):
            held.append(lines)
            size += len(lines)
            count += number
            if size >= _STAGE_BYTES or time.monotonic() - since >= _STAGE_SECONDS:
                store.stage(b"".join(held))
                held, size, since = [], 0, time.monotonic()
            if progress is not None:
                progress(number)
    finally:
        store.stage(b"".join(held))  # also after Ctrl-C
    return Update(
        read=count,
        unchanged=len(walk.seen) - count,
        gone=tuple(walk.gone()),
        problems=tuple(walk.problems),
    )
