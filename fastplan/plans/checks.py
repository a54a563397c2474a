"""Checks values of a plan file, placements of ranks such as `rank:9/cuda:1` among them.

Errors name the place in the file and the expected value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple, NoReturn, TypeVar

from msgspec import Struct

from fastplan.files.codec import Mismatch, decode_value
from fastplan.files.document import below as below
from fastplan.model.units import LARGEST as LARGEST

T = TypeVar("T", bound=Struct)


class PlanFileError(ValueError):
    """A malformed plan file, or a plan that a file can't represent.

    Attributes:
        path: The file.
        place: The place in its JSON.
        problem: The error there.
    """

    def __init__(self, path: str, place: str, problem: str) -> None:
        super().__init__(f"{path}: {place}: {problem}" if place else f"{path}: {problem}")
        self.path = path
        self.place = place
        self.problem = problem


class BadValue(ValueError):
    """An invalid value in a plan file, with its place in the file."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def inside(self, place: str) -> BadValue:
        """Returns the same error with `place` in front of its place, which is relative to it."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return BadValue(f"{place}{joint}{self.place}", self.problem)


def refuse(place: str, expected: str, value: Any) -> NoReturn:
    """Raises BadValue with the expected and the actual value."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    raise BadValue(place, f"must be {expected}, not {text}")


def as_struct(value: Any, kind: type[T]) -> T:
    """Decodes an object.

    Raises:
        BadValue: The object does not match the struct. Its place is relative to the object.
    """
    try:
        return decode_value(value, kind)
    except Mismatch as error:
        steps = max(error.steps, error.line_of, key=len)  # includes the name of an unknown field
        raise BadValue(reduce(below, steps, ""), error.problem) from error


def as_text(value: Any, place: str) -> str:
    """Returns a string. Raises BadValue for any other value."""
    if type(value) is not str:
        refuse(place, "a string", value)
    return value


def as_whole(value: Any, place: str, least: int = 0) -> int:
    """Returns an integer of at least `least`. Raises BadValue for any other value."""
    if type(value) is not int or not least <= value <= LARGEST:
        refuse(place, f"a whole number from {least} to 2^63-1", value)
    return value


def as_wholes(value: Any, place: str) -> list[int]:
    """Returns a list of integers. Raises BadValue for any other value."""
    return [as_whole(item, f"{place}[{i}]") for i, item in enumerate(as_list(value, place))]


def as_object(value: Any, place: str) -> dict[str, Any]:
    """Returns a JSON object. Raises BadValue for any other value."""
    if type(value) is not dict:
        refuse(place, "an object", value)
    return value


def as_list(value: Any, place: str) -> list[Any]:
    """Returns a list. Raises BadValue for any other value."""
    if type(value) is not list:
        refuse(place, "a list", value)
    return value


def check_fields(
    fields: Mapping[str, Any], known: Iterable[str], place: str, required: Iterable[str] = ()
) -> None:
    """Raises BadValue for unknown and for missing fields."""
    for name in fields:
        if name not in known:
            raise BadValue(below(place, name), f"is unknown; known are {', '.join(known)}")
    for name in required:
        if name not in fields:
            raise BadValue(below(place, name), "is missing")


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
