"""Builds a job on one clock from its files: sorts them into attempts, and attempts into pieces."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastplan.ett.events import merge_sums
from fastplan.ett.phases import (
    Kind,
    Piece,
    Span,
    clip,
    flatten,
    merge_by_priority,
    phase_name,
    subtract,
)
from fastplan.ett.reading import read_job
from fastplan.ett.record import Phase, Record
from fastplan.ett.timeline import Attempt, Clocks, Job, RankTimeline, StepRange

_SECOND = 1_000_000_000


def load(directory: str | os.PathLike[str], names: Iterable[str] | None = None) -> Job:
    """Reads the job that was recorded in a directory.

    Args:
        directory: The directory.
        names: The names of its files, if they are known already.

    Raises:
        RecordError: if none was.
    """
    records, problems = read_job(directory, names)
    job = build(records, os.fspath(directory))
    job.notes[:0] = problems
    return job


def build(records: list[Record], source: str = "") -> Job:
    """Builds a job from the records of its processes. Missing data is in the job's notes.

    Args:
        records: At least one record.
        source: Where they come from, such as a directory.
    """
    groups = _group_by_attempt(records)
    clocks = Clocks([group.records for group in groups])
    attempts = [_attempt(number, group, clocks) for number, group in enumerate(groups)]
    attempts[-1].is_last = True
    notes = _missing_files(groups) + clocks.notes
    job = Job(source, attempts, notes, _unseen_restarts(groups), _labels(records))
    _set_begin_times(job)
    for attempt, limit in zip(attempts, _lost_from(job), strict=True):
        failed = attempt.failed
        for rank in attempt.ranks:
            _set_pieces(rank, attempt, limit, failed)
        attempt.job = _job_pieces(attempt)
    return job


def _attempt(number: int, group: _AttemptFiles, clocks: Clocks) -> Attempt:
    """An attempt, with a preliminary begin: the exact one depends on the previous attempt."""
    records = list(group.ranks.values())
    ranks = [_rank(record, clocks) for record in sorted(records, key=lambda r: r.rank)]
    end = max(rank.end for rank in ranks)
    for record in group.helpers:
        _add_helper(ranks, record, clocks)
    for rank in ranks:
        _close_open_phases(rank, end)
    stamps = [(r, r.identity.launched) for r in records]
    launched = [clocks.time_of_day(r, at) for r, at in stamps if at is not None]
    process = min(rank.begin for rank in ranks)
    return Attempt(
        number=number,
        run=records[0].identity.run,
        restart=records[0].identity.attempt,
        world=max(record.world for record in records),
        ranks=ranks,
        launched=min(launched, default=None),
        process=process,
        begin=process,
        end=end,
        is_last=False,
    )


def _rank(record: Record, clocks: Clocks) -> RankTimeline:
    moved = clocks.offset(record)
    steps = [
        StepRange(s.first, s.last, s.begin + moved, s.end + moved, s.sums) for s in record.steps
    ]
    phases: list[Phase] = []
    background: list[Phase] = []
    for phase in record.phases:
        (background if phase.background else phases).append(_moved(phase, moved))
    batch = record.first_batch
    watched = record.t if record.watched is None else record.watched
    begin = record.begin
    return RankTimeline(
        rank=record.rank,
        host=record.identity.host,
        begin=begin + moved,
        imported=max(begin, min(watched, record.t)) + moved,
        end=(record.last if record.end is None else record.end) + moved,
        ended=record.end is not None,
        first_batch=batch + moved if batch is not None else steps[0].begin if steps else None,
        steps=steps,
        phases=phases,
        background=background,
        rest=record.rest,
        aside=record.aside,
        checkpoints=[(step, t + moved) for step, t in record.checkpoints],
        failures=[(cause, t + moved) for cause, t in record.failures],
        killed_in=None,
    )


def _moved(phase: Phase, moved: int) -> Phase:
    end = None if phase.end is None else phase.end + moved
    begin = phase.begin + moved
    return Phase(phase.name, begin, end, phase.background, phase.sums, phase.more)


def _add_helper(ranks: list[RankTimeline], record: Record, clocks: Clocks) -> None:
    """Adds a helper process, which no rank waits for."""
    rank = next(rank for rank in ranks if rank.rank == record.rank)
    for phase in record.phases:
        moved = _moved(phase, clocks.offset(record))
        moved.background = True
        rank.background.append(moved)


def _close_open_phases(rank: RankTimeline, end: int) -> None:
    """Ends phases in which the process was killed: they last until all ranks have ended."""
    for phase in (*rank.phases, *rank.background):
        if phase.end is None:
            phase.end = max(end, phase.begin)
            if not phase.background:
                rank.killed_in = phase.name  # the innermost begins last


def _set_begin_times(job: Job) -> None:
    """Sets when attempts begin: at the end of the previous one, or at the launch."""
    before: Attempt | None = None
    for attempt in job.attempts:
        stamp = attempt.launched
        if stamp is not None and stamp > attempt.process:
            job.notes.append(
                f"attempt {attempt.number}: FASTPLAN_ETT_LAUNCHED is later than its first process; "
                "not used"
            )
            attempt.launched = None
        if before is None:
            if attempt.launched is None:
                job.notes.append(
                    "the time of the launch is unknown: set FASTPLAN_ETT_LAUNCHED=$(date +%s) "
                    "before the launch; without it the job counts from its first process"
                )
            attempt.begin = attempt.process if attempt.launched is None else attempt.launched
        else:
            _follow(job, before, attempt)
        before = attempt


def _follow(job: Job, before: Attempt, attempt: Attempt) -> None:
    if before.end > attempt.process:
        if before.end > attempt.process + _SECOND:
            job.notes.append(
                f"attempts {before.number} and {attempt.number} overlap by "
                f"{(before.end - attempt.process) / 1e9:.1f} s, which counts for the later one; "
                "use a separate directory for every job"
            )
        before.end = max(before.process, attempt.process)
    attempt.begin = before.end
    attempt.process = max(attempt.process, attempt.begin)
    attempt.end = max(attempt.end, attempt.process)
    if attempt.launched is not None and attempt.launched < before.end:
        attempt.launched = None  # torchrun passes the time of its own launch to every restart


def _lost_from(job: Job) -> list[int | None]:
    """For every attempt, the first of its steps that was lost, or None."""
    limits: list[int | None] = []
    resumed: int | None = None
    for attempt in reversed(job.attempts):
        limit = resumed
        if limit is None and attempt.failed and attempt.first_step is not None:
            earlier = job.attempts[: attempt.number + 1]
            saved = [a.saved for a in earlier if a.saved is not None]
            limit = max(saved) + 1 if saved else attempt.first_step
            if not saved:
                job.notes.append(
                    f"attempt {attempt.number} failed and no checkpoint was recorded: all of its "
                    "steps count as lost; call `ett.checkpoint(step)` after each checkpoint"
                )
        limits.append(limit)
        if attempt.first_step is not None:
            first = attempt.first_step
            resumed = first if resumed is None else min(resumed, first)
    return limits[::-1]


def _set_pieces(rank: RankTimeline, attempt: Attempt, limit: int | None, failed: bool) -> None:
    """Splits a rank's time in the attempt, which may have failed, into pieces."""
    late = "restart" if attempt.number and attempt.launched is None else "launch"
    start = rank.end if rank.first_batch is None else rank.first_batch
    base = [
        (attempt.process, rank.begin, late),
        (rank.begin, rank.imported, "imports"),
        (rank.imported, start, "starting"),
    ]
    done = start
    again = limit
    ranges = []
    for steps in reversed(rank.steps):
        ranges.append(_cut(rank, steps, again))
        # Training may have gone back within this attempt as well.
        again = steps.first if again is None else min(again, steps.first)
    for pieces in reversed(ranges):
        # If lines are missing in between, their steps were still training.
        base.append((done, pieces[0][0], "training"))
        base += pieces
        done = pieces[-1][1]
    if rank.first_batch is not None:
        running = not (failed or rank.steps)
        left = "training" if running else "stalled" if failed else "ending"
        base.append((done, rank.end, left))
    phases = flatten([(p.begin, p.begin if p.end is None else p.end, p.name) for p in rank.phases])
    rank.between = clip(subtract(_in_order(base), phases), attempt.process, attempt.end)
    rank.pieces = sorted(rank.between + clip(phases, attempt.process, attempt.end))


