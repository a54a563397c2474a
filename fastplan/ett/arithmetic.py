"""Effective Training Time of a job, and where the rest of its time went.

ETT is the share of the time from launch to end in which new data was consumed. The whole time is
cut into pieces, each of which is one thing (`pieces.swept`): of what the ranks did at a time, what
the others had to wait for. So phases are the maximum over ranks, and all of them add up to the
whole. Time that is not training is idleness, but for what failures have cost: work that was lost,
and everything between a failure and the next start's end. A start ends with the first batch; what
still keeps the first step from training, such as compiling, is a part of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from fastplan.ett.building import load
from fastplan.ett.names import NAMES, Kind, name_of
from fastplan.ett.pieces import totals, within
from fastplan.ett.timeline import Attempt, Job, RankTime
from fastplan.report.units import of_ranks

_SECOND = 1e9  # nanoseconds
_ORDER = {name: place for place, name in enumerate(NAMES)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Longest:
    """The most that one rank has spent in a phase of its own, in seconds."""

    seconds: float
    rank: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Planning:
    """What a planner tells about itself."""

    rank: int
    seconds: float
    engine: str | None
    cache: str | None
    parts: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptReport:
    """One attempt, in seconds since the job's begin."""

    number: int
    run: str
    restart: int
    world: int
    ranks: int
    begin: float
    end: float
    failed: bool
    cause: str | None  # what it ended of, unless it ended well
    to_training: float | None  # from the failure before, or from the launch, to its start's end
    to_first_step: float | None  # from its begin to the end of its first step
    productive: float
    steps: int  # that were kept
    lost_steps: int
    phases: dict[str, float]  # all of its time by name
    start: dict[str, float]  # its start by name
    until_first_step: dict[str, float]
    plan: Planning | None

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def planning(self) -> float:
        """Making the plan and giving it to all ranks, as far as others waited for it."""
        return sum(self.start.get(name, 0.0) for name in ("plan", "broadcast"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A job's account. Times are seconds; `ett` is a share of 1."""

    source: str
    seconds: float
    productive: float
    failing: float  # what failures have cost
    failures: int
    steps: int
    lost_steps: int
    attempts: tuple[AttemptReport, ...]
    phases: dict[str, float]
    longest: dict[str, Longest]
    background: dict[str, float]  # the most that a rank has spent there besides
    notes: tuple[str, ...]

    @property
    def ett(self) -> float:
        return self.productive / self.seconds if self.seconds else 0.0

    @property
    def idle(self) -> float:
        """Neither training nor the cost of failures."""
        return self.seconds - self.productive - self.failing

    @property
    def time_to_start(self) -> float | None:
        """From the launch to the end of the first start that came so far."""
        return next((a.to_training for a in self.attempts if a.to_training is not None), None)

    @property
    def times_to_recover(self) -> tuple[float, ...]:
        """From each failure to the end of the next start that came so far."""
        found = [a.to_training for a in self.attempts if a.to_training is not None]
        return tuple(found[1:])

    @property
    def lost(self) -> float:
        return self.phases.get("lost", 0.0)


def report_on(directory: str | os.PathLike[str]) -> Report:
    """The account of the job in a directory. Raises NoRecord if none was recorded there."""
    return account(load(directory))


def account(job: Job) -> Report:
    """The account of a job."""
    reports = []
    failing = 0
    failed_at: int | None = None
    for attempt in job.attempts:
        reports.append(_report(attempt, job.begin, failed_at))
        failing += _cost_of_failures(attempt)
        failed_at = _failed_at(attempt, failed_at)
    seconds = (job.end - job.begin) / _SECOND
    productive = sum(report.productive for report in reports)
    return Report(
        source=job.source,
        seconds=seconds,
        productive=productive,
        failing=failing / _SECOND,
        failures=sum(attempt.failed for attempt in job.attempts) + job.unseen_restarts,
        steps=sum(report.steps for report in reports),
        lost_steps=sum(report.lost_steps for report in reports),
        attempts=tuple(reports),
        phases=_in_order(_added([report.phases for report in reports])),
        longest=_longest(job),
        background=_background(job),
        notes=tuple(dict.fromkeys([*job.notes, *_notes(job)])),
    )


def _report(attempt: Attempt, origin: int, failed_at: int | None) -> AttemptReport:
    step_end, start = attempt.first_step_end, _start(attempt)
    phases = _with_sums(attempt, totals(attempt.job))
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
        cause=_cause(attempt),
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
    """All before the first batch, and all but training until the first step is done."""
    batch = attempt.first_batch
    if batch is None:
        return None
    first_step = within(attempt.job, batch, attempt.first_step_end or batch)
    held_up = [p for p in first_step if name_of(p.name).kind not in (Kind.TRAIN, Kind.LOST)]
    return totals([*within(attempt.job, attempt.begin, batch), *held_up])


def _with_sums(attempt: Attempt, phases: dict[str, int]) -> dict[str, int]:
    """Moves short phases out of what they were in, by the rank that spent most on them."""
    for (outer, name), took in sorted(_most_sums(attempt).items()):
        took = min(took, phases.get(outer, 0))
        if took > 0:
            phases[outer] -= took
            phases[name] = phases.get(name, 0) + took
    return phases


def _most_sums(attempt: Attempt) -> dict[tuple[str, str], int]:
    most: dict[tuple[str, str], int] = {}
    for rank in attempt.ranks:
        for key, took in _sums(rank, attempt).items():
            most[key] = max(took, most.get(key, 0))
    return most


def _sums(rank: RankTime, attempt: Attempt) -> dict[tuple[str, str], int]:
    """A rank's short phases by what they were in."""
    found: dict[tuple[str, str], int] = {}
    last = "stalled" if attempt.failed else "ending"
    outer = [("training", rank.kept_sums), (last, rank.rest)]
    for name, sums in [*outer, *((phase.name, phase.sums) for phase in rank.phases)]:
        for inner, (_, took) in sums.items():
            found[name, inner] = found.get((name, inner), 0) + took
    return found


def _cost_of_failures(attempt: Attempt) -> int:
    """Nanoseconds of an attempt that would not have been without failures."""
    start = _start(attempt)
    if start is None:
        return attempt.end - attempt.begin if attempt.failed or attempt.number else 0
    whole = totals(attempt.job)
    recovering = sum(start.values()) if attempt.number else 0
    return recovering + whole.get("lost", 0) + whole.get("stalled", 0)


def _failed_at(attempt: Attempt, before: int | None) -> int | None:
    """When training ended: where the time begins that nothing is known of until the end."""
    if attempt.first_batch is None:
        return before
    end = attempt.end
    for piece in reversed(attempt.job):
        if piece.name != "stalled":
            break
        end = piece.begin
    return end


def _cause(attempt: Attempt) -> str | None:
    """Why an attempt was not the last, or did not end well."""
    told = [(at, rank.rank, cause) for rank in attempt.ranks for cause, at in rank.failures]
    if told:
        _, number, cause = min(told)
        return f"rank {number}: {cause}"
    if attempt.ended:
        return "ended in good order, and was started again" if attempt.failed else None
    for rank in attempt.ranks:
        if rank.killed_in is not None:
            return f"rank {rank.rank} ended in {name_of(rank.killed_in).title} without a word"
    silent = [rank.rank for rank in attempt.ranks if not rank.ended]
    return f"{of_ranks(silent, len(attempt.ranks))} ended without a word"


def _plan(attempt: Attempt) -> Planning | None:
    """What the rank that planned longest tells about it."""
    found = []
    for rank in attempt.ranks:
        told = [phase for phase in rank.phases if phase.name == "plan"]
        if told:
            found.append((sum(p.until - p.begin for p in told), rank.rank, told))
    if not found:
        return None
    took, rank_number, told = max(found, key=lambda entry: entry[0])
    parts: dict[str, float] = {}
    for phase in told:
        told_parts = phase.more.get("parts")
        for name, seconds in told_parts.items() if isinstance(told_parts, dict) else ():
            if type(seconds) in (int, float):
                parts[name] = parts.get(name, 0.0) + seconds
    more = told[-1].more
    return Planning(
        rank=rank_number,
        seconds=took / _SECOND,
        engine=str(more["engine"]) if "engine" in more else None,
        cache=str(more["cache"]) if "cache" in more else None,
        parts=parts,
    )


def _longest(job: Job) -> dict[str, Longest]:
    found: dict[str, Longest] = {}
    for attempt in job.attempts:
        for rank in attempt.ranks:
            own = totals(rank.pieces)
            for (_, name), took in _sums(rank, attempt).items():
                own[name] = own.get(name, 0) + took
            for name, took in own.items():
                if name not in found or took / _SECOND > found[name].seconds:
                    found[name] = Longest(
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
            f"attempt {last.number}: {of_ranks(silent, len(last.ranks))} did not end: still "
            "running, or killed; counted up to the last sign of life"
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
    """In the order of a job, the user's own phases last."""
    return dict(sorted(phases.items(), key=lambda entry: (_ORDER.get(entry[0], 99), entry[0])))
