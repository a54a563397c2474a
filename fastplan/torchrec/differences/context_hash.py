"""The error of a planner context that has no stable hash, which is new in 1.9."""

from __future__ import annotations

from torchrec.distributed.planner import types

_found = getattr(types, "PlannerContextFingerprintError", None)
UNHASHABLE_CONTEXT: tuple[type[Exception], ...] = () if _found is None else (_found,)
