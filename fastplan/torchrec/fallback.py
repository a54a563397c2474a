"""TorchRec's own planner in place of the native one, with the reason.

This file and those that it imports need nothing of TorchRec but its planner class, so that a
planner can be made and can plan with any version.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torchrec
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.types import ShardingPlan

from fastplan.model.log import escaped_logger
from fastplan.model.objectives import ConstraintError
from fastplan.planning.run import Run
from fastplan.torchrec.state import state_of

logger = escaped_logger(__name__)

_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_TORCHRECS = tuple(f"{path}{os.sep}" for path in torchrec.__path__)
# These check the user's own arguments, and raise errors that the user must see.
_CHECKING = ("state.py", "plan_files.py", "plan_json.py", "plan_values.py", "custom.py")
# What a missing or renamed name raises where it is used.
_SYMPTOMS = (AttributeError, ImportError, NameError, TypeError, LookupError, AssertionError)


@cache
def native() -> ModuleType | str:
    """Returns the module of native planning, or why this TorchRec does not have what it needs."""
    try:
        return import_module("fastplan.torchrec.planning")
    except Exception as error:
        reason = f"native planning needs other parts than this TorchRec has: {error}"
        logger.warning("fastplan: TorchRec's own code plans: %s", reason)
        return reason


def is_first_plan() -> bool:
    """Returns whether native planning is not imported yet, which takes longer than most plans."""
    return not native.cache_info().currsize


@contextmanager
def errors_of_parts() -> Iterator[None]:
    """Marks errors in the block as the caller's: its parts are called as TorchRec calls them.

    A second search would ask custom parts again, which may have changed.
    """
    try:
        yield
    except Exception as error:
        vars(error)["is_of_a_part"] = True  # whatever `__setattr__` the error has
        raise


def internal_error(error: Exception, planner: Any) -> str | None:
    """Returns why TorchRec must plan after an error; None if the error is the caller's.

    An error is not the caller's if code of this package raises it by using TorchRec, or if TorchRec
    raises it when this package calls it. TorchRec's own planner raises it again if it has to.
    """
    if not isinstance(error, _SYMPTOMS):
        return None
    if getattr(error, "is_of_a_part", False):
        return None
    if isinstance(error, AttributeError) and error.obj is planner._storage_reservation:
        return None  # TorchRec reads it for its message that nothing fits
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_TORCHRECS)
    ]
    last = frames[-1] if frames else None
    if last is None or not last.filename.startswith(_OWN_FOLDER):
        return None
    file = os.path.basename(last.filename)
    if file in _CHECKING:
        return None
    return f"native planning failed with {type(error).__name__}: {error} ({file}:{last.lineno})"


class Snapshot:
    """The state of a planner's parts before a plan, for TorchRec's planner after a failure.

    A native search sets the state that TorchRec's proposers would have after theirs, and an
    enumerator would return copies of the options that it has enumerated. TorchRec's own search must
    start from the state of before.
    """

    def __init__(self, planner: Any) -> None:
        parts = [*getattr(planner, "_proposers", ()), getattr(planner, "_enumerator", None)]
        self._states = [(part, dict(vars(part))) for part in parts if hasattr(part, "__dict__")]

    def restore(self) -> None:
        """Gives every part its attributes back."""
        for part, state in self._states:
            vars(part).clear()
            vars(part).update(state)


def plan_by_torchrec(
    planner: Any, run: Run, module: Any, sharders: list[Any], why: str
) -> ShardingPlan:
    """Returns the plan of TorchRec's own planner.

    Raises:
        ConstraintError: TorchRec's plan may not satisfy `pins` and `together`.
    """
    state = state_of(planner)
    run.add_reason("torchrec", why)
    reason = f"TorchRec's own code planned: {why}"
    if state.previous.policy is not None:
        run.not_followed = reason
    if state.optimize is not None:
        if state.optimize.objectives.rules:
            needs = "`pins` and `together` need the native search"
            raise ConstraintError(f"{needs}: {reason}")
        run.not_optimized = reason
    logger.info("fastplan: TorchRec's own code planned: %s", run.reason)
    with run.phase("torchrec"):
        sharding_plan = TorchRecPlanner.plan(planner, module, sharders)
    best = planner._best_plan
    rating = float(planner._perf_model.rate(plan=best)) if best else None
    run.take_counts(planner._num_proposals, planner._num_plans, rating)
    return sharding_plan
