"""Which files belong to one attempt of a job, and in which order the attempts were."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastplan.ett.reading import Record


@dataclass(slots=True)
class Group:
    """The processes of one attempt: one per rank, and their helpers."""

    ranks: dict[int, Record] = field(default_factory=dict)
    helpers: list[Record] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [*self.ranks.values(), *self.helpers]

    def add(self, record: Record) -> bool:
        """Takes a record in, unless it is of a later attempt with the same number."""
        other = self.ranks.get(record.rank)
        if other is None:
            self.ranks[record.rank] = record
            return True
        if _begin(record) >= _end(other):
            return False
        # Two at the same time: one trains, the other is a process that it has started.
        if record.steps and not other.steps:
            self.ranks[record.rank], record = record, other
        self.helpers.append(record)
        return True


def grouped(records: list[Record]) -> list[Group]:
    """Attempts in the order of time. torchrun numbers restarts from 0 each time it is started."""
    groups: list[Group] = []
    latest: dict[tuple[str, int], Group] = {}
    for record in sorted(records, key=_begin):
        key = (record.identity.run, record.identity.attempt)
        if key not in latest or not latest[key].add(record):
            latest[key] = Group()
            latest[key].add(record)
            groups.append(latest[key])
    return groups


def missing(groups: list[Group]) -> list[str]:
    """What is not there, as far as what is there tells."""
    notes = []
    for number, group in enumerate(groups):
        world = max(record.world for record in group.ranks.values())
        absent = sorted(set(range(world)) - group.ranks.keys())
        if absent:
            shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
            notes.append(
                f"attempt {number}: no file of {len(absent)} of {world} ranks ({shown}); the "
                "others stand for them"
            )
        for record in group.records:
            notes += record.problems
    notes += [
        f"attempt {number}: torchrun's restarts {first} to {last} left no file; they count as "
        "failures, and their time as restart"
        for number, first, last in _gaps(groups)
    ]
    return notes


def _gaps(groups: list[Group]) -> list[tuple[int, int, int]]:
    """Attempts before which torchrun has counted restarts that left no file: from and to which."""
    found = []
    before: dict[str, int] = {}
    for number, group in enumerate(groups):
        identity = next(iter(group.ranks.values())).identity
        expected = before.get(identity.run, -1) + 1
        if identity.attempt > expected:
            found.append((number, expected, identity.attempt - 1))
        before[identity.run] = identity.attempt
    return found


def unseen_restarts(groups: list[Group]) -> int:
    """How many attempts there must have been that left no file."""
    return sum(last + 1 - first for _, first, last in _gaps(groups))


def _begin(record: Record) -> int:
    return record.wall - record.t + record.begin


def _end(record: Record) -> int:
    return record.wall - record.t + record.last
