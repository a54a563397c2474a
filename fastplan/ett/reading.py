"""Reads the files of a job, complete or damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastplan.ett.events import Sums, merge_sums
from fastplan.ett.journal import FORMAT, SUFFIX, Identity
from fastplan.ett.labels import clean_labels
from fastplan.ett.record import Phase, Record, Steps, join_steps
from fastplan.files.document import open_regular

_CHUNK = 1 << 20
_SMALL = 1 << 14
_LONGEST_LINE = 1 << 22
MARKS_KEPT = 4096
PHASES_KEPT = 20_000  # with a time of their own; those after them are added up by name
_INNER_KEPT = 1000
_INT64_LIMIT = 1 << 63
_DECODER = json.JSONDecoder()


class RecordError(Exception):
    """A directory or file has no readable record. The message says why."""


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the names of a job's files, sorted.

    Raises:
        RecordError: if there is none.
    """
    folder = Path(directory)
    if folder.is_file():
        raise RecordError(f"{folder}: a file; give the directory of all records, {folder.parent}")
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such directory; run the job with FASTPLAN_ETT={folder}")
    found = [name for name in sorted(os.listdir(folder)) if name.endswith(SUFFIX)]
    if not found:
        raise RecordError(
            f"{folder}: no *{SUFFIX} files; run the job with FASTPLAN_ETT={folder} and "
            "`ett.install()`"
        )
    return found


def jobs_in(directory: str | os.PathLike[str]) -> list[Path]:
    """Returns the directory itself if it is of a job, else its subdirectories that are.

    Raises:
        RecordError: if there is none.
    """
    folder = Path(directory)
    try:
        names_in(folder)
        return [folder]
    except RecordError:
        inner = sorted(path.parent for path in folder.glob(f"*/*{SUFFIX}"))
        if not inner:
            raise
        return list(dict.fromkeys(inner))


def read_job(
    directory: str | os.PathLike[str], names: Iterable[str] | None = None
) -> tuple[list[Record], list[str]]:
    """Reads all files of a job.

    Args:
        directory: Where they are.
        names: Their names, if they are known already.

    Returns:
        The records, and the errors of files that can't be used at all.

    Raises:
        RecordError: if no file can be used.
    """
    records, problems = [], []
    folder = os.fspath(directory)
    for name in names_in(directory) if names is None else names:
        try:
            records.append(read(os.path.join(folder, name)))
        except (RecordError, OSError) as error:
            problems.append(str(error))
    if not records:
        raise RecordError(f"{directory}: no file can be used: {'; '.join(problems)}")
    return records, problems


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a file as far as possible.

    Raises:
        RecordError: if its first line can't be read.
    """
    from fastplan.ett.clean import MOST_BYTES, read_clean

    path = os.fspath(path)
    data = _first_bytes(path, MOST_BYTES)
    found = read_clean(path, data) if len(data) < MOST_BYTES else None
    return _read_lines(path) if found is None else found


def _first_bytes(path: str, most: int) -> bytes:
    with open_regular(path) as stream:
        # Most files are small, and a large buffer takes longer than to read them.
        file = stream.fileno()
        data = os.read(file, _SMALL)
        return data + os.read(file, most - _SMALL) if len(data) == _SMALL else data


def _read_lines(path: str) -> Record:
    """Reads a file line by line, and skips what is damaged."""
    entries = _Entries(path)
    record = None
    open_phases: dict[tuple[str, int], Phase] = {}
    for entry in entries:
        try:
            if record is None:
                record = _started(path, entry)
            else:
                _add_event(record, entry, open_phases)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if record is None:
                raise RecordError(f"{path}: not a record of fastplan.ett: {error!r}") from error
            entries.bad += 1
    if record is None and entries.is_foreign:
        raise RecordError(f"{path}: not a recording: no line of it can be read")
    if record is None:
        raise RecordError(f"{path}: empty: the process ended before its first line was written")
    record.steps = join_steps(record)
    record.problems += entries.problems()
    if record.summed:
        record.problems.append(
            f"{record.name}: {record.summed:,} phases after the first {PHASES_KEPT:,} are added up "
            "by name; their time is right, but timelines don't show them"
        )
    return record


class _Entries:
    """The lines of a file as objects. Incomplete and damaged lines are counted and skipped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.bad = 0
        self._incomplete = 0
        self._may_be_cut = True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with open_regular(self._path) as file:
            while line := file.readline(_LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) < _LONGEST_LINE:
                        self._incomplete = len(line)
                        # A disk that was off too early may have kept zeros instead.
                        self._may_be_cut = line.strip(b"\0")[:1] in (b"", b"{")
                        return
                    self.bad += 1
                    _skip_line(file)
                    continue
                try:
                    entry = _DECODER.decode(line.decode("ascii"))
                except (ValueError, RecursionError):
                    self.bad += 1
                    continue
                if isinstance(entry, dict):
                    yield entry
                else:
                    self.bad += 1

    @property
    def is_foreign(self) -> bool:
        """Whether a file without any entry is something else than a recording that was cut."""
        return bool(self.bad) or not self._may_be_cut

    def problems(self) -> list[str]:
        found = []
        name = os.path.basename(self._path)
        if self._incomplete:
            found.append(
                f"{name}: the last line is incomplete ({self._incomplete} bytes): the "
                "process was killed, or its disk was full; skipped"
            )
        if self.bad:
            found.append(f"{name}: {self.bad} damaged lines are skipped")
        return found


