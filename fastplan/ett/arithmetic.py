"""Computes a job's Effective Training Time and the time of all other phases.

ETT is the share of the time from launch to end in which the job trained on new data. At any time
the job is in the phase that the other ranks wait for (`phases.merge_by_priority`). So the time of a
phase is the maximum over ranks, and all phases add up to the whole time. Time that is not training
is idle, except the cost of failures: lost work, and everything from a failure to the end of the
next start. A start ends with the first batch; other phases during the first step, such as
compiling, are part of the start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from fastplan.ett.building import load
from fastplan.ett.causes import end_cause
from fastplan.ett.phases import Kind, phase_name, phase_order, totals, within
from fastplan.ett.timeline import Attempt, Job, RankTimeline
from fastplan.report.units import format_ranks

_SECOND = 1e9  # nanoseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class LongestPhase:
    """The longest time of a rank in a phase, in seconds."""

    seconds: float
    rank: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannerTimes:
    """The times inside a planner, as it reports them."""

    rank: int
    seconds: float
    engine: str | None
    cache: str | None
    parts: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTimes:
    """All checkpoints of a job. Times are in seconds, each of the rank that took longest."""

    count: int = 0
    blocking: float = 0.0  # training waited: saving, or staging of asynchronous saves
    upload: float = 0.0  # in the background


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptReport:
    """The report on one attempt. Times are in seconds, `begin` and `end` since the job's begin."""

    number: int
    run: str
    restart: int
    world: int
    ranks: int
    begin: float
    end: float
    failed: bool
    cause: str | None  # None if it ended normally
    to_training: float | None  # from the previous failure, or the launch, to the end of its start
    to_first_step: float | None  # from its begin to the end of its first step
    productive: float
    steps: int  # without lost ones
    lost_steps: int
    phases: dict[str, float]  # its whole time by phase
    start: dict[str, float]  # its start by phase
    until_first_step: dict[str, float]
    plan: PlannerTimes | None

    @property
    def seconds(self) -> float:
        """From its begin to its end."""
        return self.end - self.begin

    @property
    def planning(self) -> float:
        """Planning and sending the plan, as far as other ranks waited for it."""
        return sum(self.start.get(name, 0.0) for name in ("plan", "broadcast"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The report on a job. Times are in seconds; `ett` is a fraction."""

    source: str
    seconds: float
    productive: float
    failing: float  # the cost of failures
    failures: int
    steps: int
    lost_steps: int
    attempts: tuple[AttemptReport, ...]
    phases: dict[str, float]
    longest: dict[str, LongestPhase]
    background: dict[str, float]  # the longest time of a rank in the background, by phase
    notes: tuple[str, ...]
    checkpoints: CheckpointTimes = CheckpointTimes()

    @property
    def ett(self) -> float:
        """Effective Training Time, from 0 to 1."""
        return self.productive / self.seconds if self.seconds else 0.0

    @property
    def idle(self) -> float:
        """The time that is neither training nor the cost of failures."""
        return self.seconds - self.productive - self.failing

    @property
    def time_to_start(self) -> float | None:
        """From the launch to the end of the first complete start."""
        return next((a.to_training for a in self.attempts if a.to_training is not None), None)

    @property
    def times_to_recover(self) -> tuple[float, ...]:
        """From each failure to the end of the next complete start."""
        found = [a.to_training for a in self.attempts if a.to_training is not None]
        return tuple(found[1:])

    @property
    def lost(self) -> float:
        """The time of lost work."""
        return self.phases.get("lost", 0.0)


def read_report(directory: str | os.PathLike[str]) -> Report:
    """Reads the job in a directory and returns its report.

    Raises:
        RecordError: if no job was recorded there.
    """
    return job_report(load(directory))


def job_report(job: Job, *, by_rank: bool = True) -> Report:
    """Returns the report on a job.

    Args:
        job: The job.
        by_rank: Whether to find the longest phases of ranks, which takes a third of the time.
    """
    reports = []
    failing = 0
    failed_at: int | None = None
    for attempt in job.attempts:
        start = _start(attempt)
        reports.append(_report(attempt, start, job.begin, failed_at))
        failing += _cost_of_failures(attempt, start)
        failed_at = _failed_at(attempt, failed_at)
    seconds = (job.end - job.begin) / _SECOND
    productive = sum(report.productive for report in reports)
    phases = _in_order(_added([report.phases for report in reports]))
    return Report(
        source=job.source,
        seconds=seconds,
        productive=productive,
        failing=failing / _SECOND,
        failures=sum(attempt.failed for attempt in job.attempts) + job.unseen_restarts,
        steps=sum(report.steps for report in reports),
        lost_steps=sum(report.lost_steps for report in reports),
        attempts=tuple(reports),
        phases=phases,
        longest=_longest(job) if by_rank else {},
        background=_background(job) if by_rank else {},
        notes=tuple(dict.fromkeys([*job.notes, *_notes(job)])),
        checkpoints=_checkpoints(job, phases),
    )


def _checkpoints(job: Job, phases: dict[str, float]) -> CheckpointTimes:
    uploads = [
        sum(p.until - p.begin for p in rank.background if p.name == "checkpoint_upload")
        for attempt in job.attempts
        for rank in attempt.ranks
    ]
    return CheckpointTimes(
        count=sum(max(len(rank.checkpoints) for rank in a.ranks) for a in job.attempts),
        blocking=sum(phases.get(name, 0.0) for name in ("checkpoint_save", "checkpoint_stage")),
        upload=max(uploads, default=0) / _SECOND,
    )


def _report(
    attempt: Attempt, start: dict[str, int] | None, origin: int, failed_at: int | None
) -> AttemptReport:
    step_end = attempt.first_step_end
    phases = _move_short_phases(attempt, totals(attempt.job))
    since = origin if failed_at is None else failed_at
    return AttemptReport(
        number=attempt.number,
        run=attempt.run,
        restart=attempt.restart,
        world=attempt.world,
        ranks=len(attempt.ranks),
        begin=(attempt.begin - origin) / _SECOND,
        end=(attempt.end - origin) / _SECOND,
        failed=attempt.failed,
        cause=end_cause(attempt),
        to_training=None
        if start is None
        else (attempt.begin - since + sum(start.values())) / _SECOND,
        to_first_step=None if step_end is None else (step_end - attempt.begin) / _SECOND,
        productive=phases.get("training", 0) / _SECOND,
        steps=max(sum(s.count for s in rank.steps) - rank.lost_steps for rank in attempt.ranks),
        lost_steps=max(rank.lost_steps for rank in attempt.ranks),
        phases=_seconds(phases),
        start=_seconds(start or {}),
        until_first_step=_seconds(
            totals(within(attempt.job, attempt.begin, step_end or attempt.begin))
        ),
        plan=_plan(attempt),
    )


def _start(attempt: Attempt) -> dict[str, int] | None:
    """All phases before the first batch, and all but training until the first step ends."""
    batch = attempt.first_batch
    if batch is None:
        return None
    first_step = within(attempt.job, batch, attempt.first_step_end or batch)
    other = [p for p in first_step if phase_name(p[2]).kind not in (Kind.TRAIN, Kind.LOST)]
    return totals([*within(attempt.job, attempt.begin, batch), *other])


def _move_short_phases(attempt: Attempt, phases: dict[str, int]) -> dict[str, int]:
    """Moves short phases out of their outer phases, by the rank that spent most on them."""
    for (outer, name), took in sorted(_largest_short_phases(attempt).items()):
        took = min(took, phases.get(outer, 0))
        if took > 0:
            phases[outer] -= took
            phases[name] = phases.get(name, 0) + took
    return phases


def _largest_short_phases(attempt: Attempt) -> dict[tuple[str, str], int]:
    most: dict[tuple[str, str], int] = {}
    failed = attempt.failed
    for rank in attempt.ranks:
        for key, took in _short_phases(rank, failed).items():
            most[key] = max(took, most.get(key, 0))
    return most


def _short_phases(rank: RankTimeline, failed: bool) -> dict[tuple[str, str], int]:
    """A rank's short phases by their outer phase and name; its attempt may have failed."""
    found: dict[tuple[str, str], int] = {}
    last = "stalled" if failed else "ending"
    outer = [("training", rank.kept_sums), (last, rank.rest)]
    inner_sums = ((phase.name, phase.sums) for phase in rank.phases if phase.sums)
    for name, sums in [*outer, *inner_sums]:
        for inner, (_, took) in sums.items():
            found[name, inner] = found.get((name, inner), 0) + took
    return found


def _cost_of_failures(attempt: Attempt, start: dict[str, int] | None) -> int:
    """Nanoseconds of an attempt caused by failures."""
    if start is None:
        return attempt.end - attempt.begin if attempt.failed or attempt.number else 0
    whole = totals(attempt.job)
    recovering = sum(start.values()) if attempt.number else 0
    return recovering + whole.get("lost", 0) + whole.get("stalled", 0)


def _failed_at(attempt: Attempt, before: int | None) -> int | None:
    """When training ended: the begin of the last `stalled` pieces."""
    if attempt.first_batch is None:
        return before
    end = attempt.end
    for piece in reversed(attempt.job):
        if piece.name != "stalled":
            break
        end = piece.begin
    return end


def _plan(attempt: Attempt) -> PlannerTimes | None:
    """The times inside the planner on the rank that planned longest."""
    found = []
    for rank in attempt.ranks:
        phases = [phase for phase in rank.phases if phase.name == "plan"]
        if phases:
            found.append((sum(p.until - p.begin for p in phases), rank.rank, phases))
    if not found:
        return None
    took, rank_number, phases = max(found, key=lambda entry: entry[0])
    parts: dict[str, float] = {}
    for phase in phases:
        recorded = phase.more.get("parts")
        for name, seconds in recorded.items() if isinstance(recorded, dict) else ():
            if type(seconds) in (int, float):
                parts[name] = parts.get(name, 0.0) + seconds
    more = phases[-1].more
    return PlannerTimes(
        rank=rank_number,
        seconds=took / _SECOND,
        engine=str(more["engine"]) if "engine" in more else None,
        cache=str(more["cache"]) if "cache" in more else None,
        parts=parts,
    )


def _longest(job: Job) -> dict[str, LongestPhase]:
    found: dict[str, LongestPhase] = {}
    for attempt in job.attempts:
        failed = attempt.failed
        for rank in attempt.ranks:
            own = totals(rank.pieces)
            for (_, name), took in _short_phases(rank, failed).items():
                own[name] = own.get(name, 0) + took
            for name, took in own.items():
                if name not in found or took / _SECOND > found[name].seconds:
                    found[name] = LongestPhase(
                        seconds=took / _SECOND, rank=rank.rank, attempt=attempt.number
                    )
    return found


def _background(job: Job) -> dict[str, float]:
    most: dict[str, float] = {}
    for attempt in job.attempts:
        for rank in attempt.ranks:
            own: dict[str, int] = {name: took for name, (_, took) in rank.aside.items()}
            for phase in rank.background:
                own[phase.name] = own.get(phase.name, 0) + phase.until - phase.begin
            for name, took in own.items():
                most[name] = max(took / _SECOND, most.get(name, 0.0))
    return _in_order(most)


def _notes(job: Job) -> list[str]:
    last = job.attempts[-1]
    notes = []
    if not (last.failed or last.ended):
        silent = [rank.rank for rank in last.ranks if not rank.ended]
        notes.append(
            f"attempt {last.number}: {format_ranks(silent, len(last.ranks))} did not end: still "
            "running, or killed; counted up to its last event"
        )
    if all(attempt.first_step is None for attempt in job.attempts):
        notes.append("no step was recorded: call `ett.step(number)` at the end of every step")
    return notes


def _added(parts: list[dict[str, float]]) -> dict[str, float]:
    whole: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            whole[name] = whole.get(name, 0.0) + seconds
    return whole


def _seconds(nanoseconds: dict[str, int]) -> dict[str, float]:
    return _in_order({name: took / _SECOND for name, took in nanoseconds.items() if took})


def _in_order(phases: dict[str, float]) -> dict[str, float]:
    return {name: phases[name] for name in sorted(phases, key=phase_order)}
