"""Checkpoints through torch.distributed.checkpoint: saving, staging, uploading, restoring."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from fastplan.ett.patching import Hook
from fastplan.ett.recorder import Recorder

if TYPE_CHECKING:
    from fastplan.ett.hooks import Hooks

_ROOM = "torch.distributed.checkpoint"


def hooks(hooks: Hooks) -> dict[str, Hook]:
    """The hooks by the module that they are for."""

    def saver(module: Any) -> None:
        hooks.patches.function(module, "save", lambda save: _around_save(hooks, save))
        hooks.patches.function(module, "async_save", lambda save: _around_async_save(hooks, save))

    def loader(module: Any) -> None:
        hooks.patches.function(module, "load", hooks.around("restore"))

    return {f"{_ROOM}.state_dict_saver": saver, f"{_ROOM}.state_dict_loader": loader}


def _around_save(hooks: Hooks, save: Any) -> Any:
    """A save counts as a checkpoint of the step that ended last."""

    @functools.wraps(save)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = hooks.recorder()
        if recorder is None or recorder.in_background():
            return save(*args, **kwargs)  # the upload of an asynchronous save, recorded as such
        step = recorder.last_step
        with hooks.phase("checkpoint_save"):
            result = save(*args, **kwargs)
        if step is not None:
            recorder.checkpoint(step)
        return result

    return call


def _around_async_save(hooks: Hooks, save: Any) -> Any:
    """Staging holds training up; the upload does not, and is a checkpoint only when it is over."""

    @functools.wraps(save)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = hooks.recorder()
        if recorder is None:
            return save(*args, **kwargs)
        step = recorder.last_step
        with hooks.phase("checkpoint_stage"):
            result = save(*args, **kwargs)
        with recorder.guard():
            _follow(recorder, getattr(result, "upload_completion", result), step)
        return result

    return call


def _follow(recorder: Recorder, upload: Any, step: int | None) -> None:
    begin = time.monotonic_ns()

    def done(future: Any) -> None:
        recorder.add("checkpoint_upload", begin, time.monotonic_ns(), background=True)
        if step is not None and not future.cancelled() and future.exception() is None:
            recorder.checkpoint(step)

    upload.add_done_callback(done)
