"""One clock for a job that ran on many hosts.

A host's processes share a monotonic clock, which is moved to the time of day once per host. The
time of day may differ between hosts. Training is synchronous, so a step ends at the same time on
all of them, but for the little that each does on its own. A host's clock is therefore moved by the
median difference of common step ends to the hosts around rank 0, if that is clearly more than the
differences differ among themselves. Attempts on other hosts altogether are placed by time of day.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median_low

from fastplan.ett.reading import Record

Host = tuple[str, str]  # its name, and the boot that its monotonic clock counts from
_LEAST_SKEW = 1_000_000  # nanoseconds; synchronised clocks are no better
_SPREADS = 4
_FEW = 3
_SPREAD_OF_FEW = 25_000_000


@dataclass(frozen=True, slots=True)
class _Skew:
    """How far a host's time of day was ahead, and how well that is known."""

    host: str
    ahead: int
    spread: int
    steps: int

    @property
    def is_clear(self) -> bool:
        """Whether this is more than noise."""
        return abs(self.ahead) > max(_LEAST_SKEW, _SPREADS * self.spread)

    def text(self) -> str:
        side = "ahead" if self.ahead > 0 else "behind"
        return (
            f"host {self.host}: its clock was {abs(self.ahead) / 1e9:.3f} s {side}, by the ends of "
            f"{self.steps} common steps (+-{self.spread / 1e6:.1f} ms); corrected"
        )


class Clocks:
    """Moves the times of all records to one clock, that of the first attempt's first rank."""

    def __init__(self, attempts: list[list[Record]]) -> None:
        own: dict[Host, list[int]] = defaultdict(list)
        for record in (record for records in attempts for record in records):
            own[_host(record)].append(record.wall - record.t)
        self._offset = {host: median_low(differences) for host, differences in own.items()}
        self._ahead = dict.fromkeys(own, 0)
        self.notes: list[str] = []
        aligned: set[Host] = set()
        for records in attempts:
            self._align(records, aligned)
        apart = sorted({host for host, _ in own.keys() - aligned})
        if apart:
            self.notes.append(
                f"hosts {', '.join(apart)}: no step in common with the others to compare clocks "
                "by; their time of day is taken as it is"
            )

    def time(self, record: Record, t: int) -> int:
        """A time of a record, as nanoseconds since 1970."""
        host = _host(record)
        return t + self._offset[host] - self._ahead[host]

    def time_of_day(self, record: Record, wall: int) -> int:
        """A time that a record's host has read off its clock."""
        return wall - self._ahead[_host(record)]

    def _align(self, records: list[Record], aligned: set[Host]) -> None:
        hosts = {_host(record) for record in records}
        if not hosts & aligned:
            aligned.add(_host(min(records, key=lambda record: record.rank)))
        for host in sorted(hosts - aligned):
            here, there = self._ends(records, {host}), self._ends(records, aligned)
            differences = [here[step] - there[step] for step in here.keys() & there.keys()]
            if not differences:
                continue
            aligned.add(host)
            skew = _measured(host[0], differences)
            if skew.is_clear:
                self._ahead[host] = skew.ahead
                self.notes.append(skew.text())

    def _ends(self, records: list[Record], hosts: set[Host]) -> dict[int, int]:
        """When each step first ended on these hosts: a rank may be late, but never early."""
        first: dict[int, int] = {}
        for record in records:
            if _host(record) in hosts:
                for step, t in record.marks.items():
                    at = self.time(record, t)
                    first[step] = min(at, first.get(step, at))
        return first


def _measured(host: str, differences: list[int]) -> _Skew:
    ahead = median_low(differences)
    spread = median_low([abs(difference - ahead) for difference in differences])
    if len(differences) < _FEW:
        spread = max(spread, _SPREAD_OF_FEW)
    return _Skew(host, ahead, spread, len(differences))


def _host(record: Record) -> Host:
    """Where a process ran. Where a boot has no name, a monotonic clock is its process' own."""
    return record.identity.host, record.identity.boot or f"process {record.identity.pid}"
