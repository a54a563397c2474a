"""Entries of Google's ml-goodput-measurement, as Cloud Logging exports them: JSON or JSON lines.

Each entry is an object with `job_name` and one time, or a log entry with it in `jsonPayload`. Times
are seconds since 1970. Known: starts of jobs and steps, initialisation, preparation, data loading,
custom events. Not known: the launch, planning within the preparation, and when a job failed: the
time between two starts counts as a restart, and the steps that are repeated as lost work.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from fastplan.ett.fleet.jobs import FleetJob, last_name, usable_time
from fastplan.ett.phases import Piece, flatten, subtract, totals, within

MARK = re.compile(rb'"(job_start_time|step_start_time|tpu_init_start_time)"\s*:')
_NANO = 1e9
_FAR = 1e11  # seconds
_MOST_ENTRIES = 10_000_000
_INTERVALS = {
    "tpu_init": "process_group",
    "training_prep": "model_build",
    "data_loading": "data_loader",
    "custom_badput_event": "",
}
_LONGEST_NAME = 200


class _Entries:
    """The entries of one job, sorted by what they say."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.steps: list[tuple[int, int]] = []  # time, number
        self.pieces: list[Piece] = []
        self._open: dict[str, int] = {}

    def add(self, entry: dict[str, Any]) -> None:
        for key, value in entry.items():
            at = _nanoseconds(value) if key.endswith("_time") else None
            if at is None:
                continue
            if key == "job_start_time":
                self.starts.append(at)
            elif key == "job_end_time":
                self.ends.append(at)
            elif key == "step_start_time" and type(entry.get("step_count")) is int:
                self.steps.append((at, entry["step_count"]))
            else:
                self._add_interval(key, at, entry)

    def _add_interval(self, key: str, at: int, entry: dict[str, Any]) -> None:
        name, _, side = key.removesuffix("_time").rpartition("_")
        if name not in _INTERVALS:
            return
        title = _INTERVALS[name] or str(entry.get("custom_badput_event_type"))[:_LONGEST_NAME]
        if side == "start":
            self._open[title] = at
        elif title in self._open and at >= self._open[title]:
            self.pieces.append(Piece(self._open.pop(title), at, title))


class _Steps:
    """Begins of steps, in the order of time."""

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.times = [at for at, _ in entries]
        # The least number of all steps from a place on; None after the last.
        self.least_from: list[int | None] = [None]
        for _, number in reversed(entries):
            before = self.least_from[-1]
            self.least_from.append(number if before is None else min(before, number))
        self.least_from.reverse()


def read_jobs(place: str, data: bytes) -> list[FleetJob]:
    """Returns the jobs of an export, as far as it goes."""
    jobs: dict[str, _Entries] = {}
    skipped = 0
    for entry in _objects(data):
        payload = entry.get("jsonPayload", entry) if type(entry) is dict else None
        if type(payload) is not dict or type(payload.get("job_name")) is not str:
            skipped += 1
            continue
        jobs.setdefault(payload["job_name"], _Entries()).add(payload)
    notes = [f"{skipped} entries without a job are skipped"] if skipped else []
    found: list[FleetJob] = []
    for name, entries in jobs.items():
        if entries.starts or entries.steps:
            source = place if not found else f"{place}#{len(found) + 1}"
            found.append(_job(name, entries, place, source, notes))
    return found


def _objects(data: bytes) -> Iterator[Any]:
    """The objects of a JSON list, or of JSON lines; what is incomplete is skipped."""
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at, count = 0, 0
    while count < _MOST_ENTRIES:
        at = text.find("{", at)
        if at < 0:
            return
        try:
            entry, at = decoder.raw_decode(text, at)
            count += 1
            yield entry
        except (ValueError, RecursionError):
            at = text.find("\n", at)
            if at < 0:
                return


def _nanoseconds(value: Any) -> int | None:
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value < _FAR):
        return None
    return round(float(value) * _NANO)


def _job(name: str, entries: _Entries, place: str, source: str, notes: list[str]) -> FleetJob:
    steps = _Steps(sorted(entries.steps))
    starts = sorted(entries.starts) or steps.times[:1]
    events = [*steps.times, *(piece.end for piece in entries.pieces), *starts, *entries.ends]
    begin, end = starts[0], max(events)
    ends = sorted(entries.ends)
    edges = [*starts, end]
    pieces: list[Piece] = []
    for number, at in enumerate(starts):
        pieces += _attempt(steps, at, edges[number + 1], _ended(ends, at))
    named = within(flatten(entries.pieces), begin, end)
    whole = totals([*subtract(sorted(pieces), named), *named])
    seconds = (end - begin) / _NANO
    trained = whole.get("training", 0) / _NANO
    trained_at = bisect_left(steps.times, begin)
    first = steps.times[trained_at] if trained_at < len(steps.times) else None
    start = totals(within(named, begin, end if first is None else first))
    told = [*notes, "ml-goodput-measurement records no launch, and no end of the last step"]
    if whole.get("lost"):
        told.append("steps that were repeated count as lost work")
    return FleetJob(
        source=source,
        place=place,
        kind="goodput",
        job=name or last_name(place),
        begin=usable_time(begin / _NANO),
        seconds=seconds,
        time_to_start_s=None if first is None else (first - begin) / _NANO,
        times_to_recover_s=_recoveries(steps, starts),
        train_s=trained,
        ett=trained / seconds if seconds else 0.0,
        failures=len(starts) - 1,
        attempts=len(starts),
        steps=len({number for _, number in steps.entries}),
        phases={key: took / _NANO for key, took in whole.items() if took},
        start={key: took / _NANO for key, took in start.items()},
        labels={"job": name} if name else {},
        notes=told,
    )


def _attempt(steps: _Steps, begin: int, end: int, ended: int | None) -> Iterator[Piece]:
    """The time from a start to the next one."""
    first, after = bisect_left(steps.times, begin), bisect_right(steps.times, end)
    own = steps.entries[first:after]
    stop = end if ended is None else min(end, ended)
    if not own:
        yield Piece(begin, end, "starting")
        return
    yield Piece(begin, own[0][0], "starting")
    resumed = steps.least_from[after]  # a later start repeats the steps from here
    kept = [at for at, number in own if resumed is None or number < resumed]
    edge = own[len(kept)][0] if len(kept) < len(own) else max(own[-1][0], stop)
    yield Piece(own[0][0], edge, "training")
    if len(kept) < len(own):
        yield Piece(edge, own[-1][0], "lost")
        edge = own[-1][0]
    if edge < end:
        yield Piece(edge, end, "restart")


def _ended(ends: list[int], begin: int) -> int | None:
    """The first end of a job after a start; `ends` are sorted."""
    place = bisect_left(ends, begin)
    return ends[place] if place < len(ends) else None


def _recoveries(steps: _Steps, starts: list[int]) -> list[float]:
    """From the last step before each restart to the first one after it."""
    found = []
    for at in starts[1:]:
        place = bisect_left(steps.times, at)
        if 0 < place < len(steps.times):
            found.append((steps.times[place] - steps.times[place - 1]) / _NANO)
    return found
