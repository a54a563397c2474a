"""A job on one clock: its attempts, the phases of every rank, and what the job waited for.

All times are nanoseconds since 1970 by the job's clock.

A job runs on many hosts. The processes of a host share a monotonic clock, which is moved to the
time of day once per host. The time of day may differ between hosts. Training is synchronous, so a
step ends at nearly the same time on all of them. A host's clock is therefore moved by the median
difference of common step ends to the hosts around rank 0, if that is clearly more than the spread
of the differences. Attempts that share no host are placed by time of day.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median_low

from msgspec import Struct

from fastplan.ett.events import Sums
from fastplan.ett.phases import Piece, Span
from fastplan.ett.record import Phase, Record


class StepRange(Struct, frozen=True):
    """Consecutive steps, and the sums of short phases during them."""

    first: int
    last: int
    begin: int
    end: int
    sums: Sums

    @property
    def count(self) -> int:
        return self.last + 1 - self.first

    def begin_of(self, step: int) -> int:
        """Returns when a step began, if all took the same time; exact at both ends."""
        done = min(max(0, step - self.first), self.count)
        return self.begin + (self.end - self.begin) * done // self.count


class RankTimeline(Struct):
    """A rank in an attempt."""

    rank: int
    host: str
    begin: int
    imported: int  # the end of Python's start and of imports that were not recorded
    end: int  # its last event
    ended: bool  # normally
    first_batch: int | None
    steps: list[StepRange]
    phases: list[Phase]  # in the foreground; all of them have an end
    background: list[Phase]
    rest: Sums  # short phases after the last step
    aside: Sums  # short phases in the background
    checkpoints: list[tuple[int, int]]
    failures: list[tuple[str, int]]
    killed_in: str | None  # the phase that did not end
    pieces: list[Span] = []  # all of its time
    between: list[Span] = []  # its time outside of phases
    lost_steps: int = 0
    kept_sums: Sums = {}  # of steps that were not lost

    @property
    def first_step_end(self) -> int | None:
        """When its first step ended."""
        return self.steps[0].begin_of(self.steps[0].first + 1) if self.steps else None


@dataclass(slots=True)
class Attempt:
    """One start of the job, up to its end."""

    number: int
    run: str
    restart: int  # torchrun's count
    world: int
    ranks: list[RankTimeline]
    launched: int | None  # when its launcher began
    process: int  # when its first process began
    begin: int  # the end of the previous attempt, or the launch of the first
    end: int
    is_last: bool
    job: list[Piece] = field(default_factory=list)  # what the job waited for

    @property
    def failed(self) -> bool:
        """Whether another attempt followed, or a failure was recorded."""
        return not self.is_last or any(rank.failures for rank in self.ranks)

    @property
    def ended(self) -> bool:
        """Whether all ranks ended normally."""
        return all(rank.ended for rank in self.ranks)

    @property
    def first_batch(self) -> int | None:
        """When the last rank began its first batch."""
        return max((r.first_batch for r in self.ranks if r.first_batch is not None), default=None)

    @property
    def first_step_end(self) -> int | None:
        """When the first step ended on the last rank."""
        ends = [rank.first_step_end for rank in self.ranks]
        return max((end for end in ends if end is not None), default=None)

    @property
    def first_step(self) -> int | None:
        return min((rank.steps[0].first for rank in self.ranks if rank.steps), default=None)

    @property
    def saved(self) -> int | None:
        """The last step that all ranks with checkpoints have saved."""
        saving = [{step for step, _ in rank.checkpoints} for rank in self.ranks if rank.checkpoints]
        return max(set.intersection(*saving), default=None) if saving else None


@dataclass(slots=True)
class Job:
    """All attempts in order, and notes about missing data and corrections."""

    source: str
    attempts: list[Attempt]
    notes: list[str]
    unseen_restarts: int  # restarts without a file
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        return self.attempts[0].begin

    @property
    def end(self) -> int:
        return self.attempts[-1].end


_Host = tuple[str, str]  # its name, and the boot that its monotonic clock counts from
_LEAST_OFFSET = 1_000_000  # nanoseconds; synchronised clocks are not better
_SPREADS = 4
_FEW = 3
_SPREAD_OF_FEW = 25_000_000


@dataclass(frozen=True, slots=True)
class _ClockOffset:
    """How far a host's time of day was ahead, and the spread of that estimate."""

    host: str
    ahead: int
    spread: int
    steps: int

    @property
    def is_clear(self) -> bool:
        """Whether this is more than noise."""
        return abs(self.ahead) > max(_LEAST_OFFSET, _SPREADS * self.spread)

    def text(self) -> str:
        side = "ahead" if self.ahead > 0 else "behind"
        return (
            f"host {self.host}: its clock was {abs(self.ahead) / 1e9:.3f} s {side}, by the ends of "
            f"{self.steps} common steps (+-{self.spread / 1e6:.1f} ms); corrected"
        )


