"""Reads files without damage at once: several times as fast as line by line.

`reading.read` tries this first. Whatever is unusual here, such as an incomplete line or a value of
another type, is left to it, so that one place decides what damage means.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from fastplan.ett import reading
from fastplan.ett.events import merge_sums
from fastplan.ett.journal import FORMAT, Identity
from fastplan.ett.labels import clean_labels
from fastplan.ett.reading import MARKS_KEPT, Phase, Record, Steps, join_steps

MOST_BYTES = 1 << 22
_LIMIT = (1 << 63) - 1

_Int = Annotated[int, Meta(ge=-_LIMIT, le=_LIMIT)]
_Natural = Annotated[int, Meta(ge=0, le=_LIMIT)]
_SumsRead = dict[str, tuple[_Int, _Int]]
OpenPhases = dict[tuple[str, int], Phase]


class _Start(Struct):
    """The first line of a file."""

    e: str
    format: int
    t: _Int
    wall: _Int
    watched: _Int | None
    run: str
    attempt: _Int
    rank: _Int
    world: _Int
    host: str
    boot: str
    pid: _Int
    launched: _Int | None
    process: _Int | None
    labels: dict[str, str] = {}  # msgspec copies it


class _Line(Struct, rename={"sums": "in"}):
    """Any other line. Which fields it has depends on `e`."""

    e: str
    t: _Int
    d: _Natural | None = None
    name: str | None = None
    background: bool = False
    first: _Int | None = None
    last: _Int | None = None
    sums: _SumsRead | None = None
    aside: _SumsRead | None = None
    mark: tuple[_Int, _Int] | None = None
    more: dict[str, Any] | None = None
    step: _Int | None = None
    cause: str | None = None
    rank: _Int | None = None
    world: _Int | None = None


@cache
def _decoders() -> tuple[Decoder[_Start], Decoder[_Line]]:
    return Decoder(_Start), Decoder(_Line)


def read_clean(path: Path, data: bytes) -> Record | None:
    """Returns the record of a file's bytes; None if anything in it is unusual."""
    record, _ = start_clean(path, data) or (None, None)
    return record


def start_clean(path: Path, data: bytes) -> tuple[Record, OpenPhases] | None:
    """Returns the record of a file's bytes and its open phases, to be continued; or None."""
    head, newline, rest = data.partition(b"\n")
    if not (newline and head.isascii()):
        return None
    try:
        start = _decoders()[0].decode(head)
    except (DecodeError, RecursionError):
        return None
    if start.e != "start" or start.format != FORMAT:
        return None
    record = _record(path, start)
    open_phases: OpenPhases = {}
    return (record, open_phases) if continue_clean(record, open_phases, rest) else None


def continue_clean(record: Record, open_phases: OpenPhases, data: bytes) -> bool:
    """Adds further lines to a record. Returns whether they are all as expected."""
    if data and not (data.endswith(b"\n") and data.isascii()):
        return False
    count = data.count(b"\n")
    if len(record.phases) + count > reading.PHASES_KEPT:  # it adds up phases beyond these
        return False
    try:
        lines = _decoders()[1].decode_lines(data)
    except (DecodeError, RecursionError):
        return False
    if len(lines) != count:
        return False
    for line in lines:
        if not _add_line(record, line, open_phases):
            return False
    record.steps = join_steps(record)
    return True


def _record(path: Path, start: _Start) -> Record:
    identity = Identity(
        run=start.run,
        attempt=start.attempt,
        rank=start.rank,
        world=start.world,
        host=start.host,
        boot=start.boot,
        pid=start.pid,
        launched=start.launched,
        process=start.process,
        labels=clean_labels(start.labels) if start.labels else {},
    )
    return Record(
        path=path,
        identity=identity,
        t=start.t,
        wall=start.wall,
        watched=start.watched,
        rank=start.rank,
        world=start.world,
        last=start.t,
    )


def _add_line(record: Record, line: _Line, open_phases: OpenPhases) -> bool:
    """Adds a line as `reading` does. Returns whether it could."""
    kind, t = line.e, line.t
    end = t
    if kind == "phase":
        name = line.name
        if name is None or line.d is None:
            return False
        end += line.d
        phase = open_phases.pop((name, t), None) if open_phases else None
        if phase is None:
            phase = Phase(name, t, None, line.background)
            record.phases.append(phase)
        phase.end = end
        if line.sums:
            phase.sums = _lists(line.sums)
        if line.more:
            phase.more = line.more
    elif kind == "steps":
        if line.d is None:
            return False
        end += line.d
        if not _add_steps(record, line, end):
            return False
    elif kind == "begin":
        if line.name is None:
            return False
        phase = Phase(line.name, t, None, line.background)
        open_phases[line.name, t] = phase
        record.phases.append(phase)
    elif kind == "first_batch":
        record.first_batch = t
    elif kind == "end":
        record.end = t
    elif kind == "checkpoint" and line.step is not None:
        record.checkpoints.append((line.step, t))
    elif kind == "failure" and line.cause is not None:
        record.failures.append((line.cause, t))
    elif kind == "rank" and line.rank is not None and line.world is not None:
        record.rank, record.world = line.rank, line.world
    elif kind == "rest" and line.d is not None:
        end += line.d
        merge_sums(record.rest, _lists(line.sums or {}))
        merge_sums(record.aside, _lists(line.aside or {}))
    else:
        return False  # lost lines, or a later version
    if end > record.last:
        record.last = end
    return True


def _add_steps(record: Record, line: _Line, end: int) -> bool:
    first, last = line.first, line.last
    if first is None or last is None or last < first:
        return False
    if line.mark and len(record.marks) < MARKS_KEPT:
        record.marks[line.mark[0]] = line.mark[1]
    if line.aside:
        merge_sums(record.aside, _lists(line.aside))
    sums = _lists(line.sums) if line.sums else {}
    if record.rest:  # training continued, so these short phases belong to the steps
        merge_sums(sums, record.rest)
        record.rest = {}
    record.steps.append(Steps(first, last, line.t, end, sums))
    return True


def _lists(sums: _SumsRead) -> dict[str, list[int]]:
    return {name: [count, own] for name, (count, own) in sums.items()}
