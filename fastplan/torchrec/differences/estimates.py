"""The names that native estimates need, and that TorchRec 1.5 does not have.

Without them TorchRec's own code enumerates and estimates, and the search stays native.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any

_PLANNER = "torchrec.distributed.planner"
_missing: list[str] = []


def _found(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f"{_PLANNER}.{module}"), name)
    except (ImportError, AttributeError):
        _missing.append(f"{module}.{name}")
        return None


DEFAULT_PERF_ESTIMATOR = _found("constants", "DEFAULT_PERF_ESTIMATOR")
HardwarePerfConfig = _found("estimator.types", "HardwarePerfConfig")
ShardPerfContext = _found("estimator.types", "ShardPerfContext")
build_sharder_data_map = _found("utils", "build_sharder_data_map")
extract_comm_data_type_size = _found("utils", "extract_comm_data_type_size")
is_prefetch_pipelined = _found("utils", "is_prefetch_pipelined")
perf_estimators = _found("estimator", "estimator")

# Up to 1.6 a context is built from the sharder itself, later from a snapshot of its data.
_takes = getattr(ShardPerfContext, "build_shard_perf_contexts", None)
SHARDER_ARGUMENT = (
    "sharder" if _takes and "sharder" in signature(_takes).parameters else "sharder_data"
)

MISSING = f"this TorchRec has no {', '.join(_missing[:3])}" if _missing else ""
