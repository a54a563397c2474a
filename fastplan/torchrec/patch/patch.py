"""Makes TorchRec's defaults use fastplan's planner, for code that you can't change."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NamedTuple

from torchrec.distributed.planner import planners

from fastplan.model.log import escaped_logger
from fastplan.torchrec.patch.late_imports import LateImports
from fastplan.torchrec.patch.substitutes import (
    Applied,
    Substitute,
    import_or_reason,
    lock,
    replace_known,
)
from fastplan.torchrec.planner import EmbeddingShardingPlanner

logger = escaped_logger(__name__)

_NAME = "EmbeddingShardingPlanner"
# Where TorchRec creates a default planner, and where other code imports it from. Inference reads it
# from the first one.
_DEFAULTS = (
    "torchrec.distributed.planner",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.shard",
)


class _PlannerPatch(NamedTuple):
    """The planner's substitute, and the hook that applies it to modules imported later."""

    substitute: Substitute
    late_imports: LateImports

    def take(self) -> None:
        self.late_imports.start()
        self.substitute.take()

    def release(self) -> None:
        self.substitute.release()
        if self.substitute.patches == 0:
            self.late_imports.stop()


_planner: _PlannerPatch | None = None
_logged: set[tuple[str, str]] = set()


class Patch:
    """An active patch. Leaving its `with` block, or `undo()`, removes it.

    Attributes:
        applied: the names of what is replaced. Modules of TorchRec that are imported later get
            fastplan's planner too.
        skipped: why something that the patch would replace is not replaced, by name: the installed
            version lacks it, its source is unknown, or other code has replaced it.
    """

    def __init__(self, *, init: bool = False) -> None:
        missing = {name: import_or_reason(name) for name in _DEFAULTS}
        functions = _replace_init_functions() if init else Applied({}, {})
        with lock:
            planner = _planner_patch()
            planner.take()
            defaults = {
                f"{name}.{_NAME}": reason or _why_not_ours(planner.substitute, name)
                for name, reason in missing.items()
            }
        self._wants: list[Substitute | _PlannerPatch] = [*functions.substitutes.values(), planner]
        kept = {name: reason for name, reason in defaults.items() if reason is not None}
        self.applied = (*(name for name in defaults if name not in kept), *functions.substitutes)
        self.skipped = {**kept, **functions.skipped}
        for each in self.skipped.items():
            _log_once(*each)

    def undo(self) -> None:
        """Restores what this patch replaced, unless another patch still needs it."""
        with lock:
            wants, self._wants = self._wants, []
            for stand_in in wants:
                stand_in.release()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def patch(*, init: bool = False) -> Patch:
    """Makes DistributedModelParallel, `shard` and inference use fastplan's planner by default.

    Modules of TorchRec that are imported later use it too, such as the planner API of TorchRec
    1.9 and its dry run, and so does code that imports EmbeddingShardingPlanner from
    `torchrec.distributed.planner` after this call. `torchrec.distributed.planner.planners` keeps
    TorchRec's class. The result is a context manager: `with fastplan.patch(): ...`. With
    FASTPLAN_PATCH=1, `import fastplan` calls this. Patches may overlap, also in threads: the stock
    functions are restored when the last one is undone. Replacements by other code stay.

    What the installed TorchRec and torch don't have, or have with other source, is skipped:
    `skipped` of the result has the reasons, and each is logged once at level WARNING.

    Args:
        init: also replace the functions that docs/initialisation.md lists, so that
            DistributedModelParallel starts faster with the same result (FASTPLAN_PATCH=init).
    """
    return Patch(init=init)


def _planner_patch() -> _PlannerPatch:
    global _planner
    if _planner is None or _planner.substitute.patches == 0:
        stock = planners.EmbeddingShardingPlanner
        made = Substitute(_NAME, stock, "torchrec", without=planners)
        made.ours = EmbeddingShardingPlanner
        _planner = _PlannerPatch(made, LateImports("torchrec", made.settle))
    return _planner


def _why_not_ours(planner: Substitute, module: str) -> str | None:
    """Returns why a module does not use fastplan's planner."""
    place = sys.modules.get(module)
    if planner.is_in(place):
        return None
    found = vars(place).get(_NAME) if place is not None else None
    if found is None:
        return f"{module} has no {_NAME}"
    return f"other code has replaced it by {found!r}"


def _replace_init_functions() -> Applied:
    # Imported on demand, because it needs parts of torch that may be missing.
    module = "fastplan.torchrec.patch.fast_start"
    if reason := import_or_reason(module):
        return Applied({}, {module: reason})
    from fastplan.torchrec.patch.fast_start import REPLACEMENTS

    return replace_known(REPLACEMENTS)


def _log_once(name: str, reason: str) -> None:
    with lock:
        is_new = (name, reason) not in _logged
        _logged.add((name, reason))
    if is_new:
        logger.warning("fastplan.patch() leaves %s as it is: %s", name, reason)
