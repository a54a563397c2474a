"""From files to a job on one clock."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastplan.ett.attempts import Group, grouped, missing, unseen_restarts
from fastplan.ett.clocks import Clocks
from fastplan.ett.names import Kind, name_of
from fastplan.ett.pieces import Piece, innermost, swept, uncovered, within
from fastplan.ett.reading import Phase, Record, read_job
from fastplan.ett.timeline import Attempt, Job, RankTime, StepRange

_SECOND = 1_000_000_000


def load(directory: str | os.PathLike[str]) -> Job:
    """The job that was recorded in a directory. Raises NoRecord if none was."""
    records, problems = read_job(directory)
    job = build(records, os.fspath(directory))
    job.notes[:0] = problems
    return job


def build(records: list[Record], source: str = "") -> Job:
    """The job that these processes were. Raises nothing: what is missing is in its notes."""
    groups = grouped(records)
    clocks = Clocks([group.records for group in groups])
    attempts = [_attempt(number, group, clocks) for number, group in enumerate(groups)]
    attempts[-1].is_last = True
    job = Job(source, attempts, missing(groups) + clocks.notes, unseen_restarts(groups))
    _chain(job)
    for attempt, limit in zip(attempts, _lost_from(job), strict=True):
        for rank in attempt.ranks:
            _fill(rank, attempt, limit)
        attempt.job = _job_pieces(attempt)
    return job


def _attempt(number: int, group: Group, clocks: Clocks) -> Attempt:
    """An attempt by itself; when it began is only known from the one before."""
    records = list(group.ranks.values())
    ranks = [_rank(record, clocks) for record in sorted(records, key=lambda r: r.rank)]
    end = max(rank.end for rank in ranks)
    for record in group.helpers:
        _add_helper(ranks, record, clocks)
    for rank in ranks:
        _close(rank, end)
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


def _rank(record: Record, clocks: Clocks) -> RankTime:
    def time(t: int) -> int:
        return clocks.time(record, t)

    steps = [StepRange(s.first, s.last, time(s.begin), time(s.end), s.sums) for s in record.steps]
    phases = [_moved(phase, record, clocks) for phase in record.phases]
    batch = record.first_batch
    watched = record.t if record.watched is None else record.watched
    return RankTime(
        rank=record.rank,
        host=record.identity.host,
        begin=time(record.begin),
        imported=time(max(record.begin, min(watched, record.t))),
        end=time(record.last if record.end is None else record.end),
        ended=record.end is not None,
        first_batch=time(batch) if batch is not None else steps[0].begin if steps else None,
        steps=steps,
        phases=[phase for phase in phases if not phase.background],
        background=[phase for phase in phases if phase.background],
        rest=record.rest,
        aside=record.aside,
        checkpoints=[(step, time(t)) for step, t in record.checkpoints],
        failures=[(cause, time(t)) for cause, t in record.failures],
        killed_in=None,
    )


def _moved(phase: Phase, record: Record, clocks: Clocks) -> Phase:
    end = None if phase.end is None else clocks.time(record, phase.end)
    begin = clocks.time(record, phase.begin)
    return Phase(phase.name, begin, end, phase.background, phase.sums, phase.more)


def _add_helper(ranks: list[RankTime], record: Record, clocks: Clocks) -> None:
    """What a rank's helper process does holds nothing up."""
    rank = next(rank for rank in ranks if rank.rank == record.rank)
    for phase in record.phases:
        moved = _moved(phase, record, clocks)
        moved.background = True
        rank.background.append(moved)


def _close(rank: RankTime, end: int) -> None:
    """Phases that a process was killed in lasted until the others went, too."""
    for phase in (*rank.phases, *rank.background):
        if phase.end is None:
            phase.end = max(end, phase.begin)
            if not phase.background:
                rank.killed_in = phase.name  # the innermost begins last


