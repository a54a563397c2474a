"""Loads stored plans into TorchRec's planner, in place of a search."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import Perf, PlanLoader, Shard, ShardingOption, Storage
from torchrec.distributed.types import ParameterSharding, ShardingPlan

from fastplan.cache.entry import BadEntry, Entry, decode, encode
from fastplan.cache.stores import GuardedStore, Store, StoreError, open_store
from fastplan.model.log import escaped_logger
from fastplan.torchrec.plan_files import (
    MOST_BYTES,
    check_module,
    parse_plan_text,
    plan_text,
    read_plan_file,
)

# The note with the planner's context. If a file has it, the planner's context must be equal.
CONTEXT_NOTE = "planner_context_hash"


class StoredPlanLoader(PlanLoader):
    """Returns a stored plan to a planner: `plan_loader=StoredPlanLoader("plan.json", module)`.

    The planner enumerates its options, takes those of the plan and does not search: it returns the
    stored plan, with tables in the order of its options. It uses the plan's shards and ranks, and
    the settings of its own constraints. TorchRec raises PlannerError for an option that these do
    not allow, or that has a different cache load factor.

    A file saved with `notes={"planner_context_hash": planner.hash_planner_context_inputs_str()}`
    is used only by a planner with the same context. A plan has no costs and no storage, so the
    statistics of a loaded plan show none.

    Args:
        source: a plan, or a plan file that is read on each request of the planner.
        module: the model that the plan is for. The plan must have exactly its tables: otherwise
            `load` raises PlanMismatch, which says which tables differ.
        sharders: the planner's, if they are not TorchRec's defaults.

    Raises:
        ValueError: `module` is missing.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | ShardingPlan,
        module: nn.Module | None = None,
        *,
        sharders: Iterable[Any] | None = None,
    ) -> None:
        if module is None:
            raise ValueError(
                "StoredPlanLoader needs the model that the plan is for: pass it as the second "
                "argument, `module`. TorchRec silently skips tables that are not in the plan, and "
                "a plan does not say whether a table is pooled"
            )
        self._source = source
        self._module = module
        self._sharders = None if sharders is None else list(sharders)

    def load(self) -> dict[int, ShardingOption]:
        """Returns the plan's options by TorchRec's hash."""
        source, plan = self.get_plan_id(), self._read()[0]
        holders = check_module(plan, self._module, self._sharders, source)
        options: dict[int, ShardingOption] = {}
        for path, module_plan in plan.plan.items():
            for name, sharding in module_plan.items():
                option = _option(path, name, sharding, *holders[path, name])
                options[option.storage_hash()] = option
        return options

    def plan_context_hash(self) -> str | None:
        """Returns the planner context of the plan, if its file has one."""
        return self._read()[1].get(CONTEXT_NOTE)

    def get_plan_id(self) -> str:
        """Returns the name of the plan in messages: its file."""
        if isinstance(self._source, ShardingPlan):
            return "a stored plan"
        return os.fspath(self._source)

    def _read(self) -> tuple[ShardingPlan, dict[str, str]]:
        if isinstance(self._source, ShardingPlan):
            return self._source, {}
        found = read_plan_file(self._source)
        return found.plan, found.notes


def _option(
    path: str, name: str, sharding: ParameterSharding, holder: nn.Module, tensor: Any
) -> ShardingOption:
    """Returns an option with the plan's shards."""
    return ShardingOption(
        name=name,
        tensor=tensor,
        module=(path, holder),
        input_lengths=[],
        batch_size=0,
        sharding_type=sharding.sharding_type,
        partition_by=get_partition_by_type(sharding.sharding_type),
        compute_kernel=sharding.compute_kernel,
        shards=_shards(path, name, sharding, list(tensor.shape)),
        cache_params=sharding.cache_params,
        enforce_hbm=sharding.enforce_hbm,
        stochastic_rounding=sharding.stochastic_rounding,
        bounds_check_mode=sharding.bounds_check_mode,
        is_pooled=None,  # the option asks its module
        output_dtype=sharding.output_dtype,
        key_value_params=sharding.key_value_params,
    )


