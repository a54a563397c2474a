"""The figures of a running process, from the file that its recorder writes."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

from fastplan.ett.building import build
from fastplan.ett.clean import OpenPhases, continue_clean, start_clean
from fastplan.ett.phases import totals
from fastplan.ett.reading import read
from fastplan.ett.record import Phase, Record

_SECOND = 1e9
_MOST_PHASES = 200
_OTHER = "(other names)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Figures of one process. Times are in seconds, `begin` and spans in nanoseconds since 1970.

    Attributes:
        phases: Its time by phase; they add up to the time since it began.
        time_to_start: From its begin, or its launch, to the first batch; None before.
        spans: Phases that have ended, with their begin and end.
    """

    begin: int
    phases: dict[str, float]
    steps: int
    last_step: int | None
    checkpoints: int
    failures: int
    time_to_start: float | None
    rank: int
    world: int
    attempt: int
    host: str
    run: str
    labels: dict[str, str]
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time that the phases cover."""
        return sum(self.phases.values())

    @property
    def ett(self) -> float:
        """The share of training."""
        return self.phases.get("training", 0.0) / self.seconds if self.seconds else 0.0


def take_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Reads the file of a process.

    Raises:
        RecordError: if its first line can't be read.
        OSError: if it can't be read at all.
    """
    return record_snapshot(read(path))


def record_snapshot(record: Record) -> Snapshot:
    """Returns the figures of a record."""
    job = build([record])
    attempt = job.attempts[0]
    rank = attempt.ranks[0]
    moved = record.wall - record.t
    steps = rank.steps
    return Snapshot(
        begin=attempt.begin,
        phases=_phases(totals(attempt.job)),
        steps=sum(each.count for each in steps),
        last_step=steps[-1].last if steps else None,
        checkpoints=len(record.checkpoints),
        failures=len(record.failures),
        time_to_start=None
        if attempt.first_batch is None
        else (attempt.first_batch - attempt.begin) / _SECOND,
        rank=record.rank,
        world=record.world,
        attempt=record.identity.attempt,
        host=record.identity.host,
        run=record.identity.run,
        labels=record.identity.labels,
        spans=_spans(record, moved),
    )


def _phases(nanoseconds: dict[str, int]) -> dict[str, float]:
    """Seconds by phase; with too many names, one for all others."""
    found: dict[str, float] = {}
    for name, took in nanoseconds.items():
        key = name if len(found) < _MOST_PHASES or name in found else _OTHER
        found[key] = found.get(key, 0.0) + took / _SECOND
    return found


def _spans(record: Record, moved: int) -> list[tuple[str, int, int]]:
    def span(phase: Phase, end: int) -> tuple[str, int, int]:
        return phase.name, phase.begin + moved, end + moved

    return [span(phase, phase.end) for phase in record.phases if phase.end is not None]


class Source:
    """Snapshots of a file that grows, not more often than once a second.

    Args:
        path: The file of the recorder.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: Snapshot | None = None
        self._at = float("-inf")
        self._lock = threading.Lock()  # exports and scrapes are in different threads
        self._read = 0  # bytes
        self._state: tuple[Record, OpenPhases] | None = None

    def snapshot(self, *, fresh: bool = False) -> Snapshot:
        """Returns figures that are at most a second old, or new ones."""
        with self._lock:
            now = time.monotonic()
            if fresh or self._last is None or now - self._at >= 1.0:
                self._last = self._take()
                self._at = now
            return self._last

    def _take(self) -> Snapshot:
        """Reads what the file has more than the last time."""
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        if self._state is None:
            self._state = start_clean(self._path, data)
        elif not continue_clean(*self._state, data):
            self._state = None
        if self._state is None:  # something unusual: as `fastplan ett report` reads it
            self._read = 0
            return take_snapshot(self._path)
        self._read += len(data)
        return record_snapshot(self._state[0])