class Clocks:
    """Moves the times of all records to one clock, that of the first attempt's first rank.

    Args:
        attempts: The records of each attempt.
    """

    def __init__(self, attempts: list[list[Record]]) -> None:
        own: dict[_Host, list[int]] = defaultdict(list)
        for record in (record for records in attempts for record in records):
            own[_host(record)].append(record.wall - record.t)
        self._offset = {host: median_low(differences) for host, differences in own.items()}
        self._ahead = dict.fromkeys(own, 0)
        self.notes: list[str] = []
        aligned: set[_Host] = set()
        for records in attempts:
            self._align(records, aligned)
        apart = sorted({host for host, _ in own.keys() - aligned})
        if apart:
            self.notes.append(
                f"hosts {', '.join(apart)}: no step in common with the others to compare clocks "
                "by; their clocks are not corrected"
            )

    def time(self, record: Record, t: int) -> int:
        """Returns a time of a record as nanoseconds since 1970."""
        return t + self.offset(record)

    def offset(self, record: Record) -> int:
        """Returns what to add to a record's times to get nanoseconds since 1970."""
        host = _host(record)
        return self._offset[host] - self._ahead[host]

    def time_of_day(self, record: Record, wall: int) -> int:
        """Returns a time of day of a record's host, corrected."""
        return wall - self._ahead[_host(record)]

    def _align(self, records: list[Record], aligned: set[_Host]) -> None:
        hosts = {_host(record) for record in records}
        if not hosts & aligned:
            aligned.add(_host(min(records, key=lambda record: record.rank)))
        ends = self._ends(records)
        there: dict[int, int] = {}
        for host in hosts & aligned:
            _keep_first(there, ends[host], 0)
        for host in sorted(hosts - aligned):
            here = ends[host]
            differences = [here[step] - there[step] for step in here.keys() & there.keys()]
            if not differences:
                continue
            aligned.add(host)
            offset = _offset(host[0], differences)
            if offset.is_clear:
                self._ahead[host] = offset.ahead
                self.notes.append(offset.text())
            _keep_first(there, here, -self._ahead[host])

    def _ends(self, records: list[Record]) -> dict[_Host, dict[int, int]]:
        """When each step first ended on each host: a rank can be late, but not early."""
        first: dict[_Host, dict[int, int]] = defaultdict(dict)
        for record in records:
            _keep_first(first[_host(record)], record.marks, self.offset(record))
        return first


def _keep_first(first: dict[int, int], ends: dict[int, int], moved: int) -> None:
    """Adds the ends of steps, moved by `moved`, where they are the first."""
    for step, t in ends.items():
        at = t + moved
        if at < first.get(step, at + 1):
            first[step] = at


def _offset(host: str, differences: list[int]) -> _ClockOffset:
    ahead = median_low(differences)
    spread = median_low([abs(difference - ahead) for difference in differences])
    if len(differences) < _FEW:
        spread = max(spread, _SPREAD_OF_FEW)
    return _ClockOffset(host, ahead, spread, len(differences))


def _host(record: Record) -> _Host:
    """Where a process ran. Where a boot has no name, a monotonic clock is its process' own."""
    return record.identity.host, record.identity.boot or f"process {record.identity.pid}"
