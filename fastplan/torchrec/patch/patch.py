"""Makes TorchRec's own defaults use fastplan's planner, for code that one does not own."""

from __future__ import annotations

from types import TracebackType

from torchrec.distributed.planner import planners

from fastplan.torchrec.patch.replacement import Replacement, replace_all
from fastplan.torchrec.patch.stand_in import StandIn, lock
from fastplan.torchrec.planner import EmbeddingShardingPlanner

# Where TorchRec makes a planner of its own when it is given none, and where others import it from.
_DEFAULTS = (
    "torchrec.distributed.planner",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.shard",
    "torchrec.inference.modules",
)


_planner: StandIn | None = None


class Patch:
    """A patch in place. Leaving its `with` block, or `undo()`, takes it back."""

    def __init__(self, *, init: bool = False) -> None:
        self._wants = replace_all(_start_functions()) if init else []
        with lock:
            planner = _planner_stand_in()
            planner.take()
        self._wants.append(planner)

    def undo(self) -> None:
        """Gives TorchRec back what this patch replaced, unless another patch still wants it."""
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


def _planner_stand_in() -> StandIn:
    global _planner
    if _planner is None or _planner.patches == 0:
        stock = planners.EmbeddingShardingPlanner
        _planner = StandIn("EmbeddingShardingPlanner", stock, "torchrec", without=planners)
        _planner.ours = EmbeddingShardingPlanner
    return _planner


def _start_functions() -> tuple[Replacement, ...]:
    # Knows parts of torch that may not be there, so it is imported only when asked for.
    from fastplan.torchrec.patch.fast_start import REPLACEMENTS

    return REPLACEMENTS


def patch(*, init: bool = False) -> Patch:
    """From now on DistributedModelParallel, `shard` and inference plan with fastplan by default.

    So does code that imports EmbeddingShardingPlanner from `torchrec.distributed.planner` after
    this call. Works as a context manager too: `with fastplan.patch(): ...`. Set FASTPLAN_PATCH=1
    to have `import fastplan` do it. Patches may overlap, in threads too: the last one to be undone
    gives TorchRec its own back. What somebody else has replaced since stays.

    With `init` (FASTPLAN_PATCH=init), the functions that docs/initialisation.md lists are replaced
    too, and DistributedModelParallel starts faster with the same result. Raises PatchRefused, with
    nothing replaced, when one of them is not the function that fastplan knows.
    """
    from importlib import import_module

    for name in _DEFAULTS:
        import_module(name)
    return Patch(init=init)
