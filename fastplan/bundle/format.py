"""The file format of a start bundle, and the content of a bundle to write.

A bundle is a container whose header has the model, the environment of the compiled code and the
time of writing. Its parts are plans, torch's compile artifacts and CPU kernels.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from fastplan.cache.entry import MAX_ENTRY
from fastplan.files.storage import (
    ContainerError,
    Format,
    Part,
    Read,
    Span,
    checksum,
    describe,
    encode_start,
    replace_file,
)
from fastplan.files.storage import read_header as read_container
from fastplan.files.storage import read_part as read_container_part

MAX_HEADER = 16 << 20
MAX_ARTIFACTS = 4 << 30
MAX_KERNEL = 256 << 20
MAX_PLANS = 256
MAX_SLOT = 1023

FORMAT = Format(
    name="a start bundle",
    magic=b"\x89fpstart\r\n\x1a\n",
    schema=1,
    max_header=MAX_HEADER,
    max_parts={"plan": MAX_ENTRY, "artifacts": MAX_ARTIFACTS, "kernel": MAX_KERNEL},
    max_other=MAX_ARTIFACTS,
)

# A path that stays below the folder that it is joined to.
_STEP = r"[A-Za-z0-9_][A-Za-z0-9._+-]"
_KERNEL_PATH = rf"\A(?:{_STEP}{{0,254}}/){{0,7}}{_STEP}{{0,251}}\.so\Z"

Names = dict[str, tuple[str, ...]]  # keys of compile artifacts by kind, such as inductor
PlanId = tuple[str, str]  # a plan's key and name
T = TypeVar("T")

_Key = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16,128}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-z-]{1,64}\Z")]  # as stores allow it
_Slots = tuple[Annotated[int, msgspec.Meta(ge=0, le=MAX_SLOT)], ...]


class BundleError(ContainerError):
    """The bytes are not a usable bundle.

    Attributes:
        reason: What is wrong, without the name of the file.
    """

    def __init__(self, reason: str, name: str | None = None) -> None:
        super().__init__(reason if name is None else f"{name}: {reason}")
        self.reason = reason


class PlanPart(msgspec.Struct, frozen=True):
    """A plan, stored as an entry of the plan cache with its key and name."""

    key: _Key
    name: _Name
    span: Span


class ArtifactPart(msgspec.Struct, frozen=True):
    """The bytes of torch.compiler.save_cache_artifacts, and the local ranks that use them."""

    slots: _Slots
    names: Names
    span: Span


class KernelPart(msgspec.Struct, frozen=True):
    """A library that torch compiled for the CPU, with its path in torch's compile cache."""

    path: Annotated[str, msgspec.Meta(pattern=_KERNEL_PATH)]
    slots: _Slots
    span: Span


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a bundle.

    Attributes:
        created: The time of writing.
        facts: The versions and the device of the compiled code.
        model: The model's name; None if unknown.
        plans: The plans.
        artifacts: torch's compile artifacts.
        kernels: The CPU kernels.
        size: The size of the whole file in bytes.
    """

    created: str
    facts: dict[str, str]
    model: str | None = None
    plans: tuple[PlanPart, ...] = ()
    artifacts: tuple[ArtifactPart, ...] = ()
    kernels: tuple[KernelPart, ...] = ()
    size: int = 0


class Blob(NamedTuple):
    """Bytes that are read on demand."""

    size: int
    checksum: str
    read: Callable[[], bytes]

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Returns a blob of bytes in memory."""
        return cls(len(data), checksum(data), lambda: data)


class Artifacts(NamedTuple):
    """Compile artifacts, and the local ranks that use them."""

    slots: frozenset[int]
    names: Names
    blob: Blob


