"""Makes TorchRec's defaults use fastplan's planner, for code that you can't change."""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from types import TracebackType
from typing import Any

from torchrec.distributed.planner import planners

from fastplan.torchrec.planner import EmbeddingShardingPlanner

# Where TorchRec creates a default planner, and where other code imports it from.
_DEFAULTS = (
    "torchrec.distributed.planner",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.shard",
    "torchrec.inference.modules",
)


_planner: Substitute | None = None


class Patch:
    """An active patch. Leaving its `with` block, or `undo()`, removes it."""

    def __init__(self, *, init: bool = False) -> None:
        self._wants = replace_all(_init_replacements()) if init else []
        with lock:
            planner = _planner_stand_in()
            planner.take()
        self._wants.append(planner)

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


def _planner_stand_in() -> Substitute:
    global _planner
    if _planner is None or _planner.patches == 0:
        stock = planners.EmbeddingShardingPlanner
        _planner = Substitute("EmbeddingShardingPlanner", stock, "torchrec", without=planners)
        _planner.ours = EmbeddingShardingPlanner
    return _planner


def _init_replacements() -> tuple[Replacement, ...]:
    # Imported on demand, because it needs parts of torch that may be missing.
    from fastplan.torchrec.patch.fast_start import REPLACEMENTS

    return REPLACEMENTS


def patch(*, init: bool = False) -> Patch:
    """Makes DistributedModelParallel, `shard` and inference use fastplan's planner by default.



    Code that imports EmbeddingShardingPlanner from `torchrec.distributed.planner` after this call
    also uses it. The result is a context manager: `with fastplan.patch(): ...`. With
    FASTPLAN_PATCH=1, `import fastplan` calls this. Patches may overlap, also in threads: the stock
    functions are restored when the last one is undone. Replacements by other code stay.

    Args:
        init: also replace the functions that docs/initialisation.md lists, so that
            DistributedModelParallel starts faster with the same result (FASTPLAN_PATCH=init).

    Raises:
        PatchRefused: one of them is not the function that fastplan knows. Nothing is replaced.
    """
    from importlib import import_module

    for name in _DEFAULTS:
        import_module(name)
    return Patch(init=init)


_stand_ins: dict[str, Substitute] = {}  # by the name of the replaced function, active or not


class PatchRefused(RuntimeError):
    """A function to replace has a different source than the replacement was written for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """A stock function, the factory of its replacement, and the source that it is valid for."""

    module: str
    function: str  # the name in the module, or Class.method
    make: Callable[[Any], Any]  # stock function in, replacement out
    relies_on: tuple[str, ...] = ()  # other names of the module whose source must also match
    may_be_wrapped: bool = False  # by other code, which then sees the same calls
    digest: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"

    def check(self) -> None:
        """Raises PatchRefused unless the stock function exists and has the known source."""
        found = self._digest()
        if found == self.digest:
            return
        what = "does not exist" if found is None else f"has different source ({found})"
        raise PatchRefused(
            f"{self.name} {what}: fastplan's replacement is for source {self.digest} only, and "
            "replaced nothing. Call fastplan.patch() without `init`, or install the versions that "
            "docs/initialisation.md names."
        )

    def stand_in(self) -> Substitute:
        """The replacement function."""
        holder, name = self._holder(self.function)
        found = getattr(holder, name)
        known = _stand_ins.get(self.name)
        if known is not None and (found is known.stock or is_below(known.ours, found)):
            return known
        made = Substitute(name, found, self.module.partition(".")[0], owner=holder)
        made.ours = faster_function(made, self.make(found))
        _stand_ins[self.name] = made
        return made

    def _holder(self, function: str) -> tuple[Any, str]:
        holder: Any = import_module(self.module)
        *classes, name = function.split(".")
        for part in classes:
            holder = getattr(holder, part)
        return holder, name

    def _digest(self) -> str | None:
        digest = hashlib.blake2b(digest_size=8)
        for function in (self.function, *self.relies_on):
            try:
                source = self._source(self._stock(getattr(*self._holder(function))))
            except (AttributeError, ImportError, OSError, TypeError):
                return None
            digest.update(source.encode())
        return digest.hexdigest()

    def _stock(self, found: Any) -> Any:
        known = _stand_ins.get(self.name)
        return known.stock if known is not None and found is known.ours else found

    def _source(self, found: Any) -> str:
        # For a wrapper, `inspect` returns the source of the wrapped function.
        return inspect.getsource(
            found if self.may_be_wrapped else getattr(found, "__code__", found)
        )


def replace_all(replacements: tuple[Replacement, ...]) -> list[Substitute]:
    """Applies all of them, or raises PatchRefused before any. Release each one once."""
    for replacement in replacements:  # before the lock: an import may also patch
        with suppress(ImportError):
            import_module(replacement.module)
    with lock:
        for replacement in replacements:
            replacement.check()
        found = [replacement.stand_in() for replacement in replacements]
        for stand_in in found:
            stand_in.take()
        return found


# Held in all functions here, so that the number of patches can't change in between.
lock = threading.RLock()


class Substitute:
    """Replaces a stock object under its name in all modules of a package."""

    def __init__(
        self, name: str, stock: Any, package: str, *, owner: Any = None, without: Any = None
    ) -> None:
        self.name = name
        self.stock = stock
        self.ours: Any = None
        self.patches = 0  # number of active patches
        self._package = package
        self._owner = owner  # also has it: a class, or the module that defines it
        self._without = without  # the module that keeps the stock object
        self._kept: list[Any] = []  # places that had the replacement before

    def take(self) -> None:
        """Adds a patch. This also covers modules that were imported since the last patch."""
        if self.patches == 0:
            self._kept = [place for place in self._places() if self._held(place) is self.ours]
        self.patches += 1
        self._exchange(self.stock, self.ours)

    def release(self) -> None:
        """Removes a patch."""
        self.patches -= 1
        if self.patches == 0:
            self._exchange(self.ours, self.stock)
            self._kept = []

    def _exchange(self, before: Any, after: Any) -> None:
        for place in list(self._places()):
            if self._held(place) is before and not any(place is kept for kept in self._kept):
                setattr(place, self.name, after)

    def _held(self, place: Any) -> Any:
        # Some modules compute their attributes, and some entries of sys.modules are not modules.
        return getattr(place, "__dict__", {}).get(self.name)

    def _places(self) -> Iterator[Any]:
        if self._owner is not None:
            yield self._owner
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self._package and module is not self._without:
                yield module


def faster_function(stand_in: Substitute, faster: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that is the faster one while a patch is active, else the stock one.

    Other code may keep it or wrap it, also after the last patch is undone.
    """
    stock = stand_in.stock

    @wraps(stock)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (faster if stand_in.patches else stock)(*args, **kwargs)

    return call


def is_below(function: Any, above: Any) -> bool:
    """Whether the function is this one, or wraps it at any depth."""
    seen: set[int] = set()
    while above is not None and above is not function and id(above) not in seen:
        seen.add(id(above))
        above = getattr(above, "__wrapped__", None)
    return above is function
