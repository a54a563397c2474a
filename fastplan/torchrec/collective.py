"""A collective start: rank 0 plans, a few kB are sent, every rank rebuilds the plan.

TorchRec sends the pickled plan, and when planning fails on rank 0 the other ranks wait for the
collective to time out. Here an error on any rank is raised on every rank at once, and ranks whose
models differ are named before anything is planned. Ranks that differ in settings without a cost get
rank 0's plan as a whole, as with TorchRec.
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
from fastplan.costs.keys import custom_parts
from fastplan.engine.solve import OutOfRange
from fastplan.model.record import PlanRecord
from fastplan.model.request import Partitioner, Search
from fastplan.planning.run import Run
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.planning import drafted, state_of
from fastplan.torchrec.read.extract import TableSource
from fastplan.torchrec.read.space import EstimatedSpace, recorded_space


class ModelsDiffer(RuntimeError):
    """Ranks were given models, sharders or constraints that lead to different plans."""


@dataclass(frozen=True, slots=True)
class _Own:
    """A rank's tables and options; nothing where a custom part has to look at them."""

    space: EstimatedSpace | None = None
    canonical: bytes | None = None
    settings: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """What rank 0 sends: a packed plan, a whole plan, or the error that planning ended with."""

    record: bytes | None = None
    plan: ShardingPlan | None = None
    error: BaseException | None = None


def start(
    planner: Any, module: Any, sharders: list[Any], pg: Any, *, overridden: bool
) -> ShardingPlan:
    """The plan on every rank of the group. What any rank raises is raised on all of them.

    A planner whose `plan` is `overridden` may change what it plans for, and its plan afterwards.
    """
    own = _describe(planner, module, sharders)
    alike = _agree(own, pg)
    space = own.space
    message = None
    if pg.rank() == 0:
        message = _plan(planner, module, sharders, None if overridden else space, alike)
    plan, failure = None, None
    try:
        message = _broadcast(message, pg)
        plan = message.plan if pg.rank() == 0 else _rebuilt(planner, space, message)
    except BaseException as problem:  # raised once the others know of it
        failure = problem
    _confirm(message, failure, pg)
    assert plan is not None
    return plan


def _rebuilt(planner: Any, space: EstimatedSpace | None, message: _Message) -> ShardingPlan | None:
    """Rank 0's plan on another rank; None where there is an error instead."""
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


def _confirm(message: _Message | None, failure: BaseException | None, pg: Any) -> None:
    """Raises on every rank what rank 0 ended with, or what went wrong on another one."""
    told: list[Any] = [None] * pg.size()
    dist.all_gather_object(told, _text(failure), group=pg)
    if failure is not None:
        raise failure
    if message is not None and message.error is not None:
        raise message.error
    _raise_first(told)


def _text(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def _raise_first(told: list[str | None]) -> None:
    for rank, failure in enumerate(told):
        if failure is not None:
            raise RuntimeError(f"rank {rank} of the group: {failure}")


def _describe(planner: Any, module: Any, sharders: list[Any]) -> _Own:
    """What this rank would plan; whatever goes wrong is raised once the others know of it."""
    try:
        space = drafted(planner, module, sharders)
        return _Own(space, _canonical(space), settings_digest(space.origins, planner._topology))
    except (NotNative, OutOfRange):
        return _Own()
    except Exception as error:
        return _Own(error=error)


def _plan(planner: Any, module: Any, sharders: list[Any], space: Any, alike: bool) -> _Message:
    """Plans on rank 0; whatever happens there becomes a message.

    A record is enough for ranks that are `alike`: they add the same settings to it.
    """
    state_of(planner).draft = space  # plan() need not read the tables again
    try:
        plan = planner.plan(module, sharders)
    except BaseException as error:  # an interrupt must not leave the others waiting either
        return _Message(error=error)
    record = sendable(planner) if space is not None and alike else None
    return _Message(plan=plan, record=record)


def sendable(planner: Any) -> bytes | None:
    """The planner's last plan as a few kB, where nothing but the search has shaped it."""
    result = state_of(planner).result
    record = None if result is None else result.record
    return None if record is None or planner._callbacks else record.pack()


def _broadcast(message: _Message | None, pg: Any) -> _Message:
    """Sends rank 0's message. The plan itself travels only where a record can't stand for it."""
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
    """The error itself, or its text where it can't travel or is not an error elsewhere."""
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


def _agree(own: _Own, pg: Any) -> bool:
    """Raises ModelsDiffer on every rank when some rank's tables or options are others.

    Where a rank could not tell its own, that is what every rank raises. Returns whether the ranks
    also agree in what a plan has beside its options, such as the dtype of outputs.
    """
    described = own.canonical or b""
    digest = hashlib.blake2b(described, digest_size=16).hexdigest()
    told: list[Any] = [None] * pg.size()
    dist.all_gather_object(told, (digest, own.settings, _text(own.error)), group=pg)
    if own.error is not None:
        raise own.error
    _raise_first([failure for _, _, failure in told])
    others = [rank for rank, (theirs, _, _) in enumerate(told) if theirs != told[0][0]]
    if not others:
        return len({settings for _, settings, _ in told}) == 1
    # Only now is the whole description sent, so that the ranks that differ can say how.
    sent = [zlib.compress(described)] if pg.rank() == 0 else [b""]
    dist.broadcast_object_list(sent, group_src=0, group=pg)
    details: list[Any] = [None] * pg.size()
    differences = format_differences(zlib.decompress(sent[0]), described)
    dist.all_gather_object(details, differences, group=pg)
    named = "; ".join(f"rank {rank}: {details[rank]}" for rank in others[:4])
    more = f"; and {len(others) - 4} more ranks" if len(others) > 4 else ""
    raise ModelsDiffer(
        f"{len(others)} of {pg.size()} ranks describe another model than rank 0. {named}{more}. "
        "Build the same model, sharders and constraints on every rank."
    )


def _canonical(space: EstimatedSpace) -> bytes:
    nothing = Search(proposers=(), partitioner=Partitioner())
    try:
        context = {"custom": custom_parts(space.request, nothing)}
    except NoFingerprint:
        context = {}
    return canonical_request(space.request, nothing, ranks=0, context=context)


# As bridge/plan copies them from a table's constraints.
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
    """Equal for two ranks that make the same plan of the same options and ranks."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{topology.compute_device} {topology.local_world_size}".encode())
    for origin in origins:
        rule = origin.constraint
        told = [] if rule is None else [_told(getattr(rule, name, None)) for name in _SETTINGS]
        digest.update(repr((origin.path, origin.name, told)).encode())
    return digest.hexdigest()


def _told(value: Any, depth: int = 0) -> Any:
    """A value by its content, the same in every process."""
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
        return name, [_told(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return name, sorted((repr(key), repr(_told(value[key], depth + 1))) for key in value)
    names = [f.name for f in fields(value)] if is_dataclass(value) else sorted(_attributes(value))
    return name, [(each, _told(getattr(value, each), depth + 1)) for each in names]


def _attributes(value: Any) -> Any:
    return getattr(value, "__dict__", ())
