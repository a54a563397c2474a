"""TorchRec 1.9's PlanCache protocol over a fastplan store, without importing it.

TorchRec's dry run asks for whole plans by a fingerprint of its own making, and ships no cache. This
one keeps plans as plan files inside checked entries: nothing in them is ever evaluated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zlib
from dataclasses import dataclass, field
from typing import Any

from torchrec.distributed.types import ShardingPlan

from fastplan.cache.entry import BadEntry, Entry, decode, encode
from fastplan.cache.stores import GuardedStore, Store, StoreError, open_store
from fastplan.torchrec.plan_files import MOST_BYTES, parse_plan_text, plan_text

logger = logging.getLogger(__name__)

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

    A store that fails costs a warning: `get` finds nothing, `put` keeps nothing.
    """

    def __init__(self, where: str | os.PathLike[str] | Store, *, timeout: float = 5.0) -> None:
        self._store = GuardedStore(open_store(where), timeout)

    def get(self, request_fingerprint: str) -> tuple[ShardingPlan, PlanMetadata] | None:
        """The plan and its metadata; None when there is none, or none that can be trusted."""
        try:
            for _, data in self._store.read(_key(request_fingerprint)):
                try:
                    return _read(decode(data), request_fingerprint)
                except Exception as problem:  # anybody may have written it
                    logger.warning("fastplan: a stored plan is not used: %s", problem)
        except StoreError as problem:
            logger.warning("fastplan: the plan cache failed: %s", problem)
        return None

    def put(self, request_fingerprint: str, plan: ShardingPlan, metadata: Any) -> None:
        """Keeps a plan. Raises PlanFileError for a plan that a file can't hold."""
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
    """TorchRec's fingerprints may be any text; a store's keys are hexadecimal."""
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
        raise BadEntry("its metadata are damaged")
    metadata = PlanMetadata(
        created_by=str(facts.get("created_by", "")),
        sku=str(facts.get("sku", "")),
        world_size=int(facts.get("world_size", 0)),
        extra={str(name): str(value) for name, value in extra.items()},
    )
    return parse_plan_text(text, request_fingerprint).plan, metadata
