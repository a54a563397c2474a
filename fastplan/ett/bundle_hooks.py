"""Start bundles: reading plans and compiled code from one, and leaving them in one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fastplan.ett.patching import Hook

if TYPE_CHECKING:
    from fastplan.ett.hooks import Hooks

_ROOM = "fastplan.bundle"


def hooks(hooks: Hooks) -> dict[str, Hook]:
    """The hooks by the module that they are for."""

    def bundle(module: Any) -> None:
        for method in ("copy_to_cache", "load_artifacts"):
            hooks.patches.attribute(module.Bundle, method, hooks.around("bundle"))

    def starting(module: Any) -> None:
        hooks.patches.attribute(module.Start, "__init__", lambda init: _around_start(hooks, init))
        hooks.patches.attribute(module.Start, "save", hooks.around("bundle_save"))

    return {f"{_ROOM}.bundle": bundle, f"{_ROOM}.starting": starting}


def _around_start(hooks: Hooks, init: Any) -> Any:
    """A start from a bundle, with how much of it could be used."""

    @functools.wraps(init)
    def call(start: Any, *args: Any, **kwargs: Any) -> None:
        with hooks.phase("bundle") as (recorder, frame):
            init(start, *args, **kwargs)
            if recorder is not None:
                taken = ("plans", "artifacts", "kernels")
                with recorder.guard():  # a subclass may have none of them
                    frame.more = {name: getattr(start, name) for name in taken}

    return call
