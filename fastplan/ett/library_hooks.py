"""The hooks for torch, TorchRec and fastplan: which functions are recorded as which phases."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastplan.ett.events import Frame, to_text
from fastplan.ett.recorder import Recorder

if TYPE_CHECKING:
    from fastplan.ett.hooks import Hook, Hooks

_CHECKPOINT = "torch.distributed.checkpoint"
_PLANNER = "torchrec.distributed.planner"
# The parts of TorchRec's planner by module: the method, and the name of this part in fastplan.
_PLANNER_PARTS = {
    f"{_PLANNER}.storage_reservations": ("reserve", "reserve"),
    f"{_PLANNER}.enumerators": ("enumerate", "enumerate"),
    f"{_PLANNER}.partitioners": ("partition", "search"),
    f"{_PLANNER}.stats": ("log", "stats"),
}


def library_hooks(hooks: Hooks) -> dict[str, Hook]:
    """Returns all hooks by the full name of their module."""
    return {
        **_torch_hooks(hooks),
        **_model_hooks(hooks),
        **_planner_hooks(hooks),
        **_checkpoint_hooks(hooks),
        **_bundle_hooks(hooks),
    }


def _torch_hooks(hooks: Hooks) -> dict[str, Hook]:
    patches = hooks.patches

    def process_group(module: Any) -> None:
        def identify(recorder: Recorder) -> None:
            recorder.identify(module.get_rank(), module.get_world_size())

        patches.function(module, "init_process_group", hooks.around("process_group", identify))

    def optimizer(module: Any) -> None:
        patches.attribute(module.Optimizer, "__init__", hooks.around("optimizer"))

    return {
        "torch.distributed.distributed_c10d": process_group,
        "torch.optim.optimizer": optimizer,
        "torch._dynamo": lambda module: _record_compilations(hooks, module),
    }


def _record_compilations(hooks: Hooks, module: Any) -> None:
    """Records compilations, by the callbacks of torch._dynamo."""
    handler = module.callback_handler
    compilations: list[tuple[Recorder, Frame]] = []

    def begin(about: Any = None) -> None:
        recorder = hooks.recorder()
        if recorder is not None:
            number = to_text(getattr(about, "compile_id", ""))
            frame = Frame("recompile" if is_recompile(number) else "compile", {"id": number})
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
            result = reset(*args, **kwargs)  # removes all callbacks
            if hooks.patches.on:
                remove()
                register()
            return result

        return call

    register()
    hooks.patches.on_undo(remove)
    hooks.patches.function(module, "reset", after_reset)


def is_recompile(compile_id: str) -> bool:
    """Whether a frame was compiled before: 3/0 is the first compilation of frame 3, 3/1 is not."""
    again = compile_id.rpartition("/")[2].partition("_")[0]
    return again.isdigit() and int(again) > 0


def _model_hooks(hooks: Hooks) -> dict[str, Hook]:
    patches = hooks.patches

    def model(module: Any) -> None:
        for owner in (module.EmbeddingBagCollection, module.EmbeddingCollection):
            patches.attribute(owner, "__init__", hooks.around("model_build"))

    def model_parallel(module: Any) -> None:
        base = module.DistributedModelParallel
        classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, base)]
        for owner in dict.fromkeys([base, *classes]):
            patches.attribute(owner, "__init__", hooks.around("dmp"))
            patches.attribute(owner, "_init_dmp", hooks.around("shard"))
            patches.attribute(owner, "_init_optim", hooks.around("fused_optimizer"))
            patches.attribute(owner, "init_data_parallel", hooks.around("data_parallel"))
        patches.attribute(base, "forward", lambda forward: _record_first_batch(hooks, forward))

    return {
        "torchrec.modules.embedding_modules": model,
        "torchrec.distributed.model_parallel": model_parallel,
    }


def _record_first_batch(hooks: Hooks, forward: Any) -> Any:
    """Records the first call. A compiler that traces the wrapper sees only the call."""
    is_compiling = sys.modules["torch"].compiler.is_compiling

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            recorder = hooks.recorder()
            if recorder is not None:
                recorder.first_batch()
        return forward(*args, **kwargs)

    return call


class _PlanState(threading.local):
    """The running plan() of a thread."""

    seconds: dict[str, float] | None = None
    in_part = False
    planned = False


def _planner_hooks(hooks: Hooks) -> dict[str, Hook]:
    """Hooks for TorchRec's planners and fastplan's, and the parts of TorchRec's."""
    state = _PlanState()

    def planner(module: Any) -> None:
        for owner in _own_classes(module):
            hooks.patches.attribute(owner, "plan", _around_plan(hooks, state))
            together = _around_collective_plan(hooks, state)
            hooks.patches.attribute(owner, "collective_plan", together)

    def torchrec_planner(module: Any) -> None:
        planner(module)
        hooks.patches.function(module, "to_sharding_plan", _around_part(state, "build"))

    def part(method: str, name: str) -> Hook:
        def hook(module: Any) -> None:
            for owner in _own_classes(module):
                hooks.patches.attribute(owner, method, _around_part(state, name))

        return hook

    parts = {module: part(*names) for module, names in _PLANNER_PARTS.items()}
    fastplan_planner = {"fastplan.torchrec.planner": planner}
    return {f"{_PLANNER}.planners": torchrec_planner, **fastplan_planner, **parts}


