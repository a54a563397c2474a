"""The recorder of this process: none until there is something to record, none after a fork."""

from __future__ import annotations

import atexit
import os
import threading
import time
from types import TracebackType
from typing import Any

from fastplan.ett.frames import Frame
from fastplan.ett.identity import identify
from fastplan.ett.journal import Journal, obstacle
from fastplan.ett.recorder import Recorder
from fastplan.ett.values import shown, warn

# Set to a directory, it turns recording on.
DIRECTORY = "FASTPLAN_ETT"
_MOST_IMPORTS = 1000
_SHORT_IMPORT = 1_000_000  # nanoseconds
_LONG_IMPORT = 10_000_000  # which is told apart from the phase that happened to need it first
_LONGEST_NAME = 200

_active: Recorder | None = None
_off = False  # found to be off, and not to be asked again
_directory: str | None = None
_watched: int | None = None
_imports: list[tuple[int, int]] = []  # seen before there was a file
_tended = False
_lock = threading.RLock()
_starting = False


def start(
    directory: str | os.PathLike[str] | None = None,
    *,
    rank: int | None = None,
    world: int | None = None,
    attempt: int | None = None,
) -> str | None:
    """Opens this process' file and returns its path; None if there is no directory to write to.

    The directory is FASTPLAN_ETT unless it is given; rank, world size and attempt are torchrun's.
    Recording starts by itself with the first event: this is for processes that torchrun did not
    start, and for children made by fork. A directory that can't be written to costs a warning.
    """
    global _active, _off, _imports
    stop()
    try:
        where = _where() if directory is None else os.fsdecode(directory)
        _off = where is None
        if where is None:
            return None
        identity = identify(rank=rank, world=world, attempt=attempt)
        journal = Journal(where, identity)
    except (OSError, TypeError, ValueError) as error:
        warn("nothing is recorded: %s", error)
        _off = True
        return None
    _tend()
    _active = Recorder(journal, identity, watched=_watched)
    for begin, end in _imports:
        _active.add("imports", begin, end)
    _imports = []
    return _active.path


def stop() -> None:
    """Ends the record in good order, as the end of the process does."""
    global _active, _off
    recorder, _active = _active, None
    _off = True
    if recorder is not None:
        recorder.stop()


def current() -> Recorder | None:
    """The recorder, started now if recording is on."""
    global _starting
    if _active is None and not _off:
        with _lock:
            # A signal handler may get here while its own thread is at it.
            if _active is None and not (_off or _starting):
                _starting = True
                try:
                    start()
                finally:
                    _starting = False
    return _active


def watch(directory: str | os.PathLike[str] | None) -> bool:
    """Tells where to record, before there is anything to record.

    False if nowhere, with a warning if that is not what was asked for.
    """
    global _directory, _watched, _off
    problem = None
    if directory is not None:
        try:
            _directory = os.fsdecode(directory)
        except TypeError as error:
            problem = str(error)
    if _active is None:
        where = _where()
        if where is not None and problem is None:
            problem = obstacle(where)
        if problem is not None:
            warn("nothing is recorded: %s", problem)
        _off = where is None or problem is not None
        _watched = time.monotonic_ns()
    return not _off


def imported(begin: int, end: int) -> None:
    """Notes an import. By itself it starts no record: helper processes import, too."""
    if end - begin < _SHORT_IMPORT:
        return
    if _active is not None:
        if end - begin >= _LONG_IMPORT or not _active.is_open():
            _active.add("imports", begin, end, background=_active.in_background())
    elif not _off and len(_imports) < _MOST_IMPORTS:
        _imports.append((begin, end))


class phase(Frame):
    """Records a block: `with ett.phase("publish"):`. Keywords are kept with it.

    Phases nest, and a phase's own time is what those within it leave. Known names are listed by
    `fastplan.ett.names`; others are shown as they are. A phase of another thread than the main one
    and the one that trains is in the background: it is shown, and holds nothing up. Whatever is
    told never raises: what can't be written as JSON is written as text, and cut off if it is long.
    """

    __slots__ = ()

    def __init__(self, name: str | None = None, /, **more: Any) -> None:
        # A detail may be called `name`, too; where it is the only one, it is the phase's.
        told = more.pop("name", "") if name is None else name
        plain = type(told) is str and len(told) <= _LONGEST_NAME
        self.name = told if plain else shown(told, _LONGEST_NAME)
        self.more = more or None
        self.recorder = None

    def __enter__(self) -> None:
        recorder = _active or current()
        if recorder is None:
            self.recorder = None
        else:
            recorder.begin(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.recorder is not None:
            self.recorder.end(self)


def step(number: int) -> None:
    """Step `number` has just ended. Numbers go on over restarts: they tell which work was lost."""
    recorder = _active or current()
    if recorder is not None:
        recorder.step(number)


def checkpoint(step: int) -> None:
    """The steps up to this one, included, are saved for good: a restart goes on after it.

    torch.distributed.checkpoint tells this by itself once hooks are installed.
    """
    recorder = _active or current()
    if recorder is not None:
        recorder.checkpoint(step)


def failure(cause: str) -> None:
    """Training has failed. An uncaught exception tells this by itself once hooks are installed."""
    recorder = _active or current()
    if recorder is not None:
        recorder.failure(cause)


def _where() -> str | None:
    found = _directory or os.environ.get(DIRECTORY, "")
    return None if found in ("", "0") else found


def _tend() -> None:
    """From the first record on: ends it with the process, and not with a forked child's."""
    global _tended
    if not _tended:
        _tended = True
        atexit.register(stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """In a forked child: its parent's file is its parent's. `start()` gives it one of its own."""
    global _active, _off, _imports, _lock, _starting
    if _active is not None:
        _active.abandon()
    _active, _off, _imports = None, True, []
    _lock, _starting = threading.RLock(), False