def _in_order(pieces: Iterable[Span]) -> list[Span]:
    """Pieces without overlaps, even if a damaged file has wrong times."""
    ordered: list[Span] = []
    done: int | None = None
    for begin, end, name in pieces:
        if done is not None and begin < done:
            begin = done
        if end > begin:
            ordered.append((begin, end, name))
            done = end
    return ordered


def _cut(rank: RankTimeline, steps: StepRange, lost_from: int | None) -> list[Span]:
    """Splits steps into those that were kept, and those that a restart had to repeat."""
    if lost_from is None or lost_from > steps.last:
        merge_sums(rank.kept_sums, steps.sums)
        return [(steps.begin, steps.end, "training")]
    kept = min(max(0, lost_from - steps.first), steps.count)
    rank.lost_steps += steps.count - kept
    for name, (count, own) in steps.sums.items():
        entry = rank.kept_sums.setdefault(name, [0, 0])
        entry[0] += count * kept // steps.count
        entry[1] += own * kept // steps.count
    edge = steps.begin_of(steps.first + kept)
    return [(steps.begin, edge, "training"), (edge, steps.end, "lost")]


def _job_pieces(attempt: Attempt) -> list[Piece]:
    """The pieces of the job: before its first process it waits for that, then for its ranks."""
    first: list[Piece] = []
    if attempt.launched is not None:
        first.append(Piece(attempt.begin, attempt.launched, "down"))
        first.append(Piece(attempt.launched, attempt.process, "launch"))
    else:
        first.append(Piece(attempt.begin, attempt.process, "restart"))
    rest = merge_by_priority((rank.pieces for rank in attempt.ranks), _importance)
    return [*(piece for piece in first if piece.end > piece.begin), *map(Piece._make, rest)]