def _own_classes(module: Any) -> list[type]:
    """The classes that a module defines."""
    found = vars(module).values()
    return [c for c in found if isinstance(c, type) and c.__module__ == module.__name__]


def _around_plan(hooks: Hooks, state: _PlanState) -> Callable[[Any], Any]:
    def replace(plan: Any) -> Any:
        @functools.wraps(plan)
        def call(planner: Any, *args: Any, **kwargs: Any) -> Any:
            with hooks.phase("plan") as (recorder, frame):
                if recorder is None:
                    return plan(planner, *args, **kwargs)
                state.seconds, state.planned = {}, True
                try:
                    return plan(planner, *args, **kwargs)
                finally:
                    seconds, state.seconds = state.seconds, None
                    with recorder.guard():
                        frame.more = _planner_times(planner, seconds or {})

        return call

    return replace


def _around_collective_plan(hooks: Hooks, state: _PlanState) -> Callable[[Any], Any]:
    """Records as broadcast what is not planning: sending, waiting for rank 0, rebuilding."""

    def replace(collective_plan: Any) -> Any:
        @functools.wraps(collective_plan)
        def call(planner: Any, *args: Any, **kwargs: Any) -> Any:
            with hooks.phase("broadcast") as (recorder, frame):
                state.planned = False
                result = collective_plan(planner, *args, **kwargs)
                if recorder is not None and not state.planned:
                    with recorder.guard():
                        frame.more = _planner_times(planner, {})
            return result

        return call

    return replace


def _around_part(state: _PlanState, name: str) -> Callable[[Any], Any]:
    def replace(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            seconds = state.seconds
            if seconds is None or state.in_part:
                return function(*args, **kwargs)
            state.in_part = True
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                state.in_part = False
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin

        return call

    return replace


def _planner_times(planner: Any, stock: dict[str, float]) -> dict[str, Any] | None:
    """The planner's own `last_run` if it has one, else the times of TorchRec's parts."""
    run = getattr(planner, "last_run", None)
    if run is None:
        return {"engine": "torchrec", "parts": stock} if stock else None
    parts = {name: s for name, s in run.seconds.items() if name not in ("total", "torchrec")}
    if "torchrec" in run.seconds:
        parts = {**stock, **parts}
    return {"engine": run.engine, "cache": run.cache.status, "parts": parts}


def _checkpoint_hooks(hooks: Hooks) -> dict[str, Hook]:
    """Hooks for torch.distributed.checkpoint: saving, staging, uploading, restoring."""

    def saver(module: Any) -> None:
        hooks.patches.function(module, "save", lambda save: _around_save(hooks, save))
        hooks.patches.function(module, "async_save", lambda save: _around_async_save(hooks, save))

    def loader(module: Any) -> None:
        hooks.patches.function(module, "load", hooks.around("restore"))

    return {f"{_CHECKPOINT}.state_dict_saver": saver, f"{_CHECKPOINT}.state_dict_loader": loader}


def _around_save(hooks: Hooks, save: Any) -> Any:
    """Records a save as a checkpoint of the last step."""

    @functools.wraps(save)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = hooks.recorder()
        if recorder is None or recorder.in_background():
            return save(*args, **kwargs)  # the upload of an asynchronous save, recorded there
        step = recorder.last_step
        with hooks.phase("checkpoint_save"):
            result = save(*args, **kwargs)
        if step is not None:
            recorder.checkpoint(step)
        return result

    return call


def _around_async_save(hooks: Hooks, save: Any) -> Any:
    """Records an asynchronous save: training waits for staging, but not for the upload.

    It is a checkpoint only when the upload has ended.
    """

    @functools.wraps(save)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = hooks.recorder()
        if recorder is None:
            return save(*args, **kwargs)
        step = recorder.last_step
        with hooks.phase("checkpoint_stage"):
            result = save(*args, **kwargs)
        with recorder.guard():
            _record_upload(recorder, getattr(result, "upload_completion", result), step)
        return result

    return call


def _record_upload(recorder: Recorder, upload: Any, step: int | None) -> None:
    begin = time.monotonic_ns()

    def done(future: Any) -> None:
        recorder.add("checkpoint_upload", begin, time.monotonic_ns(), background=True)
        if step is not None and not future.cancelled() and future.exception() is None:
            recorder.checkpoint(step)

    upload.add_done_callback(done)


def _bundle_hooks(hooks: Hooks) -> dict[str, Hook]:
    """Hooks for start bundles: reading plans and compiled code from one, and writing one."""

    def bundle(module: Any) -> None:
        for method in ("copy_to_cache", "load_artifacts"):
            hooks.patches.attribute(module.Bundle, method, hooks.around("bundle"))

    def starting(module: Any) -> None:
        hooks.patches.attribute(module.Start, "__init__", lambda init: _around_start(hooks, init))
        hooks.patches.attribute(module.Start, "save", hooks.around("bundle_save"))

    return {"fastplan.bundle.bundle": bundle, "fastplan.bundle.starting": starting}


def _around_start(hooks: Hooks, init: Any) -> Any:
    """Records a start from a bundle, and how much of the bundle was used."""

    @functools.wraps(init)
    def call(start: Any, *args: Any, **kwargs: Any) -> None:
        with hooks.phase("bundle") as (recorder, frame):
            init(start, *args, **kwargs)
            if recorder is not None:
                used = ("plans", "artifacts", "kernels")
                with recorder.guard():  # a subclass may lack them
                    frame.more = {name: getattr(start, name) for name in used}

    return call
