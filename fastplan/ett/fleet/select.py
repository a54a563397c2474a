"""Selects jobs of a fleet: labels from a rule over paths, filters by label and date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec

from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.labels import MOST_LABELS

_FIELD = re.compile(r"\{(\w+)\}|(\*)")


class PathRule:
    """Labels from the end of a path: `{team}/{job}` or `{round}-{vendor}-*-result_*.log`.

    `{name}` matches within a part of the path and becomes a label, `*` matches within a part, too.

    Args:
        text: The rule.

    Raises:
        ValueError: The rule has no name, or a name twice.
    """

    def __init__(self, text: str) -> None:
        names = [name for name, _ in _FIELD.findall(text) if name]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"must name labels, each once, such as {{team}}/{{job}}, not {text!r}")
        pattern, done = "", 0
        for found in _FIELD.finditer(text):
            pattern += re.escape(text[done : found.start()])
            pattern += f"(?P<{found[1]}>[^/]+?)" if found[1] else "[^/]*?"
            done = found.end()
        self._pattern = re.compile(f"(?:.*/)?{pattern}{re.escape(text[done:])}", re.DOTALL)

    def labels(self, place: str) -> dict[str, str]:
        """Returns the labels of a path; none if the rule does not match it."""
        found = self._pattern.fullmatch(place)
        return {} if found is None else found.groupdict()


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which jobs to show.

    Attributes:
        rule: Adds labels from paths. Labels that a job has recorded itself win.
        where: Values of labels; `job` and `kind` count as labels.
        since: Only jobs that began at this time or later, in seconds since 1970.
        until: Only jobs that began before this time.
    """

    rule: PathRule | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None

    def apply(self, jobs: Iterable[FleetJob]) -> list[FleetJob]:
        """Returns the selected jobs, with all of their labels."""
        return [job for job in map(self._labelled, jobs) if self._wanted(job)]

    def _labelled(self, job: FleetJob) -> FleetJob:
        labels = self.rule.labels(job.place) if self.rule is not None else {}
        labels = dict([*labels.items(), *job.labels.items()][: 2 * MOST_LABELS])
        name = labels.get("job", job.job)
        if labels == job.labels and name == job.job:
            return job
        return msgspec.structs.replace(job, labels=labels, job=name)

    def _wanted(self, job: FleetJob) -> bool:
        if any(label(job, name) != value for name, value in self.where.items()):
            return False
        if self.since is None and self.until is None:
            return True
        if job.begin is None:
            return False
        return (self.since is None or job.begin >= self.since) and (
            self.until is None or job.begin < self.until
        )


def label(job: FleetJob, name: str) -> str:
    """Returns a label of a job, `job` and `kind` among them; empty if it has none."""
    if name == "kind":
        return job.kind
    return job.labels.get(name, job.job if name == "job" else "")


def parse_moment(text: str, now: float) -> float:
    """Returns the seconds since 1970 of `2026-01-31`, of an ISO time, or of `14d` before now.

    Raises:
        ValueError: for any other text.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found:
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[found[2]]
        return now - float(found[1]) * unit
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"must be a date such as 2026-01-31, or 14d, not {text!r}") from None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