def _shards(path: str, name: str, sharding: ParameterSharding, shape: list[int]) -> list[Shard]:
    spec, ranks = sharding.sharding_spec, sharding.ranks
    if ranks is None or (spec is not None and len(spec.shards) != len(ranks)):
        raise ValueError(
            f"table {path}.{name}: the stored plan must have a rank for each shard to be loaded "
            "into TorchRec's planner"
        )
    cuts = (
        [([0] * len(shape), shape)] * len(ranks)
        if spec is None
        else [(shard.shard_offsets, shard.shard_sizes) for shard in spec.shards]
    )
    return [
        Shard(
            size=list(size),
            offset=list(offset),
            storage=Storage(hbm=0, ddr=0),
            perf=Perf(fwd_compute=0.0, fwd_comms=0.0, bwd_compute=0.0, bwd_comms=0.0),
            rank=rank,
        )
        for (offset, size), rank in zip(cuts, ranks, strict=True)
    ]


logger = escaped_logger(__name__)

_NAME = "plan"


@dataclass(frozen=True)
class PlanMetadata:
    """The fields of TorchRec's CacheMetadata."""

    created_by: str = ""
    sku: str = ""
    world_size: int = 0
    extra: dict[str, str] = field(default_factory=dict)


class ProtocolPlanCache:
    """`get(fingerprint)` and `put(fingerprint, plan, metadata)`, as TorchRec 1.9 calls them.

    If the store fails, a warning is logged, `get` returns None and `put` stores nothing.

    Args:
        where: a directory, a URL for fsspec, or a store.
        timeout: seconds that each call of the store may take.
    """

    def __init__(self, where: str | os.PathLike[str] | Store, *, timeout: float = 5.0) -> None:
        self._store = GuardedStore(open_store(where), timeout)

    def get(self, request_fingerprint: str) -> tuple[ShardingPlan, PlanMetadata] | None:
        """Returns the plan and its metadata; None without a valid entry."""
        try:
            for _, data in self._store.read(_key(request_fingerprint)):
                try:
                    return _read(decode(data), request_fingerprint)
                except Exception as problem:  # the entry may come from another user
                    logger.warning("fastplan: a stored plan is not used: %s", problem)
        except StoreError as problem:
            logger.warning("fastplan: the plan cache failed: %s", problem)
        return None

    def put(self, request_fingerprint: str, plan: ShardingPlan, metadata: Any) -> None:
        """Stores a plan. Raises PlanFileError for a plan that a file can't represent."""
        text = plan_text(plan, request_fingerprint, fingerprint=request_fingerprint)
        world_size = int(metadata.world_size)
        entry = Entry(
            key=_key(request_fingerprint),
            capacities=((max(world_size, 1), 0, 0, 0),),
            rating=0.0,
            payload=zlib.compress(text.encode()),
            request=b"",
            provenance={
                "fingerprint": request_fingerprint,
                "created_by": str(metadata.created_by),
                "sku": str(metadata.sku),
                "world_size": world_size,
                "extra": json.dumps(dict(metadata.extra)),
            },
        )
        try:
            self._store.write(entry.key, _NAME, encode(entry))
        except StoreError as problem:
            logger.warning("fastplan: the plan cache failed: %s", problem)


def _key(request_fingerprint: str) -> str:
    """Returns the key in the store: TorchRec's fingerprints may be any string, keys are hex."""
    return hashlib.blake2b(request_fingerprint.encode(), digest_size=20).hexdigest()


def _read(entry: Entry, request_fingerprint: str) -> tuple[ShardingPlan, PlanMetadata]:
    facts = entry.provenance
    if facts.get("fingerprint") != request_fingerprint:
        raise BadEntry("it belongs to another request")
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(entry.payload, MOST_BYTES)
    except zlib.error as error:
        raise BadEntry(f"its plan can't be read: {error}") from error
    if not inflater.eof:
        raise BadEntry("its plan is too large")
    extra = json.loads(str(facts.get("extra", "{}")))
    if not isinstance(extra, dict):
        raise BadEntry("its metadata is damaged")
    metadata = PlanMetadata(
        created_by=str(facts.get("created_by", "")),
        sku=str(facts.get("sku", "")),
        world_size=int(facts.get("world_size", 0)),
        extra={str(name): str(value) for name, value in extra.items()},
    )
    return parse_plan_text(text, request_fingerprint).plan, metadata