def _skip_line(file: Any) -> None:
    while part := file.readline(_CHUNK):
        if part.endswith(b"\n"):
            return


def _started(path: str, entry: dict[str, Any]) -> Record:
    if entry["e"] != "start":
        raise ValueError("the first line is not a start")
    if entry["format"] != FORMAT:
        raise RecordError(
            f"{path}: format {entry['format']!r} is unknown; this version reads format {FORMAT}"
        )
    identity = Identity(
        run=str(entry["run"]),
        attempt=_int(entry["attempt"]),
        rank=_int(entry["rank"]),
        world=_int(entry["world"]),
        host=str(entry["host"]),
        boot=str(entry["boot"]),
        pid=_int(entry["pid"]),
        launched=_optional_int(entry["launched"]),
        process=_optional_int(entry["process"]),
        labels=clean_labels(entry.get("labels") or {}),
    )
    return Record(
        path=path,
        identity=identity,
        t=_int(entry["t"]),
        wall=_int(entry["wall"]),
        watched=_optional_int(entry["watched"]),
        rank=identity.rank,
        world=identity.world,
        last=entry["t"],
    )


def _optional_int(value: Any) -> int | None:
    return None if value is None else _int(value)


def _int(value: Any) -> int:
    """A number of nanoseconds, or of a step. Raises ValueError for any other value."""
    if type(value) is not int or abs(value) >= _INT64_LIMIT:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _add_event(
    record: Record, entry: dict[str, Any], open_phases: dict[tuple[str, int], Phase]
) -> None:
    kind, t = entry["e"], _int(entry["t"])
    took = _int(entry["d"]) if kind in ("steps", "phase", "rest") else 0
    if took < 0:
        raise ValueError("it ends before it begins")
    if kind == "steps":
        _add_steps(record, entry, t, t + took)
    elif kind == "begin":
        phase = Phase(str(entry["name"]), t, None, bool(entry.get("background")))
        open_phases[phase.name, t] = phase
        record.phases.append(phase)
    elif kind == "phase":
        _add_phase(record, entry, t, t + took, open_phases)
    elif kind == "rest":
        merge_sums(record.rest, _sums(entry.get("in")))
        merge_sums(record.aside, _sums(entry.get("aside")))
    elif kind == "checkpoint":
        record.checkpoints.append((_int(entry["step"]), t))
    elif kind == "failure":
        record.failures.append((str(entry["cause"]), t))
    elif kind == "first_batch":
        record.first_batch = t
    elif kind == "rank":
        record.rank, record.world = _int(entry["rank"]), _int(entry["world"])
    elif kind == "lost":
        record.problems.append(
            f"{record.name}: {_int(entry['lines'])} lines were lost: the disk was full, or "
            "an event could not be recorded; see the job's log"
        )
    elif kind == "end":
        record.end = t
    record.last = max(record.last, t + took)


def _add_phase(
    record: Record,
    entry: dict[str, Any],
    begin: int,
    end: int,
    open_phases: dict[tuple[str, int], Phase],
) -> None:
    name, sums, more = str(entry["name"]), _sums(entry.get("in")), dict(entry.get("more") or {})
    phase = open_phases.pop((name, begin), None)
    if phase is None and record.steps and len(record.phases) >= PHASES_KEPT:
        into, own = record.aside, end - begin
        if not entry.get("background"):
            around = [other for other in open_phases.values() if not other.background]
            into = around[-1].sums if around else record.rest
            own = _own_time(record, begin, end, sums)
        merge_sums(into, sums)
        merge_sums(into, {name: [1, own]})
        record.summed += 1
        return
    if phase is None:
        phase = Phase(name, begin, None, bool(entry.get("background")))
        record.phases.append(phase)
    phase.end, phase.more = end, more
    merge_sums(phase.sums, sums)


def _own_time(record: Record, begin: int, end: int, sums: Sums) -> int:
    """The time of a phase without the phases within it, whose lines come before its own."""
    own = end - begin - sum(took for _, took in sums.values())
    while record.inner and record.inner[-1][0] >= begin:
        inner_begin, inner_end = record.inner.pop()
        own -= inner_end - inner_begin
    record.inner.append((begin, end))
    del record.inner[:-_INNER_KEPT]
    return max(0, own)


def _add_steps(record: Record, entry: dict[str, Any], begin: int, end: int) -> None:
    first, last = _int(entry["first"]), _int(entry["last"])
    if last < first:
        raise ValueError("its last step is before its first")
    sums, aside = _sums(entry.get("in")), entry.get("aside")
    if (mark := entry.get("mark")) and len(record.marks) < MARKS_KEPT:
        record.marks[_int(mark[0])] = _int(mark[1])
    if aside:
        merge_sums(record.aside, _sums(aside))
    if record.rest:  # training continued, so these short phases belong to the steps
        merge_sums(sums, record.rest)
        record.rest = {}
    record.steps.append(Steps(first, last, begin, end, sums))
    if len(record.steps) >= record.join_at:
        record.steps = join_steps(record)
        record.join_at = max(record.join_at, 2 * len(record.steps))


def _sums(value: Any) -> Sums:
    """Reads the sums of a line. Raises ValueError or TypeError for any other value."""
    if value is None:
        return {}
    return {str(name): [_int(count), _int(own)] for name, (count, own) in dict(value).items()}
