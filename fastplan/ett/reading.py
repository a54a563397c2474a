"""A directory of files back into what happened, whatever state the files are in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastplan.ett.identity import Identity
from fastplan.ett.journal import SUFFIX
from fastplan.ett.lines import FORMAT, Sums

_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 22
_MARKS_KEPT = 4096
_FAR = 1 << 63
_DECODER = json.JSONDecoder()


class NoRecord(Exception):
    """There is nothing to read."""


@dataclass(slots=True)
class Phase:
    """A phase that was written by itself. Times are the recorder's clock."""

    name: str
    begin: int
    end: int | None  # None: the process ended before it did
    background: bool = False
    sums: Sums = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def until(self) -> int:
        """Its end, or its begin as long as that is all that is known."""
        return self.begin if self.end is None else self.end


@dataclass(slots=True)
class Steps:
    """Consecutive steps, and the sums of short phases meanwhile."""

    first: int
    last: int
    begin: int
    end: int
    sums: Sums = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """What a file tells about one process, and what it should have told."""

    path: Path
    identity: Identity
    t: int
    wall: int
    watched: int | None
    rank: int
    world: int
    phases: list[Phase] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    rest: Sums = field(default_factory=dict)  # short phases after the last step
    aside: Sums = field(default_factory=dict)  # short phases in the background
    marks: dict[int, int] = field(default_factory=dict)  # when some of the steps ended
    checkpoints: list[tuple[int, int]] = field(default_factory=list)  # step, time
    failures: list[tuple[str, int]] = field(default_factory=list)  # cause, time
    first_batch: int | None = None
    end: int | None = None
    last: int = 0  # the last sign of life
    problems: list[str] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """When the process began, as far as is known."""
        first = self.identity.process
        return self.t if first is None else min(first, self.t)


def files_in(directory: str | os.PathLike[str]) -> list[Path]:
    """The files of a job, in the order of their names. Raises NoRecord if there is none."""
    folder = Path(directory)
    if folder.is_file():
        raise NoRecord(f"{folder}: a file; give the directory of all records, {folder.parent}")
    if not folder.is_dir():
        raise NoRecord(f"{folder}: no such directory; record into one with FASTPLAN_ETT={folder}")
    found = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    if not found:
        raise NoRecord(
            f"{folder}: no *{SUFFIX} files; run the job with FASTPLAN_ETT={folder} and "
            "`ett.install()`"
        )
    return found


def jobs_in(directory: str | os.PathLike[str]) -> list[Path]:
    """The directory itself if it is a job's, else its sub-directories that are.

    Raises NoRecord if there are none.
    """
    folder = Path(directory)
    try:
        files_in(folder)
        return [folder]
    except NoRecord:
        inner = sorted(path.parent for path in folder.glob(f"*/*{SUFFIX}"))
        if not inner:
            raise
        return list(dict.fromkeys(inner))


def read_job(directory: str | os.PathLike[str]) -> tuple[list[Record], list[str]]:
    """All files of a job, and what is wrong with those that can't be used at all."""
    records, problems = [], []
    for path in files_in(directory):
        try:
            records.append(read(path))
        except (NoRecord, OSError) as error:
            problems.append(str(error))
    if not records:
        raise NoRecord(f"{directory}: no file can be used: {'; '.join(problems)}")
    return records, problems


def read(path: str | os.PathLike[str]) -> Record:
    """A file as far as it can be read. Raises NoRecord if even its first line can't."""
    path = Path(path)
    entries = _Entries(path)
    record = None
    open_phases: dict[tuple[str, int], Phase] = {}
    for entry in entries:
        try:
            if record is None:
                record = _started(path, entry)
            else:
                _take(record, entry, open_phases)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if record is None:
                raise NoRecord(f"{path}: not a record of fastplan.ett: {error!r}") from error
            entries.bad += 1
    if record is None:
        raise NoRecord(f"{path}: empty: the process ended before its first line was written")
    record.steps = _joined(record)
    record.problems += entries.problems()
    return record


