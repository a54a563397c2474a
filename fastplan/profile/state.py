"""Profiles on disk: the container that caches and bundles have, with a part for each table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.files.storage import (
    ContainerError,
    Format,
    checksum,
    describe,
    encode_start,
    read_header,
    read_part,
    replace_file,
)
from fastplan.profile.sources import ProfileError, Unit
from fastplan.profile.table import TableProfile

_FORMAT = Format(
    name="a profile",
    magic=b"\x89FPI\r\n\x1a\n",
    schema=1,
    max_header=16 << 20,
    max_parts={"table": 1 << 30},
)
# The type of every column. Files can't choose them.
_COLUMNS: dict[str, Any] = {
    "id": np.int64,
    "last": np.uint64,
    "count": np.uint64,
    "recent": np.uint32,
    "state": np.uint8,
    "was_hot": np.uint8,
    "sketch": np.uint8,
    "counts": np.uint64,
    "weights": np.float64,
    "samples": np.int64,
    "lengths": np.float64,
    **{
        f"{kind}_{what}{part}": np.float64
        for kind in ("hot", "cold")
        for what in ("times", "distances")
        for part in ("", "_sum")
    },
}
_MOST_LIMIT = 1 << 24


@dataclass(slots=True)
class Profile:
    """The profiles of a model's tables, and how much of the data is in them.

    Attributes:
        tables: By name.
        limit: How many ids each table follows at most.
        done: The number of finished units.
        batches: The number of batches of the next unit.
        digest: What the finished units and the one with batches were.
    """

    tables: dict[str, TableProfile]
    limit: int
    done: int = 0
    batches: int = 0
    digest: str = ""

    @property
    def begun(self) -> int:
        """The number of units that have batches in the profile."""
        return self.done + (self.batches > 0)


def digest_of(units: Sequence[Unit]) -> str:
    """Returns a hash of the names and sizes of files, and of their parts."""
    found = blake2b(digest_size=16)
    for unit in units:
        found.update(f"{os.path.basename(unit.file)}\0{unit.group}\0{unit.size}\0".encode())
    return found.hexdigest()


def write_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Writes a profile, so that it can be continued or merged.

    Raises:
        OSError: The file can't be written.
    """
    parts, bodies = [], []
    for name, table in profile.tables.items():
        columns = table.columns()
        body = b"".join(columns[each].astype(kind).tobytes() for each, kind in _COLUMNS.items())
        lengths = [len(columns[each]) for each in _COLUMNS]
        parts.append(describe("table", len(body), checksum(body), name=name, lengths=lengths))
        bodies.append(body)
    names = ("limit", "done", "batches", "digest")
    fields = {name: getattr(profile, name) for name in names}
    replace_file(path, [encode_start(_FORMAT, fields, parts), *bodies])


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Reads a profile.

    Raises:
        ProfileError: The file can't be read, or is not a usable profile.
    """
    try:
        data = Path(path).read_bytes()
        return parse_profile(data)
    except OSError as error:
        raise ProfileError(f"{path}: can't be read: {error.strerror or error}") from error
    except (ContainerError, TypeError) as error:
        raise ProfileError(f"{path}: is not a usable profile: {error}; remove it") from error


def parse_profile(data: bytes) -> Profile:
    """Returns the profile in bytes.

    Raises:
        ContainerError, TypeError: For any bytes that are not a profile; nothing else.
    """

    def read(at: int, length: int) -> bytes:
        return data[at : at + length]

    header = read_header(_FORMAT, read, len(data))
    limit, digest = header.fields.get("limit"), header.fields.get("digest")
    done, batches = header.fields.get("done"), header.fields.get("batches")
    if type(limit) is not int or not 1 <= limit <= _MOST_LIMIT or limit & (limit - 1):
        raise ContainerError("`limit` must be a power of two")
    for count in (done, batches):
        if type(count) is not int or count < 0:
            raise ContainerError("`done` and `batches` must be whole numbers")
    if type(digest) is not str:
        raise ContainerError("`digest` must be a text")
    profile = Profile({}, limit, done or 0, batches or 0, digest)
    for part in header.parts:
        name, lengths = part.fields.get("name"), part.fields.get("lengths")
        if type(name) is not str or name in profile.tables:
            raise ContainerError("each part must have a name of its own")
        table = TableProfile(limit)
        table.restore(_columns(read_part(read, part.span, f"table {name!r}"), lengths))
        profile.tables[name] = table
    return profile


def _columns(body: bytes, lengths: object) -> dict[str, NDArray[Any]]:
    if type(lengths) is not list or len(lengths) != len(_COLUMNS):
        raise ContainerError("`lengths` must have an entry for each column")
    found, at = {}, 0
    for (name, kind), length in zip(_COLUMNS.items(), lengths, strict=True):
        size = np.dtype(kind).itemsize
        if type(length) is not int or not 0 <= length <= (len(body) - at) // size:
            raise ContainerError(f"`lengths` of column {name!r} can't be")
        # A copy is aligned.
        found[name] = np.frombuffer(body, kind, length, at).copy()
        at += length * size
    if at != len(body):
        raise ContainerError("a part is longer than its columns")
    return found
