"""Records the standard phases of a job by wrapping the functions that run them.

A module is patched after the job has imported it; nothing here imports torch or TorchRec.
`uninstall()` restores everything that was replaced. `library_hooks` has the hooks themselves.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

from fastplan.ett import recording
from fastplan.ett.events import Frame, to_text
from fastplan.ett.library_hooks import library_hooks
from fastplan.ett.recorder import Recorder
from fastplan.model.log import escaped_logger

Hook = Callable[[Any], None]  # receives the module, or a stand-in for it in tests

logger = escaped_logger(__name__)

# Python creates these loaders for one module each, so replacing a method affects only that module.
_LOADERS_OF_ONE_MODULE = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)

_installed: Hooks | None = None
_lock = threading.RLock()  # installing may import a module that installs


def install(
    directory: str | os.PathLike[str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    export: Sequence[str] | str | None = None,
) -> bool:
    """Starts recording the standard phases, which `fastplan.ett.phases` lists.

    Call it before other imports, so that imports are recorded as such. Calling it again changes
    nothing.

    Args:
        directory: Where to write the file of this process; FASTPLAN_ETT by default. If it can't be
            written to, a warning is logged and nothing is recorded.
        labels: What fleets of jobs are filtered by, such as `{"team": "ads"}`. They win over
            FASTPLAN_ETT_LABELS.
        export: Where figures go while the job runs: `textfile:DIR`, `http:PORT` and `otlp:URL`;
            those of FASTPLAN_ETT_EXPORT by default.

    Returns:
        Whether recording is on.
    """
    global _installed
    if not recording.set_directory(directory, labels, export):
        return False
    with _lock:
        if _installed is None:
            _installed = Hooks()
    return True


def uninstall() -> None:
    """Restores everything that `install()` replaced. Recording itself continues."""
    global _installed
    with _lock:
        if _installed is not None:
            _installed.undo()
            _installed = None


class Hooks:
    """The hooks while they are installed."""

    def __init__(self) -> None:
        self.patches = Patches()
        self._watch = ImportWatch(library_hooks(self), recording.imported)
        self._watch.start()
        self.patches.attribute(sys, "excepthook", self._record_exceptions)

    def undo(self) -> None:
        """Restores everything."""
        self._watch.stop()
        self.patches.undo()

    def recorder(self) -> Recorder | None:
        """Returns the recorder; None if recording is off."""
        return recording.current() if self.patches.on else None

    @contextmanager
    def phase(self, name: str) -> Iterator[tuple[Recorder | None, Frame]]:
        """Records a block, unless it is within a phase of the same name."""
        frame = Frame(name)
        recorder = self.recorder()
        if recorder is not None and recorder.is_open(name):
            recorder = None
        if recorder is None:
            yield None, frame
            return
        recorder.begin(frame, announce=True)
        try:
            yield recorder, frame
        finally:
            recorder.end(frame)

    def around(
        self, name: str, after: Callable[[Recorder], None] | None = None
    ) -> Callable[[Any], Any]:
        """Returns a wrapper that records calls of a function as a phase.

        Args:
            name: The phase.
            after: Records more after the function has returned.
        """

        def replace(function: Any) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self.phase(name) as (recorder, _):
                    result = function(*args, **kwargs)
                if recorder is not None and after is not None:
                    with recorder.guard():
                        after(recorder)
                return result

            return call

        return replace

    def _record_exceptions(self, before: Any) -> Any:
        @functools.wraps(before)
        def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            if self.patches.on and not issubclass(kind, KeyboardInterrupt):
                recording.failure(f"{kind.__name__}: {to_text(error)}")
            before(kind, error, traceback)

        return hook


class Patches:
    """Attributes that were replaced, and their earlier values."""

    def __init__(self) -> None:
        self.on = True
        self._changes: list[tuple[Any, str, Any, Any, bool]] = []
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, replace: Callable[[Any], Any]) -> None:
        """Replaces an attribute that `owner` itself defines, such as a method of a class."""
        if name in vars(owner):
            self._change(owner, name, replace(vars(owner)[name]), everywhere=False)

    def function(self, module: Any, name: str, replace: Callable[[Any], Any]) -> None:
        """Replaces a function in its module, and in all modules that imported it by this name."""
        if hasattr(module, name):
            self._change(module, name, replace(getattr(module, name)), everywhere=True)

    def on_undo(self, undo: Callable[[], None]) -> None:
        """Adds a function that `undo()` calls."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Restores everything in reverse order, except what other code has replaced since."""
        self.on = False
        for undo in reversed(self._undo):
            undo()
        for owner, name, before, after, everywhere in reversed(self._changes):
            if vars(owner).get(name) is after:
                setattr(owner, name, before)
            if everywhere:
                _rebind(name, after, before)
        self._changes.clear()
        self._undo.clear()

    def _change(self, owner: Any, name: str, after: Any, *, everywhere: bool) -> None:
        before = vars(owner)[name]
        setattr(owner, name, after)
        if everywhere:
            _rebind(name, before, after)
        self._changes.append((owner, name, before, after, everywhere))


def _rebind(name: str, before: Any, after: Any) -> None:
    for module in list(sys.modules.values()):
        # Some modules compute their attributes, or don't allow reading them.
        names = getattr(module, "__dict__", None) if isinstance(module, ModuleType) else None
        if names is not None and names.get(name) is before:
            setattr(module, name, after)


class ImportWatch(MetaPathFinder):
    """Runs hooks after the import of their modules, and times imports that are not nested.

    It ignores modules that are not loaded from files: install hooks after importing those.

    Args:
        hooks: Hooks by the full name of their module.
        record: Receives begin and end of an import in nanoseconds.
    """

    def __init__(self, hooks: dict[str, Hook], record: Callable[[int, int], None]) -> None:
        self._hooks = dict(hooks)
        self._record = record
        self._local = threading.local()

    def start(self) -> None:
        """Runs the hooks of modules that are imported already, and waits for the others."""
        sys.meta_path.insert(0, self)
        for name in list(self._hooks):
            if name in sys.modules:
                self._run(name, sys.modules[name])

    def stop(self) -> None:
        """Runs no more hooks, not even for a module that is being imported right now."""
        self._hooks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of the other finders, with a loader that runs the hook."""
        local = self._local
        inner = getattr(local, "depth", 0)
        if getattr(local, "busy", False) or (inner and fullname not in self._hooks):
            return None
        local.busy = True
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            found = (finder.find_spec(fullname, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            local.busy = False
        if spec is not None and isinstance(spec.loader, _LOADERS_OF_ONE_MODULE):
            self._wrap_loader(fullname, spec.loader)
        return spec

    def _wrap_loader(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            depth = getattr(self._local, "depth", 0)
            self._local.depth = depth + 1
            begin = time.monotonic_ns()
            try:
                execute(module)
            finally:
                self._local.depth = depth
                if depth == 0:
                    self._record(begin, time.monotonic_ns())
            self._run(name, module)

        loader.exec_module = exec_module

    def _run(self, name: str, module: ModuleType) -> None:
        hook = self._hooks.pop(name, None)
        if hook is not None:
            try:
                hook(module)
            except Exception as error:  # a release without these functions must stay importable
                logger.warning("fastplan.ett: %s is not recorded: %r", name, error)
