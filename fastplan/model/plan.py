"""A plan and what is known about it, with no torch in it."""

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
    """Where the shards of one table lie."""

    path: str  # module that holds it
    name: str
    sharding_type: str
    kernel: str
    # None where the source does not tell, as of data-parallel tables; rows and columns are then 0
    shape: tuple[int, int] | None
    shards: Shards  # one line each: row, column, rows, columns, rank; in TorchRec's order
    settings: dict[str, Any]  # what else a plan file says of it, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything lies, tables in the plan's order."""

    tables: tuple[TableLayout, ...]
    device: str | None = None  # kind of device, such as cuda
    ranks_per_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a plan was made from: enough to estimate, verify and rate it again."""

    canonical: bytes  # the canonical request that the fingerprint is made of
    request: Request
    cluster: Cluster
    record: PlanRecord
    certificate: bytes = b""  # packed; what a bound on all plans is proven by


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A layout, and where it comes from as far as that is known."""

    name: str  # of the model, or of the file
    layout: Layout
    fingerprint: str | None = None
    notes: dict[str, str] = field(default_factory=dict)  # provenance: model, sku, engine, created
    basis: Basis | None = None  # None for plans of which only the layout is known

    @property
    def ranks(self) -> int:
        """Ranks of the cluster; for a bare layout one more than the largest that is used."""
        if self.basis is not None:
            return len(self.basis.cluster.rank_hbm)
        used = [
            int(table.shards[:, RANK].max()) for table in self.layout.tables if len(table.shards)
        ]
        return max(used, default=-1) + 1

    @property
    def lower_bound(self) -> float | None:
        """What no plan is rated below, where its maker proved that and noted it."""
        try:
            bound = float(self.notes["lower_bound"])
        except (KeyError, ValueError):
            return None
        return bound if 0 <= bound < math.inf else None
