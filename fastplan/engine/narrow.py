"""A request narrowed to the options that a plan has chosen."""

from __future__ import annotations

import numpy as np

from fastplan.engine.problem import Ints
from fastplan.model.record import BadRecord, PlanRecord
from fastplan.model.request import MenuItem, Request
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES

_UNIFORM = np.array([name in UNIFORM_TYPES for name in SHARDING_TYPES])


def narrowed(request: Request, record: PlanRecord) -> Request:
    """The request with just a record's options, one per table, in the record's order.

    Raises BadRecord when the record does not belong to the request.
    """
    if len(record.table) != len(request.tables):
        raise BadRecord(f"it has {len(record.table)} tables, the model {len(request.tables)}")
    if not np.isnan(record.load_factor).all():
        # Their bandwidths and miss rates followed from objects that a request does not hold.
        raise BadRecord("the search resized caches, and their costs are not part of the request")
    asked = [{(item.sharding_type, item.kernel): item for item in menu} for menu in request.menus]
    menus: dict[MenuItem, int] = {}
    tables = []
    for number, kind, kernel in zip(
        record.table.tolist(), record.sharding_type.tolist(), record.kernel.tolist(), strict=True
    ):
        table = request.tables[number]
        choice = SHARDING_TYPES[kind], KERNELS[kernel]
        item = asked[table.menu].get(choice)
        if item is None:
            raise BadRecord(f"table {table.name} may not be ({choice[0]}, {choice[1]})")
        tables.append(table._replace(menu=menus.setdefault(item, len(menus))))
    return Request(
        tables=tuple(tables),
        menus=tuple((item,) for item in menus),
        coefficients=request.coefficients,
        cost=request.cost,
        pricing=request.pricing,
    )


def shard_ranks(record: PlanRecord, table_shards: Ints, ranks: int) -> Ints:
    """The rank of every shard in plan order: uniform ones in turn, the others as recorded.

    `table_shards` has the number of shards by plan position. Raises BadRecord.
    """
    shard_uniform = np.repeat(_UNIFORM[record.sharding_type], table_shards)
    begin = np.cumsum(table_shards) - table_shards
    found: Ints = np.arange(len(shard_uniform)) - np.repeat(begin, table_shards)
    placed = len(shard_uniform) - int(shard_uniform.sum())
    if placed != len(record.ranks):
        raise BadRecord(f"it has {len(record.ranks)} ranks for {placed} shards")
    found[~shard_uniform] = record.ranks
    if len(found) and (found.max() >= ranks or found.min() < 0):
        raise BadRecord(f"a shard is on rank {int(found.max())} of {ranks}")
    return found
