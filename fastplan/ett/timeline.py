"""A job on one clock: its attempts, what every rank did in them, and what held the job up.

All times are nanoseconds since 1970 by the job's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fastplan.ett.lines import Sums
from fastplan.ett.pieces import Piece
from fastplan.ett.reading import Phase


@dataclass(frozen=True, slots=True)
class StepRange:
    """Consecutive steps, and the sums of short phases meanwhile."""

    first: int
    last: int
    begin: int
    end: int
    sums: Sums

    @property
    def count(self) -> int:
        return self.last + 1 - self.first

    def begin_of(self, step: int) -> int:
        """When a step began, if all took the same time; exact at both ends of the range."""
        done = min(max(0, step - self.first), self.count)
        return self.begin + (self.end - self.begin) * done // self.count


@dataclass(slots=True)
class RankTime:
    """A rank in an attempt."""

    rank: int
    host: str
    begin: int
    imported: int  # until when Python started, and imported what nobody has timed
    end: int  # its last sign of life
    ended: bool  # in good order
    first_batch: int | None
    steps: list[StepRange]
    phases: list[Phase]  # that hold it up; all of them have an end
    background: list[Phase]
    rest: Sums  # short phases after the last step
    aside: Sums  # short phases in the background
    checkpoints: list[tuple[int, int]]
    failures: list[tuple[str, int]]
    killed_in: str | None  # the phase that it never left
    pieces: list[Piece] = field(default_factory=list)  # all of its time
    between: list[Piece] = field(default_factory=list)  # what its phases leave of it
    lost_steps: int = 0
    kept_sums: Sums = field(default_factory=dict)  # of steps that were not lost

    @property
    def first_step_end(self) -> int | None:
        """When it was done with its first step."""
        return self.steps[0].begin_of(self.steps[0].first + 1) if self.steps else None


@dataclass(slots=True)
class Attempt:
    """One start of the job, and what came of it."""

    number: int
    run: str
    restart: int  # torchrun's count
    world: int
    ranks: list[RankTime]
    launched: int | None  # when its launcher began, if that is known
    process: int  # when its first process began
    begin: int  # when the one before it had ended, or this one was launched
    end: int
    is_last: bool
    job: list[Piece] = field(default_factory=list)  # what held the job up

    @property
    def failed(self) -> bool:
        """Another one had to follow, or it has told that it failed."""
        return not self.is_last or any(rank.failures for rank in self.ranks)

    @property
    def ended(self) -> bool:
        """All ranks came to their end in good order."""
        return all(rank.ended for rank in self.ranks)

    @property
    def first_batch(self) -> int | None:
        """When the last rank began with its first batch."""
        return max((r.first_batch for r in self.ranks if r.first_batch is not None), default=None)

    @property
    def first_step_end(self) -> int | None:
        """When the last rank was done with its first step."""
        ends = [rank.first_step_end for rank in self.ranks]
        return max((end for end in ends if end is not None), default=None)

    @property
    def first_step(self) -> int | None:
        return min((rank.steps[0].first for rank in self.ranks if rank.steps), default=None)

    @property
    def saved(self) -> int | None:
        """The last step that is saved by all ranks that save."""
        saving = [{step for step, _ in rank.checkpoints} for rank in self.ranks if rank.checkpoints]
        return max(set.intersection(*saving), default=None) if saving else None


@dataclass(slots=True)
class Job:
    """All attempts in their order, and what is missing or was put right."""

    source: str
    attempts: list[Attempt]
    notes: list[str]
    unseen_restarts: int  # of which there is no file

    @property
    def begin(self) -> int:
        return self.attempts[0].begin

    @property
    def end(self) -> int:
        return self.attempts[-1].end
