"""MLPerf's logs: `:::MLLOG {json}` lines, and the `:::MLPv0.5.0` lines of its first rounds.

Known: the initialisation, the run that MLPerf times, and the evaluations within it. Not known: the
launch, imports, planning, lost work, and the number of ranks. MLPerf counts evaluations as part of
the run, so `train_s` includes them, and `within` has their time.

A log may have other lines, prefixes such as srun's `3: `, several ranks, or several runs in a row.
A job waits for its slowest rank: an interval lasts from its first begin to its last end.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.ett.fleet.jobs import FleetJob, last_name, usable_time
from fastplan.ett.labels import clean_labels

MARK = re.compile(rb":::MLLOG\s*\{|:::MLPv\d")
_LINE = re.compile(r":::MLLOG\s*(\{.*)|:::MLPv[\d.]+\s+(\S+)\s+([\d.]+)\s+\(.*?\)\s+([\w.]+)(.*)")
_LONGEST_LINE = 1 << 20
_LABELS = {
    "submission_benchmark": "model",
    "submission_org": "team",
    "submission_platform": "cluster",
    "submission_division": "division",
    "submission_status": "status",
}
_ENDED_WELL = ("success", "")
_DECODER = json.JSONDecoder()


class _Event(NamedTuple):
    at: int  # microseconds since 1970
    key: str
    value: Any
    metadata: dict[str, Any]


class _Run:
    """The events from an initialisation to the end of its run."""

    def __init__(self) -> None:
        self.times: dict[str, list[int]] = {}
        self.labels: dict[str, str] = {}
        self.evals: list[tuple[int, int]] = []  # time, and 1 for a begin or -1 for an end
        self.status = ""
        self._latest = 0

    def add(self, event: _Event) -> None:
        self._latest = max(self._latest, event.at)
        self.times.setdefault(event.key, []).append(event.at)
        if event.key in ("eval_start", "eval_stop"):
            self.evals.append((event.at, 1 if event.key == "eval_start" else -1))
        elif event.key in _LABELS and isinstance(event.value, str):
            self.labels[_LABELS[event.key]] = event.value
        elif event.key == "run_stop":
            status = event.metadata.get("status", event.value)
            if isinstance(status, str) and not (self.status and status in _ENDED_WELL):
                self.status = status

    def is_before(self, at: int) -> bool:
        """Whether an initialisation at this time is of another run, and not of another rank."""
        return "run_start" in self.times and at >= self._latest

    def first(self, key: str) -> int | None:
        return min(self.times.get(key, []), default=None)

    def last(self, key: str) -> int | None:
        return max(self.times.get(key, []), default=None)


def read_jobs(place: str, data: bytes) -> list[FleetJob]:
    """Returns the runs of a log, as far as it goes."""
    runs: list[_Run] = []
    skipped = 0
    for event in _events(data):
        if event is None:
            skipped += 1
        else:
            if not runs or (event.key == "init_start" and runs[-1].is_before(event.at)):
                runs.append(_Run())
            runs[-1].add(event)
    notes = [f"{skipped} damaged lines of MLLOG are skipped"] if skipped else []
    return [_job(run, place, number, notes) for number, run in enumerate(runs, 1)]


def _events(data: bytes) -> Iterator[_Event | None]:
    """The events of a log in order; None for a line that has the mark and can't be read."""
    for raw in data.splitlines():
        for part in raw.split(b":::ML")[1:]:  # ranks may write to the same line
            found = _LINE.match(":::ML" + part[:_LONGEST_LINE].decode("utf-8", "replace"))
            if found is not None:
                yield _json_event(found[1]) if found[1] else _old_event(*found.group(3, 4, 5))


def _json_event(text: str) -> _Event | None:
    try:
        entry, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    at = _microseconds(entry.get("time_ms"), 1000)
    key, metadata = entry.get("key"), entry.get("metadata")
    if at is None or not isinstance(key, str):
        return None
    return _Event(at, key.lower(), entry.get("value"), metadata if type(metadata) is dict else {})


def _old_event(time: str, key: str, rest: str) -> _Event | None:
    """An event of `:::MLPv0.5.0 model seconds (file:line) key: value`."""
    at = _microseconds(time, 1_000_000)
    value = rest.lstrip(": ").strip().strip("\"'")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    metadata = (
        {"status": "success" if parsed["success"] else "failure"}
        if (type(parsed) is dict and type(parsed.get("success")) is bool)
        else {}
    )
    return None if at is None else _Event(at, key.lower(), parsed, metadata)


def _microseconds(value: Any, unit: int) -> int | None:
    """A time as whole microseconds. `unit` is how many of them make one of `value`."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is int and 0 <= value < 1 << 53:
        return value * unit
    if type(value) is float and math.isfinite(value) and 0 <= value * unit < 1 << 62:
        return round(value * unit)
    return None


def _job(run: _Run, place: str, number: int, notes: list[str]) -> FleetJob:
    known = [at for times in run.times.values() for at in times]
    begin, end = run.first("run_start"), run.last("run_stop")
    init_begin, init_end = run.first("init_start"), run.last("init_stop")
    told = list(notes)
    if init_begin is not None and init_end is None:
        told.append("the initialisation has no end in the log")
        init_end = begin
    if begin is not None and end is None:
        told.append("the run has no end in the log: counted up to the last event")
    whole_init = None if init_begin is None or init_end is None else max(0, init_end - init_begin)
    first = init_begin if init_begin is not None else begin if begin is not None else min(known)
    over = max(known) if end is None else end
    trained = 0 if begin is None else max(0, over - begin)
    init = whole_init or 0
    seconds = max(over - first, init + trained)
    phases = {"init": init, "starting": seconds - init - trained, "run": trained}
    evaluating = _evaluating(run.evals)
    return FleetJob(
        source=place if number == 1 else f"{place}#{number}",
        place=place,
        kind="mllog",
        job=last_name(place),
        begin=usable_time(first / 1e6),
        seconds=seconds / 1e6,
        time_to_start_s=None if whole_init is None else whole_init / 1e6,
        train_s=trained / 1e6,
        ett=trained / seconds if seconds else 0.0,
        failures=int(end is not None and run.status not in _ENDED_WELL),
        phases={name: took / 1e6 for name, took in phases.items() if took > 0},
        start={"init": init / 1e6} if init else {},
        within={"eval": evaluating / 1e6} if evaluating else {},
        labels=clean_labels(run.labels),
        notes=told,
    )


def _evaluating(changes: list[tuple[int, int]]) -> int:
    """The microseconds in which any rank evaluates."""
    total = depth = since = 0
    for at, change in sorted(changes, key=lambda entry: (entry[0], -entry[1])):
        if depth == 0:
            since = at
        elif depth + change == 0:
            total += at - since
        depth = max(0, depth + change)
    return total
