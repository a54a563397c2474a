"""Planning: TorchRec's planners and fastplan's, with the phases inside them."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastplan.ett.patching import Hook

if TYPE_CHECKING:
    from fastplan.ett.hooks import Hooks

_ROOM = "torchrec.distributed.planner"
# What TorchRec's own planner does, by module: the method, and what fastplan's planner calls it.
_STOCK_PARTS = {
    f"{_ROOM}.storage_reservations": ("reserve", "reserve"),
    f"{_ROOM}.enumerators": ("enumerate", "enumerate"),
    f"{_ROOM}.partitioners": ("partition", "search"),
    f"{_ROOM}.stats": ("log", "stats"),
}


class _Planning(threading.local):
    """What a thread's plan() does at the moment."""

    seconds: dict[str, float] | None = None
    in_part = False
    planned = False


def hooks(hooks: Hooks) -> dict[str, Hook]:
    """The hooks by the module that they are for."""
    planning = _Planning()

    def planner(module: Any) -> None:
        for owner in vars(module).values():
            if isinstance(owner, type) and owner.__module__ == module.__name__:
                hooks.patches.attribute(owner, "plan", _around_plan(hooks, planning))
                together = _around_collective_plan(hooks, planning)
                hooks.patches.attribute(owner, "collective_plan", together)

    def stock_planner(module: Any) -> None:
        planner(module)
        hooks.patches.function(module, "to_sharding_plan", _part(planning, "build"))

    def part(method: str, name: str) -> Hook:
        def hook(module: Any) -> None:
            for owner in vars(module).values():
                if isinstance(owner, type) and owner.__module__ == module.__name__:
                    hooks.patches.attribute(owner, method, _part(planning, name))

        return hook

    parts = {module: part(*names) for module, names in _STOCK_PARTS.items()}
    return {f"{_ROOM}.planners": stock_planner, "fastplan.torchrec.planner": planner, **parts}


def _around_plan(hooks: Hooks, planning: _Planning) -> Callable[[Any], Any]:
    def replace(plan: Any) -> Any:
        @functools.wraps(plan)
        def call(planner: Any, *args: Any, **kwargs: Any) -> Any:
            with hooks.phase("plan") as (recorder, frame):
                if recorder is None:
                    return plan(planner, *args, **kwargs)
                planning.seconds, planning.planned = {}, True
                try:
                    return plan(planner, *args, **kwargs)
                finally:
                    seconds, planning.seconds = planning.seconds, None
                    with recorder.guard():
                        frame.more = _told(planner, seconds or {})

        return call

    return replace


def _around_collective_plan(hooks: Hooks, planning: _Planning) -> Callable[[Any], Any]:
    """What is not planning in it is broadcast: sending, waiting for rank 0, rebuilding."""

    def replace(collective_plan: Any) -> Any:
        @functools.wraps(collective_plan)
        def call(planner: Any, *args: Any, **kwargs: Any) -> Any:
            with hooks.phase("broadcast") as (recorder, frame):
                planning.planned = False
                result = collective_plan(planner, *args, **kwargs)
                if recorder is not None and not planning.planned:
                    with recorder.guard():
                        frame.more = _told(planner, {})
            return result

        return call

    return replace


def _part(planning: _Planning, name: str) -> Callable[[Any], Any]:
    def replace(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            seconds = planning.seconds
            if seconds is None or planning.in_part:
                return function(*args, **kwargs)
            planning.in_part = True
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                planning.in_part = False
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin

        return call

    return replace


def _told(planner: Any, stock: dict[str, float]) -> dict[str, Any] | None:
    """The planner's own account where it has one, else what was seen of TorchRec's parts."""
    run = getattr(planner, "last_run", None)
    if run is None:
        return {"engine": "torchrec", "parts": stock} if stock else None
    parts = {name: s for name, s in run.seconds.items() if name not in ("total", "torchrec")}
    if "torchrec" in run.seconds:
        parts = {**stock, **parts}
    return {"engine": run.engine, "cache": run.cache.status, "parts": parts}
