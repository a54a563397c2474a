"""Phases: their names here and in other tools, and pieces of time that are named by them.

ml-goodput-measurement sorts lost time into BadputType buckets; one-logger has spans. A name that is
not in NAMES is the user's own, and counts as CUSTOM_BADPUT_EVENTS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    return NAMES.get(phase) or PhaseName(phase, "CUSTOM_BADPUT_EVENTS", None)


def phase_order(phase: str) -> tuple[int, str]:
    """Returns a sort key: phases in the order of a job, the user's own last and by name."""
    return _ORDER.get(phase, len(_ORDER)), phase


class Piece(NamedTuple):
    """A range of time with the name of a phase, in nanoseconds."""

    begin: int
    end: int
    name: str

    @property
    def took(self) -> int:
        return self.end - self.begin


def flatten(phases: Iterable[Piece]) -> list[Piece]:
    """Returns phases that nest or overlap as pieces that don't: the latest to begin wins."""
    ordered = [p for p in phases if p.end > p.begin]
    if not _overlap(ordered):
        return _joined(ordered)
    ordered.sort(key=lambda p: (p.begin, -p.end))
    moments = sorted({t for piece in ordered for t in (piece.begin, piece.end)})
    open_now: list[tuple[int, int, Piece]] = []
    pieces: list[Piece] = []
    upcoming = 0
    for begin, end in pairwise(moments):
        while upcoming < len(ordered) and ordered[upcoming].begin == begin:
            # The latest first; among phases with the same begin the last, which is the shortest.
            heappush(open_now, (-begin, -upcoming, ordered[upcoming]))
            upcoming += 1
        while open_now and open_now[0][2].end <= begin:
            heappop(open_now)
        if open_now:
            _append(pieces, begin, end, open_now[0][2].name)
    return pieces


def subtract(base: list[Piece], top: list[Piece]) -> list[Piece]:
    """Returns the parts of `base` that no piece of `top` covers."""
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


def merge_by_priority(
    ranks: Iterable[list[Piece]], importance: Callable[[str], tuple[int, int]]
) -> list[Piece]:
    """Merges the pieces of all ranks into those of the job.

    Args:
        ranks: The pieces of each rank.
        importance: A sort key by name. At any time, the name with the lowest key wins.
    """
    changes: list[tuple[int, int, str]] = []
    for pieces in ranks:
        for begin, end, name in pieces:
            if end > begin:
                changes += ((begin, 1, name), (end, -1, name))
    changes.sort()
    keys = {name: importance(name) for name in {change[2] for change in changes}}
    active: dict[str, int] = {}
    job: list[Piece] = []
    before = 0
    first: str | None = None  # among the active names; None if it has to be found again
    for moment, change, name in changes:
        if moment > before and active:
            if first is None:
                first = min(active, key=keys.__getitem__)
            _append(job, before, moment, first)
        count = active.get(name, 0) + change
        if count:
            active[name] = count
        else:
            del active[name]
        if name == first or first is None or keys[name] <= keys[first]:
            first = None
        before = moment
    return job


def within(pieces: Iterable[Piece], begin: int, end: int) -> list[Piece]:
    """Returns the pieces between two times; those that cross one are cut there."""
    if begin >= end:
        return []
    return [
        p if begin <= p[0] < p[1] <= end else Piece(max(p.begin, begin), min(p.end, end), p.name)
        for p in pieces
        if p[0] < end and begin < p[1] and p[0] < p[1]
    ]


def totals(pieces: Iterable[Piece]) -> dict[str, int]:
    """Returns nanoseconds by name."""
    found: dict[str, int] = {}
    for begin, end, name in pieces:
        found[name] = found.get(name, 0) + end - begin
    return found


def _overlap(pieces: list[Piece]) -> bool:
    """Whether pieces overlap, or are not in order."""
    done = pieces[0][0] if pieces else 0
    for begin, end, _ in pieces:
        if begin < done:
            return True
        done = end
    return False


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Joins neighbours of the same name."""
    joined: list[Piece] = []
    last = None
    for piece in pieces:
        if last is not None and last[1] == piece[0] and last[2] == piece[2]:
            last = joined[-1] = Piece(last[0], piece[1], last[2])
        else:
            last = piece
            joined.append(piece)
    return joined


def _append(pieces: list[Piece], begin: int, end: int, name: str) -> None:
    if pieces and pieces[-1].end == begin and pieces[-1].name == name:
        pieces[-1] = Piece(pieces[-1].begin, end, name)
    else:
        pieces.append(Piece(begin, end, name))
