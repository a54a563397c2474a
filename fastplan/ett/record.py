"""What the file of one process says, on the recorder's clock.

These are structs of msgspec: a fleet has millions of them, and dataclasses take four times as long
to make.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from fastplan.ett.events import Sums, merge_sums
from fastplan.ett.journal import Identity


class Phase(Struct):
    """A phase with its own line. Times are the recorder's clock."""

    name: str
    begin: int
    end: int | None  # None: the process ended first
    background: bool = False
    sums: Sums = {}
    more: dict[str, Any] = {}

    @property
    def until(self) -> int:
        """Its end; its begin if the end is not known."""
        return self.begin if self.end is None else self.end


class Steps(Struct):
    """Consecutive steps, and the sums of short phases during them."""

    first: int
    last: int
    begin: int
    end: int
    sums: Sums = {}


class Record(Struct):
    """The file of one process."""

    path: str
    identity: Identity
    t: int
    wall: int
    watched: int | None
    rank: int
    world: int
    phases: list[Phase] = []
    steps: list[Steps] = []
    rest: Sums = {}  # short phases after the last step
    aside: Sums = {}  # short phases in the background
    marks: dict[int, int] = {}  # the ends of some steps
    checkpoints: list[tuple[int, int]] = []  # step, time
    failures: list[tuple[str, int]] = []  # cause, time
    first_batch: int | None = None
    end: int | None = None
    last: int = 0  # the last event
    problems: list[str] = []
    join_at: int = 50_000  # lines of steps, to bound memory
    summed: int = 0  # phases beyond those that are kept
    inner: list[tuple[int, int]] = []  # the last of them: begin, end

    @property
    def name(self) -> str:
        """The name of the file."""
        return os.path.basename(self.path)

    @property
    def begin(self) -> int:
        """When the process began; its first line if that is not known."""
        first = self.identity.process
        return self.t if first is None else min(first, self.t)


def join_steps(record: Record) -> list[Steps]:
    """Returns a record's steps; consecutive ones are joined, except across a checkpoint."""
    saved = {step for step, _ in record.checkpoints}
    joined: list[Steps] = []
    for steps in record.steps:
        before = joined[-1] if len(joined) > 1 else None  # the first step stays separate
        if (
            before is not None
            and (before.last + 1, before.end) == (steps.first, steps.begin)
            and before.last not in saved
        ):
            before.last, before.end = steps.last, steps.end
            if steps.sums:
                merge_sums(before.sums, steps.sums)
        else:
            joined.append(steps)
    return joined
