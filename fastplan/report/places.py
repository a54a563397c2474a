"""Where the shards of one option go best while every other table stays where it is.

Shards go to places in blocks: a shard to a rank, a block of row shards to a host, or one shard to
every rank. The blocks of an option are alike, so the least loaded slots are the best ones, and no
other placement has a smaller largest load: a rank's second block is never cheaper than its first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from fastplan.engine.problem import Floats, Ints
from fastplan.model.vocabulary import UNIFORM_TYPES

_BY_HOST = ("table_row_wise", "grid_shard")


class Shards(NamedTuple):
    """The shards of an option, a row each: costs in milliseconds, memory in bytes by tier."""

    cost: Floats
    memory: Ints  # hbm, ddr and ssd


class Loads(NamedTuple):
    """What the other tables leave on every rank."""

    cost: Floats
    room: Ints  # rank x tier: free bytes, negative if the rank is overfull


class Cluster(NamedTuple):
    """The ranks that tables are placed on."""

    ranks: int
    group: int  # ranks of a host, for sharding by host
    host: int | None = None  # the only host that is allowed, for a table of a tower


class Place(NamedTuple):
    """The ranks of an option's shards."""

    ranks: Ints
    cost: float  # the largest load on these ranks
    lack: int  # the most bytes by which a rank is overfull; 0 or less if all fit
    exact: bool  # no other placement is better


class Limits(NamedTuple):
    """What a placement minimises, and what it must not exceed."""

    by: Literal["cost", "lack"] = "cost"
    cost: float = math.inf
    lack: float = 0.0


class _Field(NamedTuple):
    """Places of equal size: a row of ranks for each."""

    ranks: Ints  # place x position


def best_place(
    kind: str, shards: Shards, loads: Loads, cluster: Cluster, limits: Limits, *, apart: bool
) -> Place | None:
    """Returns the best placement of an option.

    Args:
        kind: its sharding type.
        shards: its shards, in order.
        loads: of the other tables.
        cluster: the ranks.
        limits: what to minimise within which limits.
        apart: whether no two shards may share a rank.

    Returns:
        The placement; None if there is none within the limits.
    """
    found: Place | None = None
    for field in _fields(kind, cluster):
        place = _spread(field, shards, loads, limits, apart)
        if place is not None and (found is None or _value(place, limits) < _value(found, limits)):
            found = place
    return found


def all_places(
    kind: str, shards: Shards, loads: Loads, cluster: Cluster, *, apart: bool, most: int
) -> Iterator[Place]:
    """Yields placements that fit: every place of a single block, else the best one by cost.

    Args:
        kind: as for best_place; so are `shards`, `loads`, `cluster` and `apart`.
        shards: the shards.
        loads: of the other tables.
        cluster: the ranks.
        apart: whether no two shards may share a rank.
        most: the number of placements, those with the smallest load first.
    """
    places = []
    for field in _fields(kind, cluster):
        if len(shards.cost) != field.ranks.shape[1]:
            place = _spread(field, shards, loads, Limits(), apart)
            places += [] if place is None else [place._replace(exact=False)]
            continue
        cost, lack = _slots(field, shards, loads, 1)
        places += [
            Place(field.ranks[at], float(cost[at, 0]), int(lack[at, 0]), exact=True)
            for at in np.flatnonzero(lack[:, 0] <= 0).tolist()
        ]
    places.sort(key=lambda place: place.cost)
    every = len(places) <= most
    for place in places[:most]:
        yield place if every else place._replace(exact=False)


def _value(place: Place, limits: Limits) -> float:
    return place.cost if limits.by == "cost" else place.lack


def _fields(kind: str, cluster: Cluster) -> Iterator[_Field]:
    """Yields the sets of places that the shards of an option may be spread over."""
    every = np.arange(cluster.ranks)
    if kind in UNIFORM_TYPES:
        yield _Field(every[None, :])
        return
    group = cluster.group
    hosts = every[: cluster.ranks // group * group].reshape(-1, group)
    if cluster.host is not None:
        hosts = hosts[cluster.host : cluster.host + 1]
    if kind in _BY_HOST:
        yield _Field(hosts)
    elif kind == "table_column_wise":
        for own in hosts:
            yield _Field(own[:, None])
    else:
        yield _Field((every if cluster.host is None else hosts.reshape(-1))[:, None])


def _slots(field: _Field, block: Shards, loads: Loads, most: int) -> tuple[Floats, Floats]:
    """Returns cost and lack of places with 1 to `most` blocks on them, a row for each place."""
    times = np.arange(1, most + 1)
    cost = loads.cost[field.ranks][:, None, :] + times[None, :, None] * block.cost
    used = times[None, :, None, None] * block.memory - loads.room[field.ranks][:, None, :, :]
    # A tier that the block does not use is not its concern.
    used = np.where(block.memory > 0, used, np.minimum(used, 0))
    return cost.max(axis=2), used.max(axis=(2, 3)).astype(np.float64)


def _spread(
    field: _Field, shards: Shards, loads: Loads, limits: Limits, apart: bool
) -> Place | None:
    """Returns the best placement of blocks on the places of a field."""
    size = field.ranks.shape[1]
    if len(shards.cost) % size or not len(field.ranks):
        return None
    cost, memory = shards.cost.reshape(-1, size), shards.memory.reshape(-1, size, 3)
    assert (cost == cost[0]).all(), "column blocks of an option are alike"
    assert (memory == memory[0]).all(), "column blocks of an option are alike"
    count = len(cost)
    most = 1 if apart else count
    slot_cost, slot_lack = _slots(field, Shards(cost[0], memory[0]), loads, most)
    value = slot_cost if limits.by == "cost" else slot_lack
    value = np.where((slot_cost <= limits.cost) & (slot_lack <= limits.lack), value, math.inf)
    # Of slots that are as good, those with fewer blocks below them come first.
    below = np.tile(np.arange(most), len(value))
    chosen = np.lexsort((below, value.reshape(-1)))[:count]
    if len(chosen) < count or not np.isfinite(value.reshape(-1)[chosen]).all():
        return None
    return Place(
        field.ranks[np.sort(chosen // most)].reshape(-1),
        float(slot_cost.reshape(-1)[chosen].max()),
        int(slot_lack.reshape(-1)[chosen].max()),
        exact=True,
    )
