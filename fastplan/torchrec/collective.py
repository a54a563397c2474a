"""A collective start: rank 0 plans, a few kB are sent, every rank rebuilds the plan.

TorchRec sends the pickled plan, and if planning fails on rank 0, the other ranks wait for the
collective to time out. Here an error on any rank is raised on every rank at once, and ranks with
different models are named before planning. Ranks that differ in settings without a cost get the
whole plan of rank 0, as with TorchRec.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.fingerprint import canonical_request
from fastplan.cache.why_miss import format_differences
from fastplan.costs.errors import NoFingerprint
from fastplan.engine.solve import OutOfRange
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Partitioner, Search
from fastplan.planning.run import Run
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.extract import TableSource
from fastplan.torchrec.read.space import EstimatedSpace, recorded_space
from fastplan.torchrec.state import state_of


class ModelsDiffer(RuntimeError):
    """Ranks have models, sharders or constraints that lead to different plans."""


@dataclass(frozen=True, slots=True)
class _RankTables:
    """A rank's tables and options; empty if a custom part must read them."""

    space: EstimatedSpace | None = None
    canonical: bytes | None = None
    settings: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """The message of rank 0: a packed plan, a whole plan, or the error."""

    record: bytes | None = None
    plan: ShardingPlan | None = None
    error: BaseException | None = None


def start(
    planner: Any, module: Any, sharders: list[Any], pg: Any, *, overridden: bool
) -> ShardingPlan:
    """Returns the plan on every rank of the group. An error on any rank is raised on all ranks.

    If `plan` is `overridden`, the planner may change its input and its plan.
    """
    own = _describe(planner, module, sharders)
    alike = _check_ranks_agree(own, pg)
    space = own.space
    message = None
    if pg.rank() == 0:
        message = _plan(planner, module, sharders, None if overridden else space, alike)
    plan, failure = None, None
    try:
        message = _broadcast(message, pg)
        plan = message.plan if pg.rank() == 0 else _rebuilt(planner, space, message)
    except BaseException as problem:  # raised after the other ranks have received it
        failure = problem
    _raise_remote_errors(message, failure, pg)
    assert plan is not None
    return plan


def _rebuilt(planner: Any, space: EstimatedSpace | None, message: _Message) -> ShardingPlan | None:
    """Returns rank 0's plan on another rank; None after an error."""
    planner.last_run = run = Run()
    run.reason = "planned by rank 0 of the group"
    plan = message.plan
    if message.record is not None:
        assert space is not None
        with run.phase("build"), compat.paused():
            record = PlanRecord.unpack(message.record)
            chosen = recorded_space(space.unpriced(), record, resizes=True)
            numbers = np.arange(len(record.table), dtype=np.int32)
            plan = chosen.sharding_plan(numbers, record.ranks, planner._topology)
        run.rating = record.rating
    run.finish()
    return plan


def _raise_remote_errors(message: _Message | None, failure: BaseException | None, pg: Any) -> None:
    """Raises the error of rank 0, or of another rank, on every rank."""
    reports: list[Any] = [None] * pg.size()
    dist.all_gather_object(reports, _text(failure), group=pg)
    if failure is not None:
        raise failure
    if message is not None and message.error is not None:
        raise message.error
    _raise_first(reports)


