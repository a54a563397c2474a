"""Plans and their layouts, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.model.record import PlanRecord
from fastplan.model.request import Cluster, Request

Shards = NDArray[np.int64]
ROW, COLUMN, ROWS, COLUMNS, RANK = range(5)


class TableLayout(NamedTuple):
    """The shards of one table and their ranks."""

    path: str  # module that holds it
    name: str
    sharding_type: str
    kernel: str
    # None if the source has no shape, as for data-parallel tables; rows and columns are then 0
    shape: tuple[int, int] | None
    shards: Shards  # one line each: row, column, rows, columns, rank; in TorchRec's order
    settings: dict[str, Any]  # other settings in the plan file, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layouts of all tables, in the plan's order."""

    tables: tuple[TableLayout, ...]
    device: str | None = None  # kind of device, such as cuda
    ranks_per_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The input of a plan: enough to estimate, verify and rate it again."""

    canonical: bytes  # the canonical request, whose hash is the fingerprint
    request: Request
    cluster: Cluster
    record: PlanRecord
    certificate: bytes = b""  # packed proof of a bound on all plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A layout, with its origin if known."""

    name: str  # of the model, or of the file
    layout: Layout
    fingerprint: str | None = None
    notes: dict[str, str] = field(default_factory=dict)  # provenance: model, sku, engine, created
    basis: Basis | None = None  # None if only the layout is known

    @property
    def ranks(self) -> int:
        """The number of ranks; without a basis, one more than the largest rank in use."""
        if self.basis is not None:
            return len(self.basis.cluster.rank_hbm)
        used = [
            int(table.shards[:, RANK].max()) for table in self.layout.tables if len(table.shards)
        ]
        return max(used, default=-1) + 1

    @property
    def lower_bound(self) -> float | None:
        """The proven lower bound noted in the file, if any."""
        try:
            bound = float(self.notes["lower_bound"])
        except (KeyError, ValueError):
            return None
        return bound if 0 <= bound < math.inf else None
