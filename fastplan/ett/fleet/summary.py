"""The figures of a fleet: ETT over time, distributions, phases by hours lost, the worst jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.fleet.select import label
from fastplan.ett.phases import Kind, phase_name, phase_order

_DAY = 86_400
TRAINED = ("training", "run")  # an MLPerf run is training, with its evaluations


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Quantiles of a figure over jobs."""

    n: int
    least: float
    median: float
    p90: float
    most: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseLoss:
    """The time that a phase took from all jobs."""

    phase: str
    seconds: float
    share: float  # of the time of all jobs
    jobs: int
    median: float  # of the jobs that have it


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The jobs with the same value of a label, or of the same day."""

    name: str
    jobs: int
    seconds: float
    ett: float
    time_to_start: float | None  # the median
    failures: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The figures of some jobs. Times are in seconds; `ett` is the share of all their time."""

    jobs: int
    seconds: float
    train_s: float
    ett: float
    begin: float | None
    end: float | None
    job_ett: Spread | None
    time_to_start: Spread | None
    time_to_recover: Spread | None
    failures: int
    failing_jobs: int
    phases: tuple[PhaseLoss, ...]
    days: tuple[Group, ...]


def summarise(jobs: Sequence[FleetJob]) -> Summary:
    """Returns the figures of some jobs."""
    seconds = sum(job.seconds for job in jobs)
    trained = sum(job.train_s for job in jobs)
    begins = [job.begin for job in jobs if job.begin is not None]
    starts = [job.time_to_start_s for job in jobs if job.time_to_start_s is not None]
    return Summary(
        jobs=len(jobs),
        seconds=seconds,
        train_s=trained,
        ett=trained / seconds if seconds else 0.0,
        begin=min(begins, default=None),
        end=max((j.begin + j.seconds for j in jobs if j.begin is not None), default=None),
        job_ett=spread(job.ett for job in jobs),
        time_to_start=spread(starts),
        time_to_recover=spread(took for job in jobs for took in job.times_to_recover_s),
        failures=sum(job.failures for job in jobs),
        failing_jobs=sum(job.failures > 0 for job in jobs),
        phases=tuple(_losses(jobs, seconds)),
        days=tuple(group_by(jobs, _day)),
    )


def summary_json(summary: Summary) -> dict[str, Any]:
    """Returns the figures as JSON types."""
    return asdict(summary)


def spread(values: Iterable[float]) -> Spread | None:
    """Returns quantiles, or None without values."""
    found = sorted(values)
    if not found:
        return None
    return Spread(
        n=len(found),
        least=found[0],
        median=quantile(found, 0.5),
        p90=quantile(found, 0.9),
        most=found[-1],
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """Returns a quantile of sorted values, between two of them if it falls there."""
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def is_training(phase: str) -> bool:
    """Whether a phase is training on new data."""
    return phase in TRAINED or phase_name(phase).kind is Kind.TRAIN


def _losses(jobs: Sequence[FleetJob], seconds: float) -> list[PhaseLoss]:
    times: dict[str, list[float]] = {}
    for job in jobs:
        for name, took in job.phases.items():
            times.setdefault(name, []).append(took)
    found = [
        PhaseLoss(
            phase=name,
            seconds=sum(took),
            share=sum(took) / seconds if seconds else 0.0,
            jobs=len(took),
            median=quantile(sorted(took), 0.5),
        )
        for name, took in times.items()
        if not is_training(name)
    ]
    return sorted(found, key=lambda loss: (-loss.seconds, phase_order(loss.phase)))


def _day(job: FleetJob) -> str | None:
    if job.begin is None:
        return None
    return datetime.fromtimestamp(job.begin // _DAY * _DAY, timezone.utc).date().isoformat()


def group_by_label(jobs: Sequence[FleetJob], name: str) -> list[Group]:
    """Returns the jobs by the value of a label."""
    return group_by(jobs, lambda job: label(job, name) or "(none)")


def group_by(jobs: Sequence[FleetJob], key: Callable[[FleetJob], str | None]) -> list[Group]:
    """Returns groups of jobs, sorted by name; jobs without one are left out."""
    found: dict[str, list[FleetJob]] = {}
    for job in jobs:
        name = key(job)
        if name is not None:
            found.setdefault(name, []).append(job)
    return [_group(name, found[name]) for name in sorted(found)]


def _group(name: str, jobs: list[FleetJob]) -> Group:
    seconds = sum(job.seconds for job in jobs)
    starts = spread(job.time_to_start_s for job in jobs if job.time_to_start_s is not None)
    return Group(
        name=name,
        jobs=len(jobs),
        seconds=seconds,
        ett=sum(job.train_s for job in jobs) / seconds if seconds else 0.0,
        time_to_start=None if starts is None else starts.median,
        failures=sum(job.failures for job in jobs),
    )


def worst_jobs(jobs: Sequence[FleetJob], count: int) -> list[FleetJob]:
    """Returns the jobs that lost the most time."""
    return sorted(jobs, key=lambda job: (job.train_s - job.seconds, job.source))[:count]


def shown_names(jobs: Sequence[FleetJob]) -> dict[str, str]:
    """Returns a name to show for each job, by its source.

    Jobs that share a name, such as `result_0.log`, get as many parts of their paths as it takes to
    tell them apart.
    """
    same: dict[str, list[str]] = {}
    for job in jobs:
        same.setdefault(job.job, []).append(job.source)
    found: dict[str, str] = {}
    for name, sources in same.items():
        if len(sources) == 1:
            found[sources[0]] = name
            continue
        for source, tail in zip(sources, _distinct_tails(sources), strict=True):
            last = tail.rpartition("/")[2].partition("#")[0]
            found[source] = tail if last == name else f"{name} ({tail})"
    return found


def _distinct_tails(sources: list[str]) -> list[str]:
    """The last parts of some paths, as few as tell them apart."""
    parts = [source.split("/") for source in sources]
    tails = sources
    for count in range(1, max(map(len, parts))):
        tails = ["/".join(part[-count:]) for part in parts]
        if len(set(tails)) == len(tails):
            return tails
    return sources
