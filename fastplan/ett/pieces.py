"""Time cut into pieces: what a rank did when, and what held the whole job up when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class Piece(NamedTuple):
    """From when to when something was the case, in nanoseconds."""

    begin: int
    end: int
    name: str

    @property
    def took(self) -> int:
        return self.end - self.begin


def innermost(phases: Iterable[Piece]) -> list[Piece]:
    """Phases that nest or overlap, as pieces that do not: the latest to begin counts."""
    ordered = sorted((p for p in phases if p.end > p.begin), key=lambda p: (p.begin, -p.end))
    moments = sorted({t for piece in ordered for t in (piece.begin, piece.end)})
    open_now: list[tuple[int, int, Piece]] = []
    pieces: list[Piece] = []
    upcoming = 0
    for begin, end in pairwise(moments):
        while upcoming < len(ordered) and ordered[upcoming].begin == begin:
            # The latest first; of those that begin together the last, which is the shortest.
            heappush(open_now, (-begin, -upcoming, ordered[upcoming]))
            upcoming += 1
        while open_now and open_now[0][2].end <= begin:
            heappop(open_now)
        if open_now:
            _append(pieces, begin, end, open_now[0][2].name)
    return pieces


def uncovered(base: list[Piece], top: list[Piece]) -> list[Piece]:
    """What one row of pieces says where another says nothing."""
    left: list[Piece] = []
    i = 0
    for begin, end, name in base:
        while i < len(top) and top[i].end <= begin:
            i += 1
        k = i
        while k < len(top) and top[k].begin < end:
            if top[k].begin > begin:
                left.append(Piece(begin, top[k].begin, name))
            begin = max(begin, top[k].end)
            k += 1
        if begin < end:
            left.append(Piece(begin, end, name))
    return left


def swept(
    ranks: Iterable[list[Piece]], importance: Callable[[str], tuple[int, int]]
) -> list[Piece]:
    """What the job as a whole did: at any time the thing of least rank in `importance`."""
    changes: list[tuple[int, int, str]] = []
    for pieces in ranks:
        for begin, end, name in pieces:
            if end > begin:
                changes += ((begin, 1, name), (end, -1, name))
    changes.sort()
    active: Counter[str] = Counter()
    job: list[Piece] = []
    before = 0
    for moment, change, name in changes:
        if moment > before and active:
            _append(job, before, moment, min(active, key=importance))
        active[name] += change
        if not active[name]:
            del active[name]
        before = moment
    return job


def within(pieces: Iterable[Piece], begin: int, end: int) -> list[Piece]:
    """The pieces, or their parts, between two times."""
    return [
        Piece(max(p.begin, begin), min(p.end, end), p.name)
        for p in pieces
        if max(p.begin, begin) < min(p.end, end)
    ]


def totals(pieces: Iterable[Piece]) -> dict[str, int]:
    """Nanoseconds by name."""
    found: dict[str, int] = {}
    for begin, end, name in pieces:
        found[name] = found.get(name, 0) + end - begin
    return found


def _append(pieces: list[Piece], begin: int, end: int, name: str) -> None:
    if pieces and pieces[-1].end == begin and pieces[-1].name == name:
        pieces[-1] = Piece(pieces[-1].begin, end, name)
    else:
        pieces.append(Piece(begin, end, name))
