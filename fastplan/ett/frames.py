"""Phases while they are open, and the sums of short ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastplan.ett.lines import Sums

if TYPE_CHECKING:
    from fastplan.ett.recorder import Recorder

_MOST_NAMES = 1000  # of short phases in a line
_OTHER_NAMES = "(other names)"


class Stack(list["Frame"]):
    """The open phases of a thread, and the sums of its short ones that had no other around them."""

    __slots__ = ("background", "late", "since", "sums")

    def __init__(self, background: bool) -> None:
        self.background = background
        self.sums: Sums = {}
        self.late: Sums = {}  # of those that began after the step at `since`
        self.since = 0

    def add(self, frame: Frame, took: int, since: int) -> None:
        """Adds a short phase; `since` is when the last step ended."""
        if frame.begin < since:
            add(self.sums, frame, took)
        else:
            if self.since != since:
                self.catch_up(since)
            add(self.late, frame, took)

    def catch_up(self, since: int) -> None:
        """What began after a step is in the next one's line as soon as that has ended."""
        if self.since != since:
            self.since = since
            if self.late:
                merge(self.sums, self.late)
                self.late = {}


class Frame:
    """A phase while it is open."""

    __slots__ = ("announced", "begin", "inner", "more", "name", "recorder", "stack", "sums")

    recorder: Recorder | None
    stack: Stack
    begin: int
    inner: int  # nanoseconds in phases within this one
    sums: Sums | None  # short phases within this one
    announced: bool

    def __init__(self, name: str, more: dict[str, Any] | None = None) -> None:
        self.name = name
        self.more = more


def add(sums: Sums, frame: Frame, took: int) -> None:
    """Adds a short phase, and the still shorter ones within it."""
    entry = sums.get(frame.name)
    if entry is None:
        entry = _entry(sums, frame.name)
    entry[0] += 1
    entry[1] += took - frame.inner
    if frame.sums is not None:
        merge(sums, frame.sums)


def merge(sums: Sums, more: Sums) -> None:
    """Adds sums to others, name by name."""
    for name, (count, own) in more.items():
        entry = sums.get(name) or _entry(sums, name)
        entry[0] += count
        entry[1] += own


def _entry(sums: Sums, name: str) -> list[int]:
    """A new entry; once there are too many, one for all others."""
    return sums.setdefault(name if len(sums) < _MOST_NAMES else _OTHER_NAMES, [0, 0])
