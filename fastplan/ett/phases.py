"""Phases: their names here and in other tools, and pieces of time that are named by them.

ml-goodput-measurement sorts lost time into BadputType buckets; one-logger has spans. A name that is
not in NAMES is the user's own, and counts as CUSTOM_BADPUT_EVENTS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class Kind(Enum):
    """The priority of a phase: the other ranks wait for the rank with the lowest value."""

    WORK = 0
    UNKNOWN = 1  # before the first batch, without a recorded phase
    WAIT = 2  # for other ranks; counts only if no rank works
    TRAIN = 3
    LOST = 4
    OVER = 5  # after the last step, without a recorded phase


@dataclass(frozen=True, slots=True)
class PhaseName:
    """The names of a phase: its title, and in ml-goodput-measurement and one-logger."""

    title: str
    goodput: str
    span: str | None
    kind: Kind = Kind.WORK


# In the order of a job. The keys are the names in files, and the arguments of `ett.phase`.
NAMES = {
    "queue": PhaseName("queue", "OTHER", None),
    "container": PhaseName("container start", "OTHER", None),
    "launch": PhaseName("launch", "OTHER", None),
    "imports": PhaseName("Python and imports", "PROGRAM_STARTUP", "application"),
    "process_group": PhaseName(
        "process group", "TPU_INITIALIZATION", "distributed_code_initialization", Kind.WAIT
    ),
    "bundle": PhaseName("start bundle", "TRAINING_PREP", "model_initialization"),
    "data_loader": PhaseName("data loader", "TRAINING_PREP", "data_loader_initialization"),
    "model_build": PhaseName("model build", "TRAINING_PREP", "model_initialization"),
    "plan": PhaseName("plan", "TRAINING_PREP", "model_initialization"),
    "broadcast": PhaseName("plan broadcast", "TRAINING_PREP", "model_initialization", Kind.WAIT),
    "dmp": PhaseName("DMP, other", "TRAINING_PREP", "model_initialization"),
    "shard": PhaseName("DMP shard", "TRAINING_PREP", "model_initialization"),
    "fused_optimizer": PhaseName(
        "DMP fused optimizer", "TRAINING_PREP", "optimizer_initialization"
    ),
    "data_parallel": PhaseName("DMP data parallel", "TRAINING_PREP", "model_initialization"),
    "optimizer": PhaseName("optimizer", "TRAINING_PREP", "optimizer_initialization"),
    "restore": PhaseName(
        "checkpoint restore", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME", "checkpoint_load"
    ),
    "starting": PhaseName("start, other", "TRAINING_PREP", "application", Kind.UNKNOWN),
    "compile": PhaseName("compile", "PROGRAM_STARTUP", "training_loop"),
    "recompile": PhaseName("recompile", "PROGRAM_STARTUP", "training_loop"),
    "training": PhaseName("training", "TOTAL", "training_loop", Kind.TRAIN),
    "bundle_save": PhaseName("start bundle save", "OTHER", "training_loop"),
    "data_wait": PhaseName("waiting for data", "DATA_LOADING_SYNC", "data_loading"),
    "checkpoint_save": PhaseName(
        "checkpoint save", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_sync"
    ),
    "checkpoint_stage": PhaseName(
        "checkpoint staging", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_async"
    ),
    "checkpoint_upload": PhaseName(
        "checkpoint upload", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_finalization"
    ),
    "eval": PhaseName("evaluation", "CUSTOM_BADPUT_EVENTS", "validation_loop"),
    "publish": PhaseName("model publishing", "CUSTOM_BADPUT_EVENTS", None),
    "ending": PhaseName("end, other", "OTHER", "application", Kind.OVER),
    "lost": PhaseName("lost work", "WASTED_PROGRESS_FROM_DISRUPTION", "training_loop", Kind.LOST),
    "stalled": PhaseName(
        "failing", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "training_loop", Kind.OVER
    ),
    "down": PhaseName("down", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", None),
    "restart": PhaseName("restart", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", None),
}


_ORDER = {name: place for place, name in enumerate(NAMES)}


def phase_name(phase: str) -> PhaseName:
    """Returns the names of a phase, which may be the user's own."""
    return NAMES.get(phase) or PhaseName(phase or "(no name)", "CUSTOM_BADPUT_EVENTS", None)


def phase_order(phase: str) -> tuple[int, str]:
    """Returns a sort key: phases in the order of a job, the user's own last and by name."""
    return _ORDER.get(phase, len(_ORDER)), phase


Span = tuple[int, int, str]  # what a Piece is: begin, end and name, in nanoseconds


class Piece(NamedTuple):
    """A range of time with the name of a phase, in nanoseconds.

    Functions here take and return plain tuples: a fleet has millions of them, and a named tuple
    takes six times as long to make.
    """

    begin: int
    end: int
    name: str

    @property
    def took(self) -> int:
        return self.end - self.begin


