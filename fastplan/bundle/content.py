"""What goes into a bundle: made anew, or taken over from one that is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastplan.bundle.format import Names, checksum, encode_start
from fastplan.files.atomic import replace_file

PlanId = tuple[str, str]  # a plan's key and name


class Blob(NamedTuple):
    """Bytes that are read when they are needed."""

    size: int
    checksum: str
    read: Callable[[], bytes]

    @classmethod
    def of(cls, data: bytes) -> Blob:
        return cls(len(data), checksum(data), lambda: data)


class Artifacts(NamedTuple):
    """Compile artifacts, and the local ranks they are for."""

    slots: frozenset[int]
    names: Names
    blob: Blob


class Kernel(NamedTuple):
    """A compiled library, and the local ranks that use it."""

    slots: frozenset[int]
    blob: Blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A bundle to be."""

    model: str | None
    facts: dict[str, str]
    plans: dict[PlanId, Blob] = field(default_factory=dict)
    artifacts: tuple[Artifacts, ...] = ()
    kernels: dict[str, Kernel] = field(default_factory=dict)  # by path

    @property
    def has_code(self) -> bool:
        return bool(self.artifacts or self.kernels)


def write_content(content: Content, path: str | os.PathLike[str]) -> None:
    """Writes the bundle, all at once: readers see the old file or the whole new one.

    Only its owner can write to it: its code is not trusted otherwise. Raises OSError, and
    ValueError for more than a header can describe.
    """
    replace_file(path, _pieces(content), others_write=False)


def content_bytes(content: Content) -> bytes:
    """What `write_content` writes."""
    return b"".join(_pieces(content))


def _pieces(content: Content) -> Iterator[bytes]:
    described = list(_described(content))
    yield encode_start(
        {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "facts": content.facts,
            "model": content.model,
            "parts": [
                {**told, "size": blob.size, "checksum": blob.checksum} for told, blob in described
            ],
        }
    )
    for _, blob in described:
        yield blob.read()


def _described(content: Content) -> Iterator[tuple[dict[str, Any], Blob]]:
    for (key, name), blob in content.plans.items():
        yield {"kind": "plan", "key": key, "name": name}, blob
    for slots, names, blob in content.artifacts:
        yield {"kind": "artifacts", "slots": sorted(slots), "names": names}, blob
    for path, (slots, blob) in content.kernels.items():
        yield {"kind": "kernel", "path": path, "slots": sorted(slots)}, blob
