"""Real models named on a command line: `package.module:function`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import get_default_sharders

from fastplan.model.references import BadReference, find, others_code
from fastplan.spec.hardware import find_hardware, topology_arguments
from fastplan.spec.model import ModelSpec, TopologySpec
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.planner import EmbeddingShardingPlanner

_ROOMY = 1 << 50
_EXPECTED_RESULT = (
    "must return the module, or (module, sharders), or (module, sharders, constraints)"
)


class ModelFunctionError(ValueError):
    """A model function can't be found, raises, or returns the wrong type."""


def export_model(target: str, *, world_size: int = 8, batch_size: int | None = None) -> ModelSpec:
    """Exports the model that a function builds, without a cluster.

    Args:
        target: `package.module:function`.
        world_size: the number of ranks of the export.
        batch_size: the batch size of one rank.

    Raises:
        ModelFunctionError: the function can't be found, raises, or returns the wrong type.
        ExportError: a spec can't describe the model.
    """
    module, sharders, constraints = build_model(target)
    # The export uses devices without a memory limit; planning the spec checks what fits.
    roomy = replace(find_hardware("torchrec"), hbm=_ROOMY, ddr=_ROOMY)
    with _suppress_planner_warnings(), others_code():  # its sharders
        planner = EmbeddingShardingPlanner(
            topology=Topology(**topology_arguments(roomy, world_size, world_size)),
            batch_size=batch_size,
            constraints=constraints,
            cache=False,
        )
        spec = export_spec(planner, module, sharders, name=target)
    return replace(spec, topology=TopologySpec())


@contextmanager
def _suppress_planner_warnings() -> Iterator[None]:
    """Suppresses TorchRec's planner warnings, which don't apply to an export."""
    logger = logging.getLogger("torchrec.distributed.planner")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def build_model(target: str) -> tuple[nn.Module, list[Any], dict[str, Any] | None]:
    """Returns module, sharders (by default TorchRec's) and constraints of a model function.

    The output of the function goes to stderr.

    Raises:
        ModelFunctionError: the function can't be found, raises, or returns the wrong type.
    """
    try:
        found = find(target)
    except BadReference as error:
        raise ModelFunctionError(str(error)) from error
    if not callable(found):
        raise ModelFunctionError(
            f"{target} is a {type(found).__name__}, not a function; it {_EXPECTED_RESULT}"
        )
    try:
        with others_code():
            result = found()
    except Exception as error:
        raise ModelFunctionError(f"{target}() raised {type(error).__name__}: {error}") from error
    return _parts(target, result)


def _parts(target: str, result: Any) -> tuple[nn.Module, list[Any], dict[str, Any] | None]:
    parts = result if isinstance(result, tuple) else (result,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise ModelFunctionError(
            f"{target}() returned {type(result).__name__}; it {_EXPECTED_RESULT}"
        )
    module, sharders, constraints = (*parts, None, None)[:3]
    if sharders is None:
        sharders = get_default_sharders()
    if not isinstance(sharders, list | tuple):
        raise ModelFunctionError(
            f"{target}() returned sharders that are not a list; it {_EXPECTED_RESULT}"
        )
    if constraints is not None and not isinstance(constraints, dict):
        raise ModelFunctionError(
            f"{target}() returned constraints that are not a dict; it {_EXPECTED_RESULT}"
        )
    return module, list(sharders), constraints
