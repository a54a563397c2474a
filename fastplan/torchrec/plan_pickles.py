"""Pickled plans. Reading one can run code, so callers must check for trust first."""

from __future__ import annotations

import pickle
from typing import Any

import torch
from torchrec.distributed.types import ShardingPlan

from fastplan.files.storage import replace_file
from fastplan.model.plan import Plan
from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import plan_text
from fastplan.torchrec.plan_files import describe_plan, parse_plan_text

# The former format of torch.save: a number first, then the object.
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C


def read_pickle(path: str) -> Plan:
    """Loads the plan of a file from torch.save or pickle. This can run code in the file.

    Raises:
        PlanFileError: the file can't be unpickled, or has no ShardingPlan.
    """
    try:
        found = _unpickle(path)
    except Exception as error:  # a pickle may raise anything
        problem = f"can't be unpickled: {type(error).__name__}: {error}"
        raise PlanFileError(path, "", problem) from error
    if not isinstance(found, ShardingPlan):
        kind = type(found).__name__
        raise PlanFileError(path, "", f"contains a {kind}, not a ShardingPlan")
    return describe_plan(found, path, notes={"source_format": "pickle"})


def write_pickle(plan: Plan, path: str) -> None:
    """Writes the plan as a pickled ShardingPlan, as `pickle.dump` does, but atomically.

    Only this user can write to the file, because whoever reads it runs it.
    """
    found = parse_plan_text(plan_text(plan).encode(), path).plan
    replace_file(path, [pickle.dumps(found)], others_write=False)


def _unpickle(path: str) -> Any:
    with open(path, "rb") as stream:
        if stream.read(2) != b"PK":
            stream.seek(0)
            found = pickle.load(stream)
            if type(found) is not int or found != _TORCH_MAGIC:
                return found
    return torch.load(path, map_location="cpu", weights_only=False)