def flatten(phases: Iterable[Span]) -> list[Span]:
    """Returns phases that nest or overlap as pieces that don't: the latest to begin wins."""
    given = [p for p in phases if p[1] > p[0]]
    return _joined(given) or _flatten_overlapping(given)


def _flatten_overlapping(given: list[Span]) -> list[Span]:
    ordered = sorted(given, key=lambda p: (p[0], -p[1]))
    moments = sorted({t for begin, end, _ in ordered for t in (begin, end)})
    open_now: list[tuple[int, int, Span]] = []
    pieces: list[Span] = []
    upcoming = 0
    for begin, end in pairwise(moments):
        while upcoming < len(ordered) and ordered[upcoming][0] == begin:
            # The latest first; among phases with the same begin the last, which is the shortest.
            heappush(open_now, (-begin, -upcoming, ordered[upcoming]))
            upcoming += 1
        while open_now and open_now[0][2][1] <= begin:
            heappop(open_now)
        if open_now:
            _append(pieces, begin, end, open_now[0][2][2])
    return pieces


def subtract(base: Iterable[Span], top: list[Span]) -> list[Span]:
    """Returns the parts of `base` that no piece of `top` covers."""
    left: list[Span] = []
    i, count = 0, len(top)
    for begin, end, name in base:
        while i < count and top[i][1] <= begin:
            i += 1
        k = i
        while k < count and top[k][0] < end:
            if top[k][0] > begin:
                left.append((begin, top[k][0], name))
            begin = max(begin, top[k][1])
            k += 1
        if begin < end:
            left.append((begin, end, name))
    return left


def merge_by_priority(
    ranks: Iterable[Iterable[Span]], importance: Callable[[str, int], tuple[int, int]]
) -> list[Span]:
    """Merges the pieces of all ranks into those of the job.

    Args:
        ranks: The pieces of each rank.
        importance: A sort key by name, and by when the first piece of that name begins. At any
            time, the name with the lowest key wins.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for pieces in ranks:
        for begin, end, name in pieces:
            if end > begin:
                if name in found:
                    found[name].append((begin, end))
                else:
                    found[name] = [(begin, end)]
    keys: dict[str, tuple[int, int]] = {}
    changes: list[tuple[int, bool, str]] = []
    for name, spans in found.items():
        spans.sort()
        keys[name] = importance(name, spans[0][0])
        for begin, end in _united(spans):
            changes += ((begin, True, name), (end, False, name))
    changes.sort()  # at the same time, ends come first
    active: dict[str, None] = {}  # in the order of their begins
    job: list[Span] = []
    before = 0
    for moment, begins, name in changes:
        if moment > before and active:
            _append(job, before, moment, min(active, key=keys.__getitem__))
        if begins:
            active[name] = None
        else:
            del active[name]
        before = moment
    return job


def _united(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Joins ranges that overlap; they are sorted. Those that only touch stay two."""
    begin, end = spans[0]
    for next_begin, next_end in spans:
        if next_begin >= end:
            yield begin, end
            begin, end = next_begin, next_end
        elif next_end > end:
            end = next_end
    yield begin, end


def within(pieces: Iterable[Span], begin: int, end: int) -> list[Span]:
    """Returns the pieces between two times; those that cross one are cut there."""
    if begin >= end:
        return []
    return [
        p if begin <= p[0] < p[1] <= end else (max(p[0], begin), min(p[1], end), p[2])
        for p in pieces
        if p[0] < end and begin < p[1] and p[0] < p[1]
    ]


def clip(pieces: list[Span], begin: int, end: int) -> list[Span]:
    """Returns what `within` does, faster, for pieces in order, without overlaps or empty ones."""
    if pieces and begin <= pieces[0][0] and pieces[-1][1] <= end:
        return pieces
    return within(pieces, begin, end)


def totals(pieces: Iterable[Span]) -> dict[str, int]:
    """Returns nanoseconds by name."""
    found: dict[str, int] = {}
    for begin, end, name in pieces:
        found[name] = found.get(name, 0) + end - begin
    return found


def _joined(pieces: list[Span]) -> list[Span] | None:
    """Joins neighbours of the same name; None if pieces overlap, or are not in order."""
    joined: list[Span] = []
    done, last = pieces[0][0] if pieces else 0, None
    for piece in pieces:
        begin, end, name = piece
        if begin < done:
            return None
        if begin == done and name == last:
            joined[-1] = joined[-1][0], end, name
        else:
            joined.append(piece)
        done, last = end, name
    return joined


def _append(pieces: list[Span], begin: int, end: int, name: str) -> None:
    if pieces and pieces[-1][1] == begin and pieces[-1][2] == name:
        pieces[-1] = pieces[-1][0], end, name
    else:
        pieces.append((begin, end, name))
