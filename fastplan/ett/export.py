"""A job for other tools: as a Chrome trace, and as TensorBoard scalars."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from typing import Any

from fastplan.ett.arithmetic import Report
from fastplan.ett.phases import phase_name
from fastplan.ett.record import Phase
from fastplan.ett.timeline import Job, RankTimeline
from fastplan.report.terminal import escape_name

Event = dict[str, Any]


def chrome_trace(job: Job) -> Event:
    """Returns a trace for Perfetto or chrome://tracing, with a thread per rank.

    Args:
        job: The job.

    Returns:
        A JSON document. Each attempt is a process, and so is the job as a whole.
    """
    trace = _Trace(job.begin)
    trace.add_process("job: what all ranks waited for")
    trace.add_thread("job")
    for attempt in job.attempts:
        for piece in attempt.job:
            trace.add(piece.begin, piece.end, piece.name)
    for attempt in job.attempts:
        trace.add_process(f"attempt {attempt.number}")
        for rank in attempt.ranks:
            _add_rank(trace, rank)
    return {
        "displayTimeUnit": "ms",
        "otherData": {"source": job.source, "begin_unix_ns": str(job.begin)},
        "traceEvents": trace.events,
    }


def _add_rank(trace: _Trace, rank: RankTimeline) -> None:
    """Adds a rank's phases, nested, and the time between them, which is mostly training."""
    first, *more = lanes(rank.phases) or [[]]
    trace.add_thread(f"rank {rank.rank} on {rank.host}")
    for piece in rank.between:
        trace.add(*piece)
    trace.add_phases(first)
    for step, at in rank.checkpoints:
        trace.add_moment(at, f"checkpoint of step {step}")
    for cause, at in rank.failures:
        trace.add_moment(at, f"failure: {cause}")
    for phases in (*more, *lanes(rank.background)):
        trace.add_thread(f"rank {rank.rank} background")
        trace.add_phases(phases)


def lanes(phases: Iterable[Phase]) -> list[list[Phase]]:
    """Sorts phases into rows, so that the phases of a row nest or don't overlap."""
    rows: list[tuple[list[Phase], list[int]]] = []
    for phase in sorted(phases, key=lambda p: (p.begin, -p.until)):
        row, ends = next((row for row in rows if _can_nest(phase, row[1])), ([], []))
        if not row:
            rows.append((row, ends))
        row.append(phase)
        ends.append(phase.until)
    return [row for row, _ in rows]


def _can_nest(phase: Phase, ends: list[int]) -> bool:
    """Whether a phase is within the last open phase of a row, or after all of them."""
    while ends and ends[-1] <= phase.begin:
        ends.pop()
    return not ends or phase.until <= ends[-1]


class _Trace:
    """The events of a trace. New ones belong to the process and thread that were added last."""

    def __init__(self, origin: int) -> None:
        self.events: list[Event] = []
        self._origin = origin
        self._processes = count(1)
        self._threads = count(1)
        self._process = self._thread = 0

    def add_process(self, name: str) -> None:
        self._process = next(self._processes)
        self._describe("process", self._process, name)

    def add_thread(self, name: str) -> None:
        self._thread = next(self._threads)
        self._describe("thread", self._thread, name)

    def _describe(self, what: str, place: int, name: str) -> None:
        place_of = {"pid": self._process, "tid": self._thread if what == "thread" else 0}
        self.events.append({"ph": "M", "name": f"{what}_name", "args": {"name": name}} | place_of)
        order = {"ph": "M", "name": f"{what}_sort_index", "args": {"sort_index": place}}
        self.events.append(order | place_of)

    def add(self, begin: int, end: int, name: str, more: Event | None = None) -> None:
        known = phase_name(name)
        about = {"phase": name, "goodput": known.goodput, "one_logger": known.span, **(more or {})}
        self.events.append(
            {
                "ph": "X",
                "name": known.title,
                "cat": known.kind.name.lower(),
                "ts": self._microseconds(begin),
                "dur": (end - begin) / 1000,
                "pid": self._process,
                "tid": self._thread,
                "args": about,
            }
        )

    def add_phases(self, phases: Iterable[Phase]) -> None:
        for phase in phases:
            short = {f"{name} (short)": f"{took / 1e9} s" for name, (_, took) in phase.sums.items()}
            self.add(phase.begin, phase.until, phase.name, {**phase.more, **short})

    def add_moment(self, at: int, name: str) -> None:
        self.events.append(
            {
                "ph": "i",
                "s": "t",
                "name": name,
                "cat": "moment",
                "ts": self._microseconds(at),
                "pid": self._process,
                "tid": self._thread,
            }
        )

    def _microseconds(self, at: int) -> float:
        return (at - self._origin) / 1000


class NoTensorBoard(ImportError):
    """TensorBoard is not installed."""


def scalars(report: Report) -> list[tuple[str, float, int]]:
    """Returns tag, value and attempt of every scalar. ETT is up to the end of the attempt."""
    found: list[tuple[str, float, int]] = []
    productive = 0.0
    name = "time_to_start"
    for attempt in report.attempts:
        number = attempt.number
        productive += attempt.productive
        if attempt.end > 0:
            found.append(("ett/percent", 100 * productive / attempt.end, number))
        if attempt.to_training is not None:
            found.append((f"ett/{name}_seconds", attempt.to_training, number))
            name = "time_to_recover"
        found.append(("ett/lost_steps", attempt.lost_steps, number))
        found.append(("ett/failures", sum(a.failed for a in report.attempts[: number + 1]), number))
        found += [
            (f"ett_phase_seconds/{escape_name(name)}", seconds, number)
            for name, seconds in attempt.phases.items()
        ]
    return found


def write_scalars(report: Report, directory: str | os.PathLike[str]) -> None:
    """Writes an event file with torch.utils.tensorboard.

    Raises:
        NoTensorBoard: if torch or tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NoTensorBoard(
            "TensorBoard scalars are written by torch.utils.tensorboard, which needs the packages "
            f"torch and tensorboard: `pip install tensorboard` ({error})"
        ) from error
    writer: Any = SummaryWriter(log_dir=os.fspath(directory))
    try:
        for tag, value, number in scalars(report):
            writer.add_scalar(tag, value, number)
    finally:
        writer.close()
