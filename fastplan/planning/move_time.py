"""How long moves take: all tables move together, and ranks may share a link.

With hardware costs, the links are as fast as in an all_to_all of theirs. Otherwise TorchRec's
bandwidths count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.model.hardware_costs import CONSTANTS
from fastplan.model.request import CostModel, Request

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class LinkSums(NamedTuple):
    """Bytes by rank: received and sent, from and to its own host and others."""

    near_received: Ints
    far_received: Ints
    near_sent: Ints
    far_sent: Ints


class _Link(NamedTuple):
    """A way between two ranks."""

    latency: float  # ms
    byte: float  # ms per byte


def move_seconds(sums: LinkSums, request: Request | None, hosts: Ints) -> float | None:
    """Returns the time of the rank that takes longest; None without known bandwidths.

    `fastplan.reshard` exchanges all tables together, and a rank sends and receives at the same
    time:
        seconds(rank) = sum over near and far of latency + max(sent, received) / bandwidth.

    Args:
        sums: the bytes of all moves.
        request: whose costs have the bandwidths.
        hosts: of each rank.
    """
    if request is None:
        return None
    ms = np.zeros(len(hosts))
    shares = _link_shares(sums, hosts, request.cost)
    for sent, received, link, share in (
        (sums.near_sent, sums.near_received, _near(request), np.ones(len(hosts))),
        (sums.far_sent, sums.far_received, _far(request), shares),
    ):
        busy = np.maximum(sent, received)
        if busy.any():
            if link is None:
                return None
            ms += (busy > 0) * link.latency + busy * link.byte * share
    return float(ms.max(initial=0.0)) / 1000


def _link_shares(sums: LinkSums, hosts: Ints, cost: CostModel) -> Floats:
    """Returns, by rank, how many ranks share its link to other hosts while it moves tables.

    Each GPU has a card of its own. The CPU ranks of a host share one:
        share = bytes of the host / bytes of its busiest rank, in the busier direction.
    """
    shares = np.ones(len(hosts))
    if cost.device_kind != "cpu":
        return shares
    for sent in (sums.far_sent, sums.far_received):
        total, most = np.zeros(len(hosts)), np.zeros(len(hosts))
        np.add.at(total, hosts, sent)
        np.maximum.at(most, hosts, sent)
        own = np.divide(total, most, out=np.ones(len(hosts)), where=most > 0)
        shares = np.maximum(shares, own[hosts])
    return shares


def _near(request: Request) -> _Link | None:
    """Returns the way between ranks of one host."""
    if request.hardware is not None:
        return _hardware_link(request, "domain", request.hardware.domain_ranks, 1)
    return _first_link(_near_bandwidths(request.cost))


def _far(request: Request) -> _Link | None:
    """Returns the way between hosts, for a rank that has the link for itself."""
    cost = request.cost
    if request.hardware is not None:
        shared = request.hardware.domain_ranks if cost.device_kind == "cpu" else 1
        return _hardware_link(request, "network", cost.perf_world_size, shared)
    return _first_link(_far_bandwidths(cost))


def _hardware_link(request: Request, scope: str, ranks: int, shared: int) -> _Link | None:
    """Returns a link at the rate of an all_to_all over it, in which `shared` ranks share it."""
    assert request.hardware is not None
    values = {
        constant.name: value
        for constant, value in zip(CONSTANTS, request.hardware.constants, strict=True)
        if constant.group == f"{scope}_all_to_all"
    }
    byte = (values["efficiency"] + values["small_group"] / max(ranks, 1)) / shared
    return _Link(values["latency"], byte) if byte > 0 else None


def _first_link(bandwidths: Iterable[float]) -> _Link | None:
    found = next((each for each in bandwidths if 0 < each < np.inf), None)
    return None if found is None else _Link(0.0, 1 / found)


def _near_bandwidths(cost: CostModel) -> Iterator[float]:
    yield cost.bw_group_all_gather
    yield cost.bw_group_reduce_scatter
    if cost.perf_world_size <= cost.perf_local_world_size:
        yield cost.bw_world_all_to_all


def _far_bandwidths(cost: CostModel) -> Iterator[float]:
    yield cost.bw_across_all_to_all
    if cost.perf_world_size > cost.perf_local_world_size:
        yield cost.bw_world_all_to_all
