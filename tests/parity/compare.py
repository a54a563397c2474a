"""Exact comparison of what two planners leave behind."""

import dataclasses
import enum
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torchrec.distributed.planner.types import PlannerError, ShardingOption
from torchrec.distributed.types import ParameterSharding

from .instances import Built

# A partitioning error prints ShardingOption objects, which have no text form of their
# own: Python writes their memory address, and no two objects share one.
ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")


@contextmanager
def quiet() -> Iterator[None]:
    """Run without TorchRec's warnings and its log line per proposal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def plain(value: Any) -> Any:
    """Plain data that is equal only when every bit and every type of the value is."""
    if isinstance(value, float):
        return value.hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), plain(value.tolist())]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    return {"class": type(value).__name__, **plain(vars(value))}


def option_record(option: ShardingOption) -> dict[str, Any]:
    """Everything an option holds; its tensor and module by their description."""
    fields = {
        name: plain(value)
        for name, value in sorted(vars(option).items())
        if name not in ("_tensor", "_module", "shards")
    }
    fields["path"] = option.module[0]
    fields["module"] = type(option.module[1]).__name__
    fields["tensor"] = [str(option.tensor.dtype), list(option.tensor.shape)]
    fields["shards"] = {f"shard {i}": plain(s) for i, s in enumerate(option.shards)}
    return fields


def options_record(options: list[ShardingOption] | None) -> dict[str, Any] | None:
    if options is None:
        return None
    record = {}
    for i, option in enumerate(options):
        kind = f"{option.sharding_type} {option.compute_kernel}"
        record[f"option {i}, {option.fqn} {kind}"] = option_record(option)
    return record


def sharding_record(sharding: ParameterSharding) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(sharding)]
    names.remove("sharding_spec")
    record = {name: plain(getattr(sharding, name)) for name in names}
    spec = sharding.sharding_spec
    shards = [] if spec is None else spec.shards
    record["spec"] = type(spec).__name__
    for i, shard in enumerate(shards):
        record[f"shard {i}"] = {
            "size": plain(shard.shard_sizes),
            "offset": plain(shard.shard_offsets),
            "placement": str(shard.placement),
        }
    return record


def plan_record(plan: Any) -> dict[str, Any]:
    """Modules and tables in the plan's order, with every field of every table."""
    record: dict[str, Any] = {"modules": list(plan.plan)}
    for path, module_plan in plan.plan.items():
        record[f"module {path!r}"] = {"tables": list(module_plan)}
        for name, sharding in module_plan.items():
            record[f"module {path!r}"][f"table {name}"] = sharding_record(sharding)
    return record


def topology_record(topology: Any) -> Any:
    if callable(topology):
        topology = topology()  # a method of one reservation policy before TorchRec 1.7
    return None if topology is None else [plain(d) for d in topology.devices]


def _rating(planner: Any, best_plan: Any) -> Any:
    try:
        return plain(planner._perf_model.rate(best_plan))
    except IndexError:
        return "a callback moved a shard beyond the ranks"


def planner_record(planner: Any) -> dict[str, Any]:
    """What a caller can read from a planner after `plan()`, whether it failed or not."""
    reservation = planner._storage_reservation
    best_plan = planner._best_plan
    return {
        "num_proposals": planner._num_proposals,
        "num_plans": planner._num_plans,
        "rating": None if best_plan is None else _rating(planner, best_plan),
        "best_plan": options_record(best_plan),
        "search_space": options_record(
            getattr(planner._enumerator, "last_stored_search_space", None)
        ),
        "reserved": topology_record(reservation.last_reserved_topology),
        "dense": plain(getattr(reservation, "_dense_storage", None)),
        "kjt": plain(getattr(reservation, "_kjt_storage", None)),
    }


def error_record(error: Exception) -> dict[str, Any]:
    return {
        "class": f"{type(error).__module__}.{type(error).__name__}",
        "kind": str(error.error_type) if isinstance(error, PlannerError) else None,
        "text": ADDRESS.sub("address", str(error)),
    }


def run(planner: Any, module: Any, sharders: list[Any]) -> dict[str, Any]:
    """Plan and write down the plan or the error, then everything else that is visible."""
    plan, failure = None, None
    try:
        plan = planner.plan(module, sharders)
    except Exception as error:
        failure = error
    return {
        "error": None if failure is None else error_record(failure),
        "plan": None if plan is None else plan_record(plan),
        **planner_record(planner),
    }


def outcome(planner_class: type, built: Built) -> tuple[dict[str, Any], Any]:
    """The record of one run, and the planner that made it."""
    planner = planner_class(**built.planner_kwargs)
    return run(planner, built.module, built.sharders), planner


def first_difference(expected: Any, actual: Any, where: str = "") -> str | None:
    """Where two records part, or None: names the option, the shard and the field."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if list(expected) != list(actual):
            return f"{where}: expected entries {list(expected)}, got {list(actual)}"
        for key in expected:
            found = first_difference(expected[key], actual[key], f"{where} / {key}")
            if found:
                return found
        return None
    if expected == actual and type(expected) is type(actual):
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        for i, (left, right) in enumerate(zip(expected, actual, strict=False)):
            found = first_difference(left, right, f"{where}[{i}]")
            if found:
                return found
        if len(expected) == len(actual):
            return None
    return f"{where}: expected {expected!r}, got {actual!r}"


def assert_same(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    difference = first_difference(expected, actual)
    assert difference is None, difference
