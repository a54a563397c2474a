"""Makes TorchRec's own defaults use fastplan's planner, for code that one does not own."""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType

from torchrec.distributed.planner import planners

from fastplan.bridge.planner import EmbeddingShardingPlanner
from fastplan.bridge.replacement import Replacement, put_back, replace_all

_NAME = "EmbeddingShardingPlanner"
# Where TorchRec makes a planner of its own when it is given none, and where others import it from.
_DEFAULTS = (
    "torchrec.distributed.planner",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.shard",
    "torchrec.inference.modules",
)


class Patch:
    """A patch in place. Leaving its `with` block, or `undo()`, takes it back."""

    def __init__(self, *, init: bool = False) -> None:
        self._changed: list[ModuleType] = []
        self._replaced = replace_all(_start_functions()) if init else []
        stock = planners.EmbeddingShardingPlanner
        for name, module in list(sys.modules.items()):
            if name == planners.__name__ or name.partition(".")[0] != "torchrec":
                continue
            if vars(module).get(_NAME) is stock:
                setattr(module, _NAME, EmbeddingShardingPlanner)
                self._changed.append(module)

    def undo(self) -> None:
        """Gives TorchRec back what this patch replaced."""
        for module in self._changed:
            setattr(module, _NAME, planners.EmbeddingShardingPlanner)
        self._changed.clear()
        put_back(self._replaced)
        self._replaced.clear()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def _start_functions() -> tuple[Replacement, ...]:
    # Knows parts of torch that may not be there, so it is imported only when asked for.
    from fastplan.bridge.fast_start import REPLACEMENTS

    return REPLACEMENTS


def patch(*, init: bool = False) -> Patch:
    """From now on DistributedModelParallel, `shard` and inference plan with fastplan by default.

    So does code that imports EmbeddingShardingPlanner from `torchrec.distributed.planner` after
    this call. Works as a context manager too: `with fastplan.patch(): ...`. Set FASTPLAN_PATCH=1
    to have `import fastplan` do it.

    With `init` (FASTPLAN_PATCH=init), the functions that docs/initialisation.md lists are replaced
    too, and DistributedModelParallel starts faster with the same result. Raises PatchRefused, with
    nothing replaced, when one of them is not the function that fastplan knows.
    """
    from importlib import import_module

    for name in _DEFAULTS:
        import_module(name)
    return Patch(init=init)
