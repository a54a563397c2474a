"""MLPerf's logs: `:::MLLOG {json}` lines, and `:::MLPv0.5.0` or `:::MLL` lines of its first rounds.

Known: the initialisation, the run that MLPerf times, and the evaluations within it. Not known: the
launch, imports, planning, lost work, and in most logs the number of ranks. MLPerf counts
evaluations as part of the run, so `train_s` includes them, and `within` has their time.

A log may have other lines, prefixes such as srun's `3: ` or `[rank3]`, several ranks, or several
runs in a row. Its lines may be within Docker's JSON. A job waits for its slowest rank: an interval
lasts from its first begin to its last end. Lines with the time 0 were added by hand, such as labels
that a submission lacked: they have a value, but no time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastplan.ett.fleet.jobs import FleetJob, last_name, usable_time
from fastplan.ett.labels import clean_labels

MARK = re.compile(rb":::MLLOG\s*\{|:::MLPv\d|:::MLL\s+\d")
_LINE = re.compile(
    r":::MLLOG\s*(\{.*)"
    r"|:::ML(?:Pv[\d.]+\s+\S+|L)\s+([\d.]+)\s+(?:\(.*?\)\s+)?([\w.]+)(.*)"
)
_LONGEST_LINE = 1 << 20
_LABELS = {
    "submission_benchmark": "model",
    "submission_org": "team",
    "submission_platform": "cluster",
    "submission_division": "division",
    "submission_status": "status",
}
_ENDED_WELL = ("success", "")
_RANKS = "number_of_ranks"
_NODES, _PER_NODE = "number_of_nodes", "accelerators_per_node"
_BEGINS = ("cache_clear", "init_start")  # what a run begins with
_MOST_RANKS = 1 << 24
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
        self.counts: dict[str, int] = {}
        self._latest = 0

    def add(self, event: _Event) -> None:
        self._latest = max(self._latest, event.at)
        if event.at:
            self.times.setdefault(event.key, []).append(event.at)
        if event.key in (_RANKS, _NODES, _PER_NODE):
            if type(event.value) is int and 0 < event.value < _MOST_RANKS:
                self.counts[event.key] = event.value
        elif event.key in ("eval_start", "eval_stop") and event.at:
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

    @property
    def ranks(self) -> int | None:
        """The number of ranks, as far as the log has it."""
        if _RANKS in self.counts:
            return self.counts[_RANKS]
        if {_NODES, _PER_NODE} <= self.counts.keys():
            return self.counts[_NODES] * self.counts[_PER_NODE]
        return None

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
            if not runs or (event.key in _BEGINS and runs[-1].is_before(event.at)):
                runs.append(_Run())
            runs[-1].add(event)
    notes = [f"{skipped} damaged lines of MLLOG are skipped"] if skipped else []
    return [
        _job(run, place, number, notes, followed=number < len(runs))
        for number, run in enumerate(runs, 1)
    ]


def _events(data: bytes) -> Iterator[_Event | None]:
    """The events of a log in order; None for a line that has the mark and can't be read."""
    for raw in data.splitlines():
        for part in raw.split(b":::ML")[1:]:  # ranks may write to the same line
            found = _LINE.match(":::ML" + part[:_LONGEST_LINE].decode("utf-8", "replace"))
            if found is not None:
                yield _json_event(found[1]) if found[1] else _old_event(*found.group(2, 3, 4))


def _json_event(text: str) -> _Event | None:
    if text.startswith('{\\"'):  # within a text of JSON
        text = text.replace('\\"', '"').replace("\\\\", "\\")
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
    """An event of `:::MLPv0.5.0 model seconds (file:line) key: value`, or of
    `:::MLL seconds key: {"value": value}`.
    """
    at = _microseconds(time, 1_000_000)
    value = rest.lstrip(": ").strip().strip("\"'")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    metadata: dict[str, Any] = {}
    if type(parsed) is dict and type(parsed.get("success")) is bool:
        metadata = {"status": "success" if parsed["success"] else "failure"}
    elif type(parsed) is dict and type(parsed.get("metadata")) is dict:
        metadata, parsed = parsed["metadata"], parsed.get("value")
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


def _job(run: _Run, place: str, number: int, notes: list[str], *, followed: bool) -> FleetJob:
    """The job of a run. `followed`: another run follows in the same log."""
    known = [at for times in run.times.values() for at in times]
    begin, end = run.first("run_start"), run.last("run_stop")
    init_begin, init_end = run.first("init_start"), run.last("init_stop")
    told = list(notes)
    if init_begin is not None and init_end is None:
        told.append("the initialisation has no end in the log")
        init_end = begin
    if begin is not None and end is None:
        told.append("the run has no end in the log: counted up to the last event")
    failed = end is not None and run.status not in _ENDED_WELL
    if followed and begin is not None and end is None:
        told.append("another run follows, so it counts as a failure")
        failed = True
    whole_init = None if init_begin is None or init_end is None else max(0, init_end - init_begin)
    first = (
        init_begin
        if init_begin is not None
        else begin
        if begin is not None
        else min(known, default=0)
    )
    over = max(known, default=0) if end is None else end
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
        begin=usable_time(first / 1e6) if known else None,
        seconds=seconds / 1e6,
        time_to_start_s=None if whole_init is None else whole_init / 1e6,
        train_s=trained / 1e6,
        ett=trained / seconds if seconds else 0.0,
        failures=int(failed),
        ranks=run.ranks,
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
