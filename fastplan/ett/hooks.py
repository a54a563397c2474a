"""Records the stock phases of a job by itself, through the functions that they go through.

Nothing here imports torch or TorchRec: a module is hooked once the job has imported it. Everything
that is replaced is put back by `uninstall()`.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastplan.ett import bundle_hooks, checkpoint_hooks, planner_hooks, recording
from fastplan.ett.frames import Frame
from fastplan.ett.patching import Hook, ImportWatch, Patches
from fastplan.ett.recorder import Recorder
from fastplan.ett.values import shown

_installed: Hooks | None = None
_lock = threading.RLock()  # installing may import what installs


def install(directory: str | os.PathLike[str] | None = None) -> bool:
    """From now on records the stock phases; False if recording is off.

    The directory is FASTPLAN_ETT unless it is given; one that can't be written to costs a warning,
    and is as good as none. The earlier the call, the better imports are
    told apart from what follows; before anything else is imported, it costs nothing. The phases
    are those of `fastplan.ett.names`. Calling it again changes nothing.
    """
    global _installed
    if not recording.watch(directory):
        return False
    with _lock:
        if _installed is None:
            _installed = Hooks()
    return True


def uninstall() -> None:
    """Puts back everything that `install()` has replaced. The record itself goes on."""
    global _installed
    with _lock:
        if _installed is not None:
            _installed.undo()
            _installed = None


class Hooks:
    """The hooks while they are in place."""

    def __init__(self) -> None:
        self.patches = Patches()
        self._watch = ImportWatch(self._all(), recording.imported)
        self._watch.start()
        self.patches.attribute(sys, "excepthook", self._failing)

    def undo(self) -> None:
        self._watch.stop()
        self.patches.undo()

    def _all(self) -> dict[str, Hook]:
        return {
            "torch.distributed.distributed_c10d": self._process_group,
            "torch.optim.optimizer": self._optimizer,
            "torch._dynamo": self._compiling,
            "torchrec.modules.embedding_modules": self._model,
            "torchrec.distributed.model_parallel": self._model_parallel,
            **planner_hooks.hooks(self),
            **checkpoint_hooks.hooks(self),
            **bundle_hooks.hooks(self),
        }

    def recorder(self) -> Recorder | None:
        """Where to record, if anything still is."""
        return recording.current() if self.patches.on else None

    @contextmanager
    def phase(self, name: str) -> Iterator[tuple[Recorder | None, Frame]]:
        """Records a block, unless it is within a phase of the same name already."""
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
        """Makes calls of a function a phase; `after` may record more when it has returned."""

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

    def _failing(self, before: Any) -> Any:
        @functools.wraps(before)
        def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            if self.patches.on and not issubclass(kind, KeyboardInterrupt):
                recording.failure(f"{kind.__name__}: {shown(error)}")
            before(kind, error, traceback)

        return hook

    def _process_group(self, module: Any) -> None:
        def identify(recorder: Recorder) -> None:
            recorder.identify(module.get_rank(), module.get_world_size())

        self.patches.function(module, "init_process_group", self.around("process_group", identify))

    def _optimizer(self, module: Any) -> None:
        self.patches.attribute(module.Optimizer, "__init__", self.around("optimizer"))

    def _model(self, module: Any) -> None:
        for owner in (module.EmbeddingBagCollection, module.EmbeddingCollection):
            self.patches.attribute(owner, "__init__", self.around("model_build"))

    def _model_parallel(self, module: Any) -> None:
        base = module.DistributedModelParallel
        owners = [base, *(c for c in vars(module).values() if _is_below(c, base))]
        for owner in owners:
            self.patches.attribute(owner, "__init__", self.around("dmp"))
            self.patches.attribute(owner, "_init_dmp", self.around("shard"))
            self.patches.attribute(owner, "_init_optim", self.around("fused_optimizer"))
            self.patches.attribute(owner, "init_data_parallel", self.around("data_parallel"))
        self.patches.attribute(base, "forward", self._first_batch)

    def _first_batch(self, forward: Any) -> Any:
        """Marks the first call. A compiler that traces it sees nothing but the call."""
        is_compiling = sys.modules["torch"].compiler.is_compiling

        @functools.wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                recorder = self.recorder()
                if recorder is not None:
                    recorder.first_batch()
            return forward(*args, **kwargs)

        return call

    def _compiling(self, module: Any) -> None:
        """Compilations, by the callbacks that torch._dynamo offers for them."""
        handler = module.callback_handler
        compilations: list[tuple[Recorder, Frame]] = []

        def begin(about: Any = None) -> None:
            recorder = self.recorder()
            if recorder is not None:
                told = shown(getattr(about, "compile_id", ""))
                frame = Frame("recompile" if is_recompile(told) else "compile", {"id": told})
                compilations.append((recorder, frame))
                recorder.begin(frame, announce=True)

        def end(about: Any = None) -> None:
            if compilations:
                recorder, frame = compilations.pop()
                recorder.end(frame)

        def register() -> None:
            handler.register_start_callback(begin)
            handler.register_end_callback(end)

        def remove() -> None:
            if begin in handler.start_callbacks:
                handler.remove_start_callback(begin)
            if end in handler.end_callbacks:
                handler.remove_end_callback(end)

        def after_reset(reset: Any) -> Any:
            @functools.wraps(reset)
            def call(*args: Any, **kwargs: Any) -> Any:
                result = reset(*args, **kwargs)  # drops all callbacks
                if self.patches.on:
                    remove()
                    register()
                return result

            return call

        register()
        self.patches.later(remove)
        self.patches.function(module, "reset", after_reset)


def is_recompile(compile_id: str) -> bool:
    """Whether a frame is compiled for another time: 3/0 is the first of the fourth frame."""
    again = compile_id.rpartition("/")[2].partition("_")[0]
    return again.isdigit() and int(again) > 0


def _is_below(thing: Any, base: type) -> bool:
    return isinstance(thing, type) and issubclass(thing, base) and thing is not base
