"""Reads places of a fleet, in several processes if there are many."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load
from fastplan.ett.fleet.jobs import RECORDED, FleetJob, Place, recorded_job
from fastplan.ett.fleet.places import Found, as_stored
from fastplan.ett.imports import MOST_BYTES, import_file
from fastplan.ett.reading import RecordError
from fastplan.files.document import open_regular

_CHUNK = 16  # places that a process reads at once
_FEW = 64  # places that are read without further processes
_ENCODER = msgspec.json.Encoder()


def read_place(found: Found) -> Place:
    """Reads a place. What can't be read becomes a place without jobs, which is tried again."""
    kind, files = found.kind, len(found.files) or 1
    place = Place(
        place=found.place,
        kind=kind,
        modified=found.modified,
        size=found.size,
        files=files,
        settled=False,
        read_at=time.time(),
    )
    if not kind:
        return place
    try:
        if kind == RECORDED:
            place.jobs, place.settled = _recorded(found)
            place.settled = place.settled and found.modified != 0
        else:
            place.jobs = import_file(kind, found.place, _content(found))
    except (RecordError, OSError, ArithmeticError, LookupError, TypeError, ValueError):
        place.jobs = []  # one file that nobody expected must not stop the others
    return place


def _recorded(found: Found) -> tuple[list[FleetJob], bool]:
    """The job of a directory, and whether it has ended on all ranks."""
    if found.remote is not None:
        from fastplan.ett.fleet.remote import LocalCopy

        with LocalCopy(found) as folder:
            return _recorded_in(folder, found.place)
    return _recorded_in(found.place, found.place, found.files)


def _recorded_in(
    folder: str, place: str, names: tuple[str, ...] | None = None
) -> tuple[list[FleetJob], bool]:
    job = load(folder, names)
    report = job_report(job, by_rank=False)
    row = recorded_job(job, report, place, job.labels)
    return [row], job.attempts[-1].ended


def _content(found: Found) -> bytes:
    if found.remote is not None:
        from fastplan.ett.fleet.remote import remote_bytes

        return remote_bytes(found)
    with open_regular(found.place) as file:
        return file.read(MOST_BYTES)


def read_places(found: Iterable[Found], workers: int) -> Iterator[tuple[bytes, int]]:
    """Reads places and yields them as JSON lines, with their number.

    Args:
        found: The places. They are taken as they are needed.
        workers: Processes. With 1, or few places, this process reads them itself.
    """
    places = iter(found)
    first = list(islice(places, _FEW))
    local = [place for place in first if place.remote is None]
    if workers < 2 or len(first) < _FEW or len(local) < len(first):
        for place in (*first, *places):
            yield encode([read_place(place)]), 1
        return
    # The first one here, so that whatever it imports is compiled once and not by every process.
    yield encode([read_place(first.pop())]), 1
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    # Not forked: the database has threads of its own.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker) as pool:
        waiting: set[Future[tuple[bytes, int]]] = set()
        for chunk in _chunks(first, places):
            waiting.add(pool.submit(_read_chunk, chunk))
            if len(waiting) >= 4 * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _chunks(first: list[Found], places: Iterator[Found]) -> Iterator[list[Found]]:
    for begin in range(0, len(first), _CHUNK):
        yield first[begin : begin + _CHUNK]
    while chunk := list(islice(places, _CHUNK)):
        yield chunk


def _start_worker() -> None:
    """Prepares a process. Reading makes no cycles, so it needs no collector."""
    gc.disable()


def _read_chunk(chunk: list[Found]) -> tuple[bytes, int]:
    return encode([read_place(found) for found in chunk]), len(chunk)


def encode(places: list[Place]) -> bytes:
    """Returns places as JSON lines. Half a character of UTF-16 in a text or a name is escaped."""
    try:
        return _ENCODER.encode_lines(places)
    except UnicodeEncodeError:  # whoever can write to one folder must not stop all others
        return _ENCODER.encode_lines(_escaped(msgspec.to_builtins(places)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return as_stored(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    return [*map(_escaped, value)] if isinstance(value, list | tuple) else value


def usual_workers() -> int:
    """Returns the number of cores that this process may use."""
    count: Any = getattr(os, "process_cpu_count", None)
    if count is None and hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, (count() if count else os.cpu_count()) or 1)
