"""The recorder of this process. It starts with the first event, and a fork does not inherit it."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastplan.ett.events import Frame, to_text, warn
from fastplan.ett.journal import Journal, identify, why_not_writable
from fastplan.ett.recorder import Recorder

if TYPE_CHECKING:
    from fastplan.ett.exporters.thread import ExportThread

# This environment variable turns recording on. Its value is a directory.
DIRECTORY = "FASTPLAN_ETT"
_MOST_IMPORTS = 1000
_SHORT_IMPORT = 1_000_000  # nanoseconds
_LONG_IMPORT = 10_000_000  # recorded as an import even within another phase
_LONGEST_NAME = 200

_active: Recorder | None = None
_off = False  # recording is known to be off
_directory: str | None = None
_labels: Mapping[str, str] | None = None
_export: Sequence[str] | str | None = None
_exports: ExportThread | None = None
_watched: int | None = None
_imports: list[tuple[int, int]] = []  # before the file was created
_registered = False
_lock = threading.RLock()
_starting = False


def start(
    directory: str | os.PathLike[str] | None = None,
    *,
    rank: int | None = None,
    world: int | None = None,
    attempt: int | None = None,
    labels: Mapping[str, str] | None = None,
    export: Sequence[str] | str | None = None,
) -> str | None:
    """Starts recording in this process and returns the path of its file.

    Recording starts automatically with the first event. Call this in processes that torchrun did
    not start, and in forked children. If the directory can't be written to, a warning is logged.

    Args:
        directory: Where to write the file; FASTPLAN_ETT by default.
        rank: The rank of this process; torchrun's by default.
        world: The number of ranks; torchrun's by default.
        attempt: The number of restarts before this one; torchrun's by default.
        labels: What fleets of jobs are filtered by, such as `{"team": "ads"}`; those of `install`
            and of FASTPLAN_ETT_LABELS by default.
        export: Where figures go while the job runs, such as `["http:9400"]`; FASTPLAN_ETT_EXPORT by
            default.

    Returns:
        The path of the file; None without a writable directory.
    """
    global _active, _exports, _off, _imports
    stop()
    try:
        where = _where() if directory is None else os.fsdecode(directory)
        _off = where is None
        if where is None:
            return None
        identity = identify(
            rank=rank, world=world, attempt=attempt, labels=_labels if labels is None else labels
        )
        journal = Journal(where, identity)
    except (OSError, TypeError, ValueError) as error:
        warn("nothing is recorded: %s", error)
        _off = True
        return None
    _register_exit()
    _active = Recorder(journal, identity, watched=_watched)
    for begin, end in _imports:
        _active.add("imports", begin, end)
    _imports = []
    _exports = _start_exporters(_active.path, _export if export is None else export)
    return _active.path


def stop() -> None:
    """Ends recording cleanly, as the end of the process does."""
    global _active, _exports, _off
    recorder, _active = _active, None
    exports, _exports = _exports, None
    _off = True
    if recorder is not None:
        recorder.stop()
    if exports is not None:
        exports.stop()


def current() -> Recorder | None:
    """Returns the recorder, and starts it if recording is on."""
    global _starting
    if _active is None and not _off:
        with _lock:
            # A signal handler may get here while its own thread is starting the recorder.
            if _active is None and not (_off or _starting):
                _starting = True
                try:
                    start()
                finally:
                    _starting = False
    return _active


def set_directory(
    directory: str | os.PathLike[str] | None,
    labels: Mapping[str, str] | None = None,
    export: Sequence[str] | str | None = None,
) -> bool:
    """Sets where to record, before the first event.

    Args:
        directory: Where to write the file; None for FASTPLAN_ETT.
        labels: Labels of the job; None for those of the environment.
        export: Exporters; None for those of the environment.

    Returns:
        Whether recording is on. A directory that can't be used is logged as a warning.
    """
    global _directory, _export, _labels, _watched, _off
    if labels is not None:
        _labels = labels
    if export is not None:
        _export = export
    problem = None
    if directory is not None:
        try:
            _directory = os.fsdecode(directory)
        except TypeError as error:
            problem = str(error)
    if _active is None:
        where = _where()
        if where is not None and problem is None:
            problem = why_not_writable(where)
        if problem is not None:
            warn("nothing is recorded: %s", problem)
        _off = where is None or problem is not None
        _watched = time.monotonic_ns()
    return not _off


def imported(begin: int, end: int) -> None:
    """Records an import. It does not start recording, because helper processes import as well."""
    if end - begin < _SHORT_IMPORT:
        return
    if _active is not None:
        if end - begin >= _LONG_IMPORT or not _active.is_open():
            _active.add("imports", begin, end, background=_active.in_background())
    elif not _off and len(_imports) < _MOST_IMPORTS:
        _imports.append((begin, end))


class phase(Frame):
    """Records a block: `with ett.phase("publish"):`.

    Phases nest: the own time of a phase excludes the phases within it. A phase in a thread that is
    neither the main thread nor the one that trains is in the background: it is shown, but no rank
    waits for it. Arguments never cause an error: a value that is not JSON is written as text, and
    long ones are cut off. Of short phases, the first 1000 keep their details; the others are added
    up by name.

    Args:
        name: A name of `fastplan.ett.phases`, or your own, which is shown unchanged.
        **more: Details that are stored with the phase.
    """

    __slots__ = ()

    def __init__(self, name: str | None = None, /, **more: Any) -> None:
        # A detail may be called `name` as well. Without a positional name, it is the phase's.
        given = more.pop("name", "") if name is None else name
        usable = type(given) is str and len(given) <= _LONGEST_NAME
        self.name = given if usable else to_text(given, _LONGEST_NAME)
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
    """Records the end of step `number`.

    Args:
        number: Numbers must continue across restarts, because they show which work was lost.
    """
    recorder = _active or current()
    if recorder is not None:
        recorder.step(number)


def checkpoint(step: int) -> None:
    """Records a checkpoint: a restart continues after this step.

    With hooks installed, saves of torch.distributed.checkpoint are recorded automatically.

    Args:
        step: The last step that the checkpoint includes.
    """
    recorder = _active or current()
    if recorder is not None:
        recorder.checkpoint(step)


def failure(cause: str) -> None:
    """Records a failure. With hooks installed, an uncaught exception is recorded automatically.

    Args:
        cause: A short description, which reports show.
    """
    recorder = _active or current()
    if recorder is not None:
        recorder.failure(cause)


def _start_exporters(path: str, wanted: Any) -> ExportThread | None:
    if wanted is None and not os.environ.get("FASTPLAN_ETT_EXPORT"):
        return None  # what exports is not even imported
    from fastplan.ett.exporters.thread import start_exporters

    return start_exporters(path, wanted)


def _where() -> str | None:
    found = _directory or os.environ.get(DIRECTORY, "")
    return None if found in ("", "0") else found


def _register_exit() -> None:
    """Ends recording with the process, but not with a forked child."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_reset_after_fork)


def _reset_after_fork() -> None:
    """Stops recording in a forked child, which must not write to its parent's file.

    `start()` creates another file for the child.
    """
    global _active, _exports, _off, _imports, _lock, _starting
    if _active is not None:
        _active.abandon()
    _active, _exports, _off, _imports = None, None, True, []
    _lock, _starting = threading.RLock(), False