def _importance(name: str, begin: int) -> tuple[int, int]:
    """The priority of a phase. Among phases that are work, the one that began first wins."""
    kind = phase_name(name).kind
    return kind.value, begin if kind is Kind.WORK else 0


@dataclass(slots=True)
class _AttemptFiles:
    """The files of one attempt: one per rank, and those of helper processes."""

    ranks: dict[int, Record] = field(default_factory=dict)
    helpers: list[Record] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [*self.ranks.values(), *self.helpers]

    def add(self, record: Record) -> bool:
        """Adds a record, unless it is of a later attempt with the same number.

        Returns:
            Whether it was added.
        """
        other = self.ranks.get(record.rank)
        if other is None:
            self.ranks[record.rank] = record
            return True
        if _begin(record) >= _end(other):
            return False
        # Two at the same time: one trains, and has started the other.
        if record.steps and not other.steps:
            self.ranks[record.rank], record = record, other
        self.helpers.append(record)
        return True


def _group_by_attempt(records: list[Record]) -> list[_AttemptFiles]:
    """Sorts records into attempts, in the order of time.

    torchrun numbers restarts from 0 each time it is started, so numbers may repeat.
    """
    groups: list[_AttemptFiles] = []
    latest: dict[tuple[str, int], _AttemptFiles] = {}
    for record in sorted(records, key=_begin):
        key = (record.identity.run, record.identity.attempt)
        if key not in latest or not latest[key].add(record):
            latest[key] = _AttemptFiles()
            latest[key].add(record)
            groups.append(latest[key])
    return groups


def _labels(records: list[Record]) -> dict[str, str]:
    """The labels of a job: those of its first rank win."""
    found: dict[str, str] = {}
    for record in sorted(records, key=lambda record: (record.rank, record.identity.attempt)):
        for name, text in record.identity.labels.items():
            found.setdefault(name, text)
    return found


def _missing_files(groups: list[_AttemptFiles]) -> list[str]:
    """Returns notes about files and lines that are missing."""
    notes = []
    for number, group in enumerate(groups):
        world = max(record.world for record in group.ranks.values())
        absent = sorted(set(range(world)) - group.ranks.keys())
        if absent:
            shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
            notes.append(
                f"attempt {number}: no file of {len(absent)} of {world} ranks ({shown}); the "
                "other ranks are used instead"
            )
        for record in group.records:
            notes += record.problems
    notes += [
        f"attempt {number}: torchrun's restarts {first} to {last} left no file; they count as "
        "failures, and their time as restart"
        for number, first, last in _gaps(groups)
    ]
    return notes


def _gaps(groups: list[_AttemptFiles]) -> list[tuple[int, int, int]]:
    """Attempts after restarts without a file, and the first and last of these restarts."""
    found = []
    before: dict[str, int] = {}
    for number, group in enumerate(groups):
        identity = next(iter(group.ranks.values())).identity
        expected = before.get(identity.run, -1) + 1
        if identity.attempt > expected:
            found.append((number, expected, identity.attempt - 1))
        before[identity.run] = identity.attempt
    return found


def _unseen_restarts(groups: list[_AttemptFiles]) -> int:
    """Returns the number of restarts that left no file."""
    return sum(last + 1 - first for _, first, last in _gaps(groups))


def _begin(record: Record) -> int:
    return record.wall - record.t + record.begin


def _end(record: Record) -> int:
    return record.wall - record.t + record.last
