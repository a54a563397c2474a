"""Recordings of invented jobs in the recorder's format: many jobs, many ranks, realistic spreads.

The phases of a start vary from job to job with a log-normal spread, and from rank to rank with a
small one. A tenth of the jobs fails once and starts again. Everything follows from the seed.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from fastplan.ett.journal import (
    SUFFIX,
    Identity,
    begin_line,
    event_line,
    phase_line,
    start_line,
    steps_line,
)

SECOND = 1_000_000_000
EPOCH = 1_767_225_600  # seconds: the first of January 2026
DAY = 86_400
# The median seconds of the phases of a start, in order.
START = {
    "imports": 25.0,
    "process_group": 12.0,
    "model_build": 9.0,
    "plan": 45.0,
    "broadcast": 1.0,
    "shard": 18.0,
    "optimizer": 2.0,
    "restore": 30.0,
    "data_loader": 5.0,
    "compile": 60.0,
}
SPREAD = 0.25  # of the logarithm of a phase's seconds, from job to job
JITTER = 0.03  # the same from rank to rank
FAILING = 0.1
STEP_LINES = 6  # of each attempt: what the recorder writes in the first seconds, and then hourly
HOSTED = 8  # ranks of a host
BOOTED = 10**15  # nanoseconds: the monotonic clock at the begin of a process

_Taken = tuple[str, int]  # a phase and its nanoseconds


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The settings of a fleet.

    Attributes:
        ranks: Of each job.
        days: The jobs begin within so many days.
        slower: Factors of phases, by name.
        spread: Of the logarithm of a phase's seconds, from job to job.
    """

    ranks: int = 64
    days: int = 90
    slower: tuple[tuple[str, float], ...] = ()
    spread: float = SPREAD


def write_jobs(folder: Path, first: int, count: int, fleet: Fleet, seed: int = 0) -> int:
    """Writes jobs `first` to `first + count - 1` into folders of their own.

    Returns:
        The number of bytes.
    """
    return sum(_write_job(folder, number, fleet, seed) for number in range(first, first + count))


def _write_job(folder: Path, number: int, fleet: Fleet, seed: int) -> int:
    dice = random.Random(f"{seed} {number}")
    place = folder / f"team{number % 7}" / f"job{number:05}"
    place.mkdir(parents=True)
    origin = begin = int((EPOCH + dice.random() * fleet.days * DAY) * SECOND)
    failing = dice.random() < FAILING
    written = 0
    for attempt in range(1 + failing):
        slower = dict(fleet.slower)
        phases = {
            name: seconds * slower.get(name, 1.0) * dice.lognormvariate(0.0, fleet.spread)
            for name, seconds in START.items()
        }
        train = dice.uniform(0.5, 30.0) * 3600
        killed = failing and not attempt
        ends = 0
        for rank, ready in enumerate(_ready(dice, phases, fleet.ranks)):
            who = _identity(number, rank, attempt, fleet.ranks, begin, BOOTED + begin - origin)
            lines, end = _rank(dice, who, origin - BOOTED, ready, train, killed)
            data = "".join(lines).encode("ascii")
            name = f"attempt{attempt:03}.rank{rank:05}.{dice.getrandbits(32):08x}{SUFFIX}"
            (place / name).write_bytes(data)
            written += len(data)
            ends = max(ends, end)
        begin = ends + 60 * SECOND
    return written


def _ready(dice: random.Random, phases: dict[str, float], ranks: int) -> list[list[_Taken]]:
    """The phases of each rank. The last one ends when all ranks are ready."""
    found = []
    for _ in range(ranks):
        late = dice.random()
        taken = [
            (name, int(SECOND * (seconds * dice.lognormvariate(0.0, JITTER) + late * (not place))))
            for place, (name, seconds) in enumerate(phases.items())
        ]
        found.append(taken)
    last = max(sum(took for _, took in taken) for taken in found)
    for taken in found:
        taken.append(("process_group", last - sum(took for _, took in taken)))
    return found


def _identity(
    number: int, rank: int, attempt: int, ranks: int, begin: int, process: int
) -> Identity:
    host = f"host{number % 997}-{rank // HOSTED}"
    return Identity(
        run=f"job{number:05}",
        attempt=attempt,
        rank=rank,
        world=ranks,
        host=host,
        boot=f"boot-{host}",
        pid=1000 + rank,
        launched=begin - 20 * SECOND,
        process=process,
        labels={},
    )


def _rank(
    dice: random.Random,
    identity: Identity,
    wall: int,
    phases: list[_Taken],
    train: float,
    killed: bool,
) -> tuple[list[str], int]:
    """The lines of a rank, and the time of day at its end; `wall` is that at 0 of its clock."""
    assert identity.process is not None
    t = identity.process + SECOND
    lines = [start_line(identity, t, wall + t, t)]
    for name, took in phases:
        if name == "restore":
            lines.append(begin_line(name, t, False))
        more = {"engine": "native", "parts": {"search": took / 3e9}} if name == "plan" else None
        lines.append(phase_line(name, t, took, False, None, more))
        t += took
    lines.append(event_line("first_batch", t))
    each = int(train * SECOND) // STEP_LINES
    for line in range(STEP_LINES):
        first = 1000 * line
        sums = {"data_wait": [1000, int(each * dice.uniform(0.01, 0.03))]}
        mark = [first, t + each // 1000]
        lines.append(steps_line((first, first + 999), (t, each), wall + t + each, (sums, {}), mark))
        t += each
    if killed:
        lines.insert(-1, event_line("checkpoint", t - each, step=1000 * (STEP_LINES - 1) - 1))
        if identity.rank == 0:
            lines.append(event_line("failure", t, cause="RuntimeError: NCCL timeout"))
    else:
        lines.append(event_line("end", t, wall=wall + t))
    return lines, wall + t