def _text(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def _raise_first(reports: list[str | None]) -> None:
    for rank, failure in enumerate(reports):
        if failure is not None:
            raise RuntimeError(f"rank {rank} of the group: {failure}")


def _describe(planner: Any, module: Any, sharders: list[Any]) -> _RankTables:
    """Reads this rank's tables. Errors are raised after the other ranks have received them."""
    try:
        with compat.paused():
            space = drafted(planner, module, sharders)
            return _RankTables(
                space, _canonical(space), settings_digest(space.origins, planner._topology)
            )
    except (NotNative, OutOfRange):
        return _RankTables()
    except Exception as error:
        return _RankTables(error=error)


def _plan(planner: Any, module: Any, sharders: list[Any], space: Any, alike: bool) -> _Message:
    """Plans on rank 0 and returns the plan or the error as a message.

    A record is enough for ranks that are `alike`, because they add the same settings to it.
    """
    state = state_of(planner)
    state.draft = space  # plan() need not read the tables again
    state.plans_for_group = True
    try:
        plan = planner.plan(module, sharders)
    except BaseException as error:  # an interrupt must not leave the other ranks waiting
        return _Message(error=error)
    record = packed_plan(planner) if space is not None and alike else None
    return _Message(plan=plan, record=record)


def packed_plan(planner: Any) -> bytes | None:
    """Returns the planner's last plan as a few kB, if only the search has determined it."""
    result = state_of(planner).result
    record = None if result is None else result.record
    return None if record is None or planner._callbacks else record.pack()


def _broadcast(message: _Message | None, pg: Any) -> _Message:
    """Sends rank 0's message. The plan itself is sent only if a record can't represent it."""
    sent: list[Any] = [None]
    if message is not None:
        plan = None if message.record is not None else message.plan
        sent = [(message.record, plan, _sendable_error(message.error))]
    dist.broadcast_object_list(sent, group_src=0, group=pg)
    if message is not None:
        return message
    record, plan, error = sent[0]
    return _Message(record, plan, error)


def _sendable_error(error: BaseException | None) -> BaseException | None:
    """The error, or its text if it can't be pickled."""
    if error is None:
        return None
    text = RuntimeError(f"rank 0 of the group: {type(error).__name__}: {error}")
    if not isinstance(error, Exception):
        return text
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return text
    return copy if type(copy) is type(error) else text


def _check_ranks_agree(own: _RankTables, pg: Any) -> bool:
    """Raises ModelsDiffer on every rank if the tables or options of a rank differ.

    If a rank could not read its tables, every rank raises that error. Returns whether the ranks
    also agree in settings of a plan other than its options, such as the dtype of outputs.
    """
    described = own.canonical or b""
    digest = hashlib.blake2b(described, digest_size=16).hexdigest()
    reports: list[Any] = [None] * pg.size()
    dist.all_gather_object(reports, (digest, own.settings, _text(own.error)), group=pg)
    if own.error is not None:
        raise own.error
    _raise_first([failure for _, _, failure in reports])
    others = [rank for rank, (theirs, _, _) in enumerate(reports) if theirs != reports[0][0]]
    if not others:
        return len({settings for _, settings, _ in reports}) == 1
    # The whole description is sent only now, to find the difference.
    sent = [zlib.compress(described)] if pg.rank() == 0 else [b""]
    dist.broadcast_object_list(sent, group_src=0, group=pg)
    details: list[Any] = [None] * pg.size()
    differences = format_differences(zlib.decompress(sent[0]), described)
    dist.all_gather_object(details, differences, group=pg)
    named = "; ".join(f"rank {rank}: {details[rank]}" for rank in others[:4])
    more = f"; and {len(others) - 4} more ranks" if len(others) > 4 else ""
    raise ModelsDiffer(
        f"{len(others)} of {pg.size()} ranks have a different model than rank 0. {named}{more}. "
        "Build the same model, sharders and constraints on every rank."
    )


def _canonical(space: EstimatedSpace) -> bytes:
    from fastplan.costs.functions import custom_parts

    nothing = Search(proposers=(), partitioner=Partitioner())
    try:
        context = {"custom": custom_parts(space.request, nothing)}
    except NoFingerprint:
        context = {}
    return canonical_request(space.request, nothing, ranks=0, context=context)


# Copied from a table's constraints by write/plan.py.
_SETTINGS = (
    "cache_params",
    "key_value_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
)
_DEEPEST = 8


def settings_digest(origins: Iterable[TableSource], topology: Any) -> str:
    """Returns a hash of the settings. Ranks with equal hashes make equal plans of a record."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{topology.compute_device} {topology.local_world_size}".encode())
    for origin in origins:
        rule = origin.constraint
        values = (
            [] if rule is None else [_stable_repr(getattr(rule, name, None)) for name in _SETTINGS]
        )
        digest.update(repr((origin.path, origin.name, values)).encode())
    return digest.hexdigest()


def _stable_repr(value: Any, depth: int = 0) -> Any:
    """Returns a string for a value that is the same in every process."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, torch.dtype):
        return repr(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Enum):
        return name, value.name
    if isinstance(value, torch.Tensor):
        return name, str(value.dtype), repr(value.tolist())
    if depth == _DEEPEST:
        return name
    if isinstance(value, list | tuple):
        return name, [_stable_repr(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return name, sorted((repr(key), repr(_stable_repr(value[key], depth + 1))) for key in value)
    names = [f.name for f in fields(value)] if is_dataclass(value) else sorted(_attributes(value))
    return name, [(each, _stable_repr(getattr(value, each), depth + 1)) for each in names]


def _attributes(value: Any) -> Any:
    return getattr(value, "__dict__", ())
