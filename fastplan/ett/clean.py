"""Reads files without damage at once: several times as fast as line by line.

`reading.read` tries this first. Whatever is unusual here, such as an incomplete line or a value of
another type, is left to it, so that one place decides what damage means.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from fastplan.ett import reading
from fastplan.ett.events import merge_sums
from fastplan.ett.journal import FORMAT, Identity
from fastplan.ett.labels import clean_labels
from fastplan.ett.reading import MARKS_KEPT
from fastplan.ett.record import Phase, Record, Steps, join_steps

MOST_BYTES = 1 << 22
_LIMIT = (1 << 63) - 1

_Int = Annotated[int, Meta(ge=-_LIMIT, le=_LIMIT)]
_Natural = Annotated[int, Meta(ge=0, le=_LIMIT)]
_Pair = Annotated[list[_Int], Meta(min_length=2, max_length=2)]
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


# The kinds of all other lines. msgspec decides by `e`, and refuses any other value of it.


class _PhaseLine(Struct, tag_field="e", tag="phase", rename={"sums": "in"}):
    name: str
    t: _Int
    d: _Natural
    background: bool = False
    sums: dict[str, _Pair] = {}
    more: dict[str, Any] = {}


class _StepsLine(Struct, tag_field="e", tag="steps", rename={"sums": "in"}):
    first: _Int
    last: _Int
    t: _Int
    d: _Natural
    sums: dict[str, _Pair] = {}
    aside: dict[str, _Pair] | None = None
    mark: tuple[_Int, _Int] | None = None


class _BeginLine(Struct, tag_field="e", tag="begin"):
    name: str
    t: _Int
    background: bool = False


class _FirstBatchLine(Struct, tag_field="e", tag="first_batch"):
    t: _Int


class _EndLine(Struct, tag_field="e", tag="end"):
    t: _Int


class _CheckpointLine(Struct, tag_field="e", tag="checkpoint"):
    step: _Int
    t: _Int


class _FailureLine(Struct, tag_field="e", tag="failure"):
    cause: str
    t: _Int


class _RankLine(Struct, tag_field="e", tag="rank"):
    rank: _Int
    world: _Int
    t: _Int


class _RestLine(Struct, tag_field="e", tag="rest", rename={"sums": "in"}):
    t: _Int
    d: _Natural
    sums: dict[str, _Pair] = {}
    aside: dict[str, _Pair] = {}


_RareLine = (
    _BeginLine | _FirstBatchLine | _EndLine | _CheckpointLine | _FailureLine | _RankLine | _RestLine
)
_Line = _PhaseLine | _StepsLine | _RareLine


@cache
def _decoders() -> tuple[Decoder[_Start], Decoder[_Line]]:
    return Decoder(_Start), Decoder(_Line)


def read_clean(path: str, data: bytes) -> Record | None:
    """Returns the record of a file's bytes; None if anything in it is unusual."""
    record, _ = start_clean(path, data) or (None, None)
    return record


def start_clean(path: str, data: bytes) -> tuple[Record, OpenPhases] | None:
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
    if not _add_lines(record, lines, open_phases):
        return False
    record.steps = join_steps(record)
    return True


def _record(path: str, start: _Start) -> Record:
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


def _add_lines(record: Record, lines: list[_Line], open_phases: OpenPhases) -> bool:
    """Adds lines as `reading` does. Returns whether it could."""
    phases = record.phases
    last = record.last
    for line in lines:
        t = end = line.t
        if type(line) is _PhaseLine:
            end += line.d
            phase = open_phases.pop((line.name, t), None) if open_phases else None
            if phase is None:
                phases.append(Phase(line.name, t, end, line.background, line.sums, line.more))
            else:
                phase.end, phase.sums, phase.more = end, line.sums, line.more
        elif type(line) is _StepsLine:
            end += line.d
            if line.last < line.first:
                return False
            _add_steps(record, line, end)
        elif type(line) is _RestLine:
            end += line.d
            merge_sums(record.rest, line.sums)
            merge_sums(record.aside, line.aside)
        else:
            _add_event(record, line, open_phases)
        if end > last:
            last = end
    record.last = last
    return True


def _add_event(record: Record, line: _Line, open_phases: OpenPhases) -> None:
    """Adds what happened at one time."""
    if type(line) is _FirstBatchLine:
        record.first_batch = line.t
    elif type(line) is _EndLine:
        record.end = line.t
    elif type(line) is _BeginLine:
        phase = Phase(line.name, line.t, None, line.background)
        open_phases[line.name, line.t] = phase
        record.phases.append(phase)
    elif type(line) is _CheckpointLine:
        record.checkpoints.append((line.step, line.t))
    elif type(line) is _FailureLine:
        record.failures.append((line.cause, line.t))
    elif type(line) is _RankLine:
        record.rank, record.world = line.rank, line.world


def _add_steps(record: Record, line: _StepsLine, end: int) -> None:
    if line.mark and len(record.marks) < MARKS_KEPT:
        record.marks[line.mark[0]] = line.mark[1]
    if line.aside:
        merge_sums(record.aside, line.aside)
    if record.rest:  # training continued, so these short phases belong to the steps
        merge_sums(line.sums, record.rest)
        record.rest = {}
    record.steps.append(Steps(line.first, line.last, line.t, end, line.sums))