class Kernel(NamedTuple):
    """A compiled library, and the local ranks that use it."""

    slots: frozenset[int]
    blob: Blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a bundle before it is written; kernels are by path."""

    model: str | None
    facts: dict[str, str]
    plans: dict[PlanId, Blob] = field(default_factory=dict)
    artifacts: tuple[Artifacts, ...] = ()
    kernels: dict[str, Kernel] = field(default_factory=dict)

    @property
    def has_code(self) -> bool:
        """Whether it contains compiled code."""
        return bool(self.artifacts or self.kernels)


def read_header(read: Read, size: int) -> Header:
    """Reads and checks the header of a bundle.

    Unknown fields and kinds of parts are ignored, so that later versions can add some.

    Args:
        read: Reads from the bundle.
        size: The size of the bundle in bytes.

    Raises:
        BundleError: For any bytes that are not a bundle; nothing else.
    """
    try:
        fields, parts, end = read_container(FORMAT, read, size)
    except ContainerError as problem:
        raise BundleError(problem.reason) from None
    plans = tuple(_parts(parts, "plan", PlanPart))
    kernels = tuple(_parts(parts, "kernel", KernelPart))
    if len(plans) > MAX_PLANS:
        raise BundleError(f"{len(plans)} plans, the limit is {MAX_PLANS}")
    _check_unique([(part.key, part.name) for part in plans], "plan")
    _check_unique([part.path for part in kernels], "kernel")
    header = _convert(
        {**fields, "plans": (), "artifacts": (), "kernels": (), "size": end}, Header, ""
    )
    artifacts = tuple(_parts(parts, "artifacts", ArtifactPart))
    return msgspec.structs.replace(header, plans=plans, artifacts=artifacts, kernels=kernels)


def read_part(read: Read, span: Span, name: str) -> bytes:
    """Reads a part and checks it.

    Raises:
        BundleError: The part differs from the header's description.
    """
    try:
        return read_container_part(read, span, name)
    except ContainerError as problem:
        raise BundleError(problem.reason) from None


def is_kernel_path(path: str) -> bool:
    """Returns whether a path stays below the folder that it is joined to."""
    return re.match(_KERNEL_PATH, path) is not None


def write_content(content: Content, path: str | os.PathLike[str]) -> None:
    """Writes a bundle atomically: readers see the old file or the whole new one.

    Only its owner can write to the file; otherwise its code would not be trusted.

    Raises:
        OSError: The file can't be written.
        ValueError: The header is over its limit.
    """
    replace_file(path, _pieces(content), others_write=False)


def content_bytes(content: Content) -> bytes:
    """Returns the bytes that `write_content` writes."""
    return b"".join(_pieces(content))


def _pieces(content: Content) -> Iterator[bytes]:
    parts = list(_described(content))
    fields = {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "facts": content.facts,
        "model": content.model,
    }
    yield encode_start(FORMAT, fields, [described for described, _ in parts])
    for _, blob in parts:
        yield blob.read()


def _described(content: Content) -> Iterator[tuple[dict[str, object], Blob]]:
    for (key, name), blob in content.plans.items():
        yield describe("plan", blob.size, blob.checksum, key=key, name=name), blob
    for slots, names, blob in content.artifacts:
        fields = {"slots": sorted(slots), "names": names}
        yield describe("artifacts", blob.size, blob.checksum, **fields), blob
    for path, (slots, blob) in content.kernels.items():
        yield describe("kernel", blob.size, blob.checksum, path=path, slots=sorted(slots)), blob


def _parts(parts: list[Part], kind: str, struct: type[T]) -> Iterator[T]:
    for i, part in enumerate(parts):
        if part.kind == kind:
            yield _convert({**part.fields, "span": part.span}, struct, f"parts[{i}]")


def _convert(fields: dict[str, Any], struct: type[T], place: str) -> T:
    try:
        return msgspec.convert(fields, struct)
    # msgspec encodes strings that it can't convert; lone surrogates fail then.
    except (msgspec.ValidationError, UnicodeError) as error:
        expected, _, path = str(error).partition(" - at `$")
        where = f"{place}{path.rstrip('`')}".removeprefix(".")
        raise BundleError(f"{where or 'header'}: {expected}") from None


def _check_unique(found: list[Any], kind: str) -> None:
    if len(set(found)) != len(found):
        raise BundleError(f"duplicate {kind}")
