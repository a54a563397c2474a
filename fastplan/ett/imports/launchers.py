"""The time before Python starts: what Slurm and Kubernetes know about queueing and containers.

Formats: `sacct -P` with a header, `sacct --json`, `kubectl get events -o json`, and `kubectl get
pods -o json`. Jobs are found by the labels `slurm_job` and `pod`, which the recorder writes. Only
what lies before a job's own begin is added to it. Not known: which of several pods a job waited
for; the pod of its first rank counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from fastplan.ett.fleet.jobs import FleetJob

LABELS = ("slurm_job", "pod")
_MOST_BYTES = 1 << 28
_MOST = 4e9  # seconds since 1970; Slurm writes 4294967294 for "never"


@dataclass(slots=True)
class Launch:
    """When a job was submitted, got its resources, and ran; in seconds since 1970."""

    submitted: float | None = None
    started: float | None = None
    running: float | None = None

    def pieces(self, until: float) -> Iterator[tuple[str, float]]:
        """The phases before a time, and their seconds."""
        edges = [
            ("queue", self.submitted, self.started),
            ("container", self.started, self.running),
        ]
        done = -math.inf
        for name, begin, end in edges:
            if begin is not None and end is not None:
                begin, end = max(begin, done), min(end, until)
                if end > begin:
                    yield name, end - begin
                done = max(done, end)
        last = max((t for t in (self.started, self.running) if t is not None), default=None)
        if last is not None and last < until:
            yield "launch", until - last


def read_launches(data: bytes) -> dict[str, Launch]:
    """Returns launches by the id of a Slurm job or the name of a pod.

    Args:
        data: The output of sacct or kubectl.

    Raises:
        ValueError: It is neither.
    """
    text = data[:_MOST_BYTES].decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _sacct_table(text)
    if type(document) is dict and type(document.get("jobs")) is list:
        return _sacct_json(document["jobs"])
    if type(document) is dict and type(document.get("items")) is list:
        return _kubernetes(document["items"])
    raise ValueError("it has neither `jobs` of sacct nor `items` of kubectl")


def add_launches(jobs: Iterable[FleetJob], launches: dict[str, Launch]) -> list[FleetJob]:
    """Returns jobs with the time before their begin, as far as it is known."""
    return [_with_launch(job, launches) for job in jobs]


def _with_launch(job: FleetJob, launches: dict[str, Launch]) -> FleetJob:
    ids = [job.labels[name] for name in LABELS if name in job.labels]
    found = next((launches[each] for each in ids if each in launches), None)
    if found is None or job.begin is None:
        return job
    added: dict[str, float] = {}
    for name, took in found.pieces(job.begin):
        added[name] = added.get(name, 0.0) + took
    more = sum(added.values())
    if not more:
        return job
    seconds = job.seconds + more
    return msgspec.structs.replace(
        job,
        begin=job.begin - more,
        seconds=seconds,
        time_to_start_s=None if job.time_to_start_s is None else job.time_to_start_s + more,
        ett=job.train_s / seconds,
        phases=_sum(added, job.phases),
        start=_sum(added, job.start) if job.start else {},
    )


def _sum(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    found = dict(first)
    for name, took in second.items():
        found[name] = found.get(name, 0.0) + took
    return found


def _sacct_table(text: str) -> dict[str, Launch]:
    # Not by `csv`, which raises for long fields and lone carriage returns.
    header, *rows = [line.split("|") for line in text.splitlines() or [""]]
    if not {"JobID", "Submit", "Start"} <= set(header):
        raise ValueError(
            "it is not the output of `sacct -P -o JobID,Submit,Start`, nor JSON of sacct or kubectl"
        )
    found: dict[str, Launch] = {}
    for values in rows:
        row = dict(zip(header, values, strict=False))
        job, submitted, started = row.get("JobID"), row.get("Submit"), row.get("Start")
        if job and "." not in job:  # steps, such as 123.batch, are part of their job
            found[job] = Launch(_moment(submitted), _moment(started))
    return found


def _sacct_json(jobs: list[Any]) -> dict[str, Launch]:
    found = {}
    for job in jobs:
        times = job.get("time") if type(job) is dict else None
        if type(times) is dict and type(job.get("job_id")) is int:
            launch = Launch(_moment(times.get("submission")), _moment(times.get("start")))
            found[str(job["job_id"])] = launch
    return found


def _kubernetes(items: list[Any]) -> dict[str, Launch]:
    found: dict[str, Launch] = {}
    for item in items:
        if type(item) is not dict:
            continue
        if item.get("kind") == "Pod" or "status" in item:
            _add_pod(found, item)
        else:
            _add_event(found, item)
    return found


def _add_event(found: dict[str, Launch], event: dict[str, Any]) -> None:
    pod, reason = _get(event, "involvedObject", "name"), event.get("reason")
    times = (event.get(name) for name in ("firstTimestamp", "eventTime", "lastTimestamp"))
    at = next((t for t in map(_moment, times) if t is not None), None)
    if type(pod) is not str or at is None:
        return
    launch = found.setdefault(pod, Launch())
    if reason == "Scheduled":
        launch.started = _least(launch.started, at)
    elif reason in ("SuccessfulCreate", "FailedScheduling"):
        launch.submitted = _least(launch.submitted, at)
    elif reason == "Started":
        launch.running = at if launch.running is None else max(launch.running, at)


def _add_pod(found: dict[str, Launch], pod: dict[str, Any]) -> None:
    name = _get(pod, "metadata", "name")
    if type(name) is not str:
        return
    launch = found.setdefault(name, Launch())
    launch.submitted = _least(launch.submitted, _moment(_get(pod, "metadata", "creationTimestamp")))
    for condition in _list(pod, "conditions"):
        if _get(condition, "type") == "PodScheduled" and _get(condition, "status") == "True":
            launch.started = _least(launch.started, _moment(_get(condition, "lastTransitionTime")))
    for container in _list(pod, "containerStatuses"):
        for state in ("running", "terminated"):
            at = _moment(_get(container, "state", state, "startedAt"))
            if at is not None:
                launch.running = at if launch.running is None else max(launch.running, at)


def _list(pod: dict[str, Any], name: str) -> list[Any]:
    found = _get(pod, "status", name)
    return found if type(found) is list else []


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if type(value) is dict else None
    return value


def _least(before: float | None, at: float | None) -> float | None:
    return at if before is None else before if at is None else min(before, at)


def _moment(value: Any) -> float | None:
    """Seconds since 1970 of a number, of digits, or of an ISO time; the latter in local time."""
    if type(value) is dict:  # newer versions of sacct: {"set": true, "number": 1700000000}
        value = value.get("number")
    try:
        if type(value) is str and not value.isdecimal():
            found = datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        elif type(value) in (int, float, str):
            found = float(value)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return found if 0 < found < _MOST else None