def _chain(job: Job) -> None:
    """Gives every attempt its begin: the end of the one before, or its launch."""
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
                    "no launcher's time: set FASTPLAN_ETT_LAUNCHED=$(date +%s) before the launch; "
                    "until then the job counts from its first process"
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
                "give every job a directory of its own"
            )
        before.end = max(before.process, attempt.process)
    attempt.begin = before.end
    attempt.process = max(attempt.process, attempt.begin)
    attempt.end = max(attempt.end, attempt.process)
    if attempt.launched is not None and attempt.launched < before.end:
        attempt.launched = None  # torchrun hands its own launch on to every restart


def _lost_from(job: Job) -> list[int | None]:
    """For every attempt, the first of its steps that was lost, if any was."""
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
                    "steps count as lost; call `ett.checkpoint(step)` after each"
                )
        limits.append(limit)
        if attempt.first_step is not None:
            first = attempt.first_step
            resumed = first if resumed is None else min(resumed, first)
    return limits[::-1]


def _fill(rank: RankTime, attempt: Attempt, limit: int | None) -> None:
    """Cuts a rank's time in the attempt into pieces."""
    late = "restart" if attempt.number and attempt.launched is None else "launch"
    base = [Piece(attempt.process, rank.begin, late), Piece(rank.begin, rank.imported, "imports")]
    start = rank.end if rank.first_batch is None else rank.first_batch
    base.append(Piece(rank.imported, start, "starting"))
    done = start
    again = limit
    ranges = []
    for steps in reversed(rank.steps):
        ranges.append(_cut(rank, steps, again))
        # In this very attempt training may have gone back, too.
        again = steps.first if again is None else min(again, steps.first)
    for pieces in reversed(ranges):
        # Lines may be missing in between: their steps were trained on nevertheless.
        base.append(Piece(done, pieces[0].begin, "training"))
        base += pieces
        done = pieces[-1].end
    if rank.first_batch is not None:
        running = not (attempt.failed or rank.steps)
        left = "training" if running else "stalled" if attempt.failed else "ending"
        base.append(Piece(done, rank.end, left))
    phases = innermost(Piece(p.begin, p.until, p.name) for p in rank.phases)
    rank.between = within(uncovered(_in_order(base), phases), attempt.process, attempt.end)
    rank.pieces = sorted([*rank.between, *within(phases, attempt.process, attempt.end)])


def _in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces that follow on one another, whatever a damaged file says about their times."""
    ordered: list[Piece] = []
    for begin, end, name in pieces:
        if ordered:
            begin = max(begin, ordered[-1].end)
        if end > begin:
            ordered.append(Piece(begin, end, name))
    return ordered


def _cut(rank: RankTime, steps: StepRange, lost_from: int | None) -> list[Piece]:
    """Steps that were kept, and those that a restart had to do again."""
    kept = steps.count if lost_from is None else min(max(0, lost_from - steps.first), steps.count)
    rank.lost_steps += steps.count - kept
    for name, (count, own) in steps.sums.items():
        entry = rank.kept_sums.setdefault(name, [0, 0])
        entry[0] += count * kept // steps.count
        entry[1] += own * kept // steps.count
    edge = steps.begin_of(steps.first + kept)
    return [Piece(steps.begin, edge, "training"), Piece(edge, steps.end, "lost")]


def _job_pieces(attempt: Attempt) -> list[Piece]:
    """What the job did: before its first process it waited for that, then for its last rank."""
    first: list[Piece] = []
    if attempt.launched is not None:
        first.append(Piece(attempt.begin, attempt.launched, "down"))
        first.append(Piece(attempt.launched, attempt.process, "launch"))
    else:
        first.append(Piece(attempt.begin, attempt.process, "restart"))
    seen: dict[str, int] = {}
    for piece in (piece for rank in attempt.ranks for piece in rank.pieces):
        seen[piece.name] = min(piece.begin, seen.get(piece.name, piece.begin))

    def importance(name: str) -> tuple[int, int]:
        kind = name_of(name).kind
        return kind.value, seen[name] if kind is Kind.WORK else 0

    rest = swept((rank.pieces for rank in attempt.ranks), importance)
    return [*(piece for piece in first if piece.end > piece.begin), *rest]
