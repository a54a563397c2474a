"""A job as a Chrome trace, to be looked at in Perfetto or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from fastplan.ett.names import name_of
from fastplan.ett.reading import Phase
from fastplan.ett.timeline import Job, RankTime

Event = dict[str, Any]


def chrome_trace(job: Job) -> Event:
    """The trace as a JSON document: a process per attempt, a thread per rank."""
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


def _add_rank(trace: _Trace, rank: RankTime) -> None:
    """A rank's phases as they nest, and what they leave: training, mostly."""
    first, *more = lanes(rank.phases) or [[]]
    trace.add_thread(f"rank {rank.rank} on {rank.host}")
    for piece in rank.between:
        trace.add(piece.begin, piece.end, piece.name)
    trace.add_phases(first)
    for step, at in rank.checkpoints:
        trace.add_moment(at, f"checkpoint of step {step}")
    for cause, at in rank.failures:
        trace.add_moment(at, f"failure: {cause}")
    for phases in (*more, *lanes(rank.background)):
        trace.add_thread(f"rank {rank.rank} besides")
        trace.add_phases(phases)


def lanes(phases: Iterable[Phase]) -> list[list[Phase]]:
    """Phases in as many rows as it takes for all of a row to follow on each other, or nest."""
    rows: list[tuple[list[Phase], list[int]]] = []
    for phase in sorted(phases, key=lambda p: (p.begin, -p.until)):
        row, ends = next((row for row in rows if _fits(phase, row[1])), ([], []))
        if not row:
            rows.append((row, ends))
        row.append(phase)
        ends.append(phase.until)
    return [row for row, _ in rows]


def _fits(phase: Phase, ends: list[int]) -> bool:
    """Whether a phase is within the last of a row's that are still open, or after all of them."""
    while ends and ends[-1] <= phase.begin:
        ends.pop()
    return not ends or phase.until <= ends[-1]


class _Trace:
    """Events of the process and the thread that were added last."""

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
        known = name_of(name)
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
