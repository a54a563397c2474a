"""The tiers of memory that TorchRec's Storage counts: up to 1.5 without SSDs."""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner.types import Storage

TIERS = tuple(name for name in ("hbm", "ddr", "ssd") if name in Storage.__dataclass_fields__)


def storage(hbm: int, ddr: int, ssd: int = 0) -> Storage:
    """Returns TorchRec's object for these bytes, without the tiers that it does not have."""
    return Storage(**dict(zip(TIERS, (hbm, ddr, ssd), strict=False)))


def bytes_of(found: Any) -> tuple[Any, Any, Any]:
    """Returns the bytes of each tier; 0 for tiers that TorchRec does not have."""
    return found.hbm, found.ddr, getattr(found, "ssd", 0)