class _Entries:
    """The lines of a file as objects, its torn and damaged ones counted and left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bad = 0
        self._torn = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if not line.endswith(b"\n"):
                    if len(line) < _LONGEST_LINE:
                        self._torn = len(line)
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

    def problems(self) -> list[str]:
        found = []
        if self._torn:
            found.append(
                f"{self._path.name}: the last line is torn ({self._torn} bytes): the process was "
                "killed, or its disk was full; left out"
            )
        if self.bad:
            found.append(f"{self._path.name}: {self.bad} damaged lines are left out")
        return found


def _skip_line(file: Any) -> None:
    while part := file.readline(_CHUNK):
        if part.endswith(b"\n"):
            return


def _started(path: Path, entry: dict[str, Any]) -> Record:
    if entry["e"] != "start":
        raise ValueError("the first line is not a start")
    if entry["format"] != FORMAT:
        raise NoRecord(
            f"{path}: format {entry['format']!r} is not known to this fastplan, which reads "
            f"format {FORMAT}"
        )
    identity = Identity(
        run=str(entry["run"]),
        attempt=_whole(entry["attempt"]),
        rank=_whole(entry["rank"]),
        world=_whole(entry["world"]),
        host=str(entry["host"]),
        boot=str(entry["boot"]),
        pid=_whole(entry["pid"]),
        launched=_maybe_whole(entry["launched"]),
        process=_maybe_whole(entry["process"]),
    )
    return Record(
        path=path,
        identity=identity,
        t=_whole(entry["t"]),
        wall=_whole(entry["wall"]),
        watched=_maybe_whole(entry["watched"]),
        rank=identity.rank,
        world=identity.world,
        last=entry["t"],
    )


def _maybe_whole(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _whole(value: Any) -> int:
    """A number of nanoseconds, or of a step. Raises ValueError for anything else."""
    if type(value) is not int or abs(value) >= _FAR:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _take(record: Record, entry: dict[str, Any], open_phases: dict[tuple[str, int], Phase]) -> None:
    kind, t = entry["e"], _whole(entry["t"])
    took = _whole(entry["d"]) if kind in ("steps", "phase", "rest") else 0
    if took < 0:
        raise ValueError("it ends before it begins")
    if kind == "steps":
        _take_steps(record, entry, t, t + took)
    elif kind == "begin":
        phase = Phase(str(entry["name"]), t, None, bool(entry.get("background")))
        open_phases[phase.name, t] = phase
        record.phases.append(phase)
    elif kind == "phase":
        _take_phase(record, entry, t, t + took, open_phases)
    elif kind == "rest":
        _merge(record.rest, _sums(entry.get("in")))
        _merge(record.aside, _sums(entry.get("aside")))
    elif kind == "checkpoint":
        record.checkpoints.append((_whole(entry["step"]), t))
    elif kind == "failure":
        record.failures.append((str(entry["cause"]), t))
    elif kind == "first_batch":
        record.first_batch = t
    elif kind == "rank":
        record.rank, record.world = _whole(entry["rank"]), _whole(entry["world"])
    elif kind == "lost":
        record.problems.append(
            f"{record.path.name}: {_whole(entry['lines'])} lines were lost: the disk was full, or "
            "something could not be recorded, which the job's log tells"
        )
    elif kind == "end":
        record.end = t
    record.last = max(record.last, t + took)


def _take_phase(
    record: Record,
    entry: dict[str, Any],
    begin: int,
    end: int,
    open_phases: dict[tuple[str, int], Phase],
) -> None:
    name, sums, more = str(entry["name"]), _sums(entry.get("in")), dict(entry.get("more") or {})
    phase = open_phases.pop((name, begin), None)
    if phase is None:
        phase = Phase(name, begin, None, bool(entry.get("background")))
        record.phases.append(phase)
    phase.end, phase.sums, phase.more = end, sums, more


def _take_steps(record: Record, entry: dict[str, Any], begin: int, end: int) -> None:
    first, last = _whole(entry["first"]), _whole(entry["last"])
    if last < first:
        raise ValueError("its last step is before its first")
    sums, aside = _sums(entry.get("in")), entry.get("aside")
    if (mark := entry.get("mark")) and len(record.marks) < _MARKS_KEPT:
        record.marks[_whole(mark[0])] = _whole(mark[1])
    if aside:
        _merge(record.aside, _sums(aside))
    if record.rest:  # training went on: they held up these steps
        _merge(sums, record.rest)
        record.rest = {}
    record.steps.append(Steps(first, last, begin, end, sums))


def _joined(record: Record) -> list[Steps]:
    """Steps as they went on, not as they were written; what a checkpoint separates stays apart."""
    saved = {step for step, _ in record.checkpoints}
    joined: list[Steps] = []
    for steps in record.steps:
        before = joined[-1] if len(joined) > 1 else None  # the first step stays by itself
        if (
            before is not None
            and (before.last + 1, before.end) == (steps.first, steps.begin)
            and before.last not in saved
        ):
            before.last, before.end = steps.last, steps.end
            if steps.sums:
                _merge(before.sums, steps.sums)
        else:
            joined.append(steps)
    return joined


def _sums(told: Any) -> Sums:
    """Sums as a line holds them. Raises ValueError or TypeError if they are not."""
    if told is None:
        return {}
    return {str(name): [_whole(count), _whole(own)] for name, (count, own) in dict(told).items()}


def _merge(sums: Sums, more: Sums) -> None:
    for name, (count, own) in more.items():
        entry = sums.setdefault(name, [0, 0])
        entry[0] += count
        entry[1] += own
