"""Placements of ranks such as `rank:9/cuda:1`, and the rule that they follow."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastplan.plans.checks import LARGEST, BadValue, as_text, as_whole, refuse

# Devices that have an index in a placement.
INDEXED_DEVICES = frozenset({"cuda", "mtia", "tpu"})

_RANKED = re.compile(r"rank:(\d{1,18})(?:/([A-Za-z_]+)(?::(\d{1,4}))?)?", re.ASCII)
_KIND = re.compile(r"[A-Za-z_]+", re.ASCII)


class Device(NamedTuple):
    """The device of a rank: its kind, and its number on the host."""

    rank: int
    kind: str
    number: int  # 0 if the placement has none


class PlacementRule(NamedTuple):
    """Where TorchRec places a rank: a kind of device, and the number of ranks per host.

    Without `ranks_per_host`, all ranks are on one host.
    """

    device: str
    ranks_per_host: int | None

    @classmethod
    def of(cls, topology: Any) -> PlacementRule:
        """Returns the rule of a TorchRec topology."""
        return cls(topology.compute_device, topology.local_world_size)

    def text(self, rank: int) -> str:
        """Returns the placement of a rank."""
        if self.device not in INDEXED_DEVICES:
            return f"rank:{rank}/{self.device}"
        return f"rank:{rank}/{self.device}:{rank % (self.ranks_per_host or LARGEST)}"


def read_placement(text: str, place: str) -> Device | None:
    """Returns the device in a placement; None if the placement names no rank.

    Args:
        text: The placement.
        place: Its place in the file, for errors.

    Raises:
        BadValue: It is not a placement.
    """
    if not text.startswith("rank:"):
        return None
    found = _RANKED.fullmatch(text)
    if found is None:
        raise BadValue(place, f"must be a placement such as rank:0/cuda:0, not {text!r:.60}")
    return Device(int(found[1]), found[2] or "cpu", int(found[3] or 0))


def read_rule(device: Any, ranks_per_host: Any) -> PlacementRule | None:
    """Reads the rule from the fields of a file's header; None without a device.

    Raises:
        BadValue: A field is invalid.
    """
    host = None if ranks_per_host is None else as_whole(ranks_per_host, "ranks_per_host", 1)
    if device is None:
        return None
    if not _KIND.fullmatch(as_text(device, "device")):
        refuse("device", "a kind of device without an index", device)
    return PlacementRule(device, host)


def infer_rule(seen: Mapping[Device, int]) -> PlacementRule | None:
    """Returns the rule that most placements follow, from the number of each; None without any.

    If several host sizes explain the placements, the largest is used. A rank that a user adds then
    gets the right device or one that does not exist, but not another rank's device.
    """
    kinds: Counter[str] = Counter()
    for device, count in seen.items():
        kinds[device.kind] += count
    if not kinds:
        return None
    kind = kinds.most_common(1)[0][0]
    if kind not in INDEXED_DEVICES:
        return PlacementRule(kind, None)
    pairs = [(device.rank, device.number) for device in seen if device.kind == kind]
    host = _host_size(pairs)
    return PlacementRule(kind, None if host == LARGEST else host)


def _host_size(pairs: list[tuple[int, int]]) -> int:
    """Returns the number of ranks per host that explains most ranks and their devices."""
    common = math.gcd(*(rank - index for rank, index in pairs)) or LARGEST
    if all(rank % common == index for rank, index in pairs):
        return common
    candidates = {rank - index for rank, index in pairs if rank > index} | {LARGEST}
    return max(
        candidates, key=lambda host: (sum(rank % host == index for rank, index in pairs), host)
    )
