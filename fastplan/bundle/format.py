"""The format of a start bundle: a header that describes all parts, and the parts behind it.

    magic, schema (u16), header after its length (u32), checksum of all before, the parts

The header is canonical JSON and has the length and checksum of every part, so that a reader takes
just the parts it needs. Numbers are little-endian, checksums are BLAKE2b-128. They find damage, not
malice: what a part may do to its reader is not the format's business.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, NoReturn

from fastplan.cache.entry import MAX_ENTRY, is_key
from fastplan.cache.fingerprint import canonical_json

# The high byte and the line ends show files that went through a text mode, as PNG's do.
MAGIC = b"\x89fpstart\r\n\x1a\n"
SCHEMA = 1

MAX_HEADER = 16 << 20
MAX_ARTIFACTS = 4 << 30
MAX_KERNEL = 256 << 20
MAX_PLANS = 256
MAX_SLOT = 1023

_START = struct.Struct("<HI")
_CHECKSUM_SIZE = 16
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[0-9a-z-]{1,64}")  # as stores take them
_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,254}")

Names = dict[str, tuple[str, ...]]  # keys of compile artifacts by kind, such as inductor


class BadBundle(Exception):
    """The bytes are not a usable bundle; `reason` says why, in words for a report."""

    def __init__(self, reason: str, name: str | None = None) -> None:
        super().__init__(reason if name is None else f"{name}: {reason}")
        self.reason = reason


class Span(NamedTuple):
    """Where a part lies in the file, and the checksum that it must have."""

    at: int
    size: int
    checksum: str


class PlanPart(NamedTuple):
    """A plan as the plan cache keeps it: an entry under its key and name."""

    key: str
    name: str
    span: Span


class ArtifactPart(NamedTuple):
    """What torch.compiler.save_cache_artifacts gave, for the local ranks that it serves."""

    slots: tuple[int, ...]
    names: Names
    span: Span


class KernelPart(NamedTuple):
    """A library that torch compiled for the CPU, by its path in torch's compile cache."""

    path: str
    slots: tuple[int, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """All about a bundle but its content."""

    created: str
    model: str | None
    facts: dict[str, str]  # versions and device that the compiled code was made with
    plans: tuple[PlanPart, ...]
    artifacts: tuple[ArtifactPart, ...]
    kernels: tuple[KernelPart, ...]
    size: int  # of the whole file


Read = Callable[[int, int], bytes]  # offset and length; gives less where the file ends


def checksum(data: bytes) -> str:
    """What a part's span has."""
    return blake2b(data, digest_size=_CHECKSUM_SIZE).hexdigest()


def encode_start(fields: dict[str, Any]) -> bytes:
    """What stands before the parts. Raises ValueError for a header over its limit."""
    header = canonical_json(fields)
    if len(header) > MAX_HEADER:
        raise ValueError(f"the header must be at most {MAX_HEADER} bytes, not {len(header)}")
    start = MAGIC + _START.pack(SCHEMA, len(header)) + header
    return start + bytes.fromhex(checksum(start))


def read_header(read: Read, size: int) -> Header:
    """The header of a file of that size. Raises BadBundle, and nothing else, for any bytes."""
    head = read(0, len(MAGIC) + _START.size)
    if not head.startswith(MAGIC):
        raise BadBundle("truncated" if head and MAGIC.startswith(head) else "not a start bundle")
    if len(head) < len(MAGIC) + _START.size:
        raise BadBundle("truncated")
    schema, length = _START.unpack_from(head, len(MAGIC))
    # Before the checksum: another schema may have another one.
    if schema != SCHEMA:
        known = "newer" if schema > SCHEMA else "unknown"
        raise BadBundle(f"{known} schema {schema}, this version reads {SCHEMA}")
    if length > MAX_HEADER:
        raise BadBundle(f"header of {length} bytes, the limit is {MAX_HEADER}")
    rest = read(len(head), length + _CHECKSUM_SIZE)
    if len(rest) < length + _CHECKSUM_SIZE:
        raise BadBundle("truncated")
    header = rest[:length]
    if bytes.fromhex(checksum(head + header)) != rest[length:]:
        raise BadBundle("the header's checksum does not match")
    found = _header(_parse(header), len(head) + len(rest))
    if size != found.size:
        problem = "truncated" if size < found.size else "extra bytes after its end"
        raise BadBundle(f"{problem}: {size} bytes, the header tells of {found.size}")
    return found


def read_part(read: Read, span: Span, what: str) -> bytes:
    """A part's bytes. Raises BadBundle unless they are those that the header tells of."""
    data = read(span.at, span.size)
    if len(data) != span.size or checksum(data) != span.checksum:
        raise BadBundle(f"{what}: the checksum does not match")
    return data


def _parse(header: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(
            header.decode("ascii"), parse_int=_whole, parse_float=_refuse, parse_constant=_refuse
        )
        canonical = canonical_json(fields)
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"header is not valid JSON: {str(error)[:80]}") from None
    if type(fields) is not dict:
        raise BadBundle("header is not a JSON object")
    if canonical != header:
        raise BadBundle("header is not canonical JSON")
    return fields


def _whole(text: str) -> int:
    # Python takes quadratic time for long ones.
    if len(text) > 18:
        raise ValueError("integer over 18 digits")
    return int(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"only whole numbers are allowed, not {text[:20]}")


def _header(fields: dict[str, Any], at: int) -> Header:
    """Fields and kinds of parts that this version does not know are passed over, so that later
    versions can add some."""
    plans, artifacts, kernels = [], [], []
    for i, part in enumerate(_a_list(fields.get("parts"), "parts")):
        place = f"parts[{i}]"
        if type(part) is not dict:
            raise BadBundle(f"{place} is not an object")
        kind = _text(part.get("kind"), f"{place}.kind")
        span = _span(part, at, _LIMITS.get(kind, MAX_ARTIFACTS), place)
        at += span.size
        if kind == "plan":
            plans.append(_plan(part, span, place))
        elif kind == "artifacts":
            artifacts.append(_artifacts(part, span, place))
        elif kind == "kernel":
            kernels.append(_kernel(part, span, place))
    if len(plans) > MAX_PLANS:
        raise BadBundle(f"{len(plans)} plans, the limit is {MAX_PLANS}")
    _once([(part.key, part.name) for part in plans], "plan")
    _once([part.path for part in kernels], "kernel")
    model = fields.get("model")
    return Header(
        created=_text(fields.get("created"), "created"),
        model=None if model is None else _text(model, "model"),
        facts=_facts(fields.get("facts")),
        plans=tuple(plans),
        artifacts=tuple(artifacts),
        kernels=tuple(kernels),
        size=at,
    )


_LIMITS = {"plan": MAX_ENTRY, "artifacts": MAX_ARTIFACTS, "kernel": MAX_KERNEL}


def _span(part: dict[str, Any], at: int, limit: int, place: str) -> Span:
    size, digest = part.get("size"), part.get("checksum")
    if type(size) is not int or not 0 <= size <= limit:
        raise BadBundle(f"{place}.size must be from 0 to {limit}")
    if type(digest) is not str or not _CHECKSUM.fullmatch(digest):
        raise BadBundle(f"{place}.checksum must be 32 hex digits")
    return Span(at, size, digest)


def _plan(part: dict[str, Any], span: Span, place: str) -> PlanPart:
    key, name = part.get("key"), part.get("name")
    if type(key) is not str or not is_key(key):
        raise BadBundle(f"{place}.key must be 16 to 128 lower-case hex digits")
    if type(name) is not str or not _NAME.fullmatch(name):
        raise BadBundle(f"{place}.name must be 1 to 64 of a-z, 0-9 and '-'")
    return PlanPart(key, name, span)


def _artifacts(part: dict[str, Any], span: Span, place: str) -> ArtifactPart:
    names = part.get("names")
    if type(names) is not dict:
        raise BadBundle(f"{place}.names must be an object")
    found = {
        kind: tuple(_text(key, f"{place}.names") for key in _a_list(keys, f"{place}.names"))
        for kind, keys in names.items()
    }
    return ArtifactPart(_slots(part.get("slots"), place), found, span)


def _kernel(part: dict[str, Any], span: Span, place: str) -> KernelPart:
    path = part.get("path")
    if type(path) is not str or not is_kernel_path(path):
        raise BadBundle(f"{place}.path must be the path of a library below a folder")
    return KernelPart(path, _slots(part.get("slots"), place), span)


def is_kernel_path(path: str) -> bool:
    """Whether it stays below the folder that it is joined to."""
    steps = path.split("/")
    return len(steps) <= 8 and path.endswith(".so") and all(map(_STEP.fullmatch, steps))


def _slots(value: Any, place: str) -> tuple[int, ...]:
    slots = _a_list(value, f"{place}.slots")
    if not all(type(slot) is int and 0 <= slot <= MAX_SLOT for slot in slots):
        raise BadBundle(f"{place}.slots must be local ranks from 0 to {MAX_SLOT}")
    return tuple(slots)


def _facts(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise BadBundle("facts must be an object")
    return {name: _text(fact, f"facts.{name[:40]}") for name, fact in value.items()}


def _once(found: list[Any], what: str) -> None:
    if len(set(found)) != len(found):
        raise BadBundle(f"a {what} is there twice")


def _a_list(value: Any, place: str) -> list[Any]:
    if type(value) is not list:
        raise BadBundle(f"{place} must be a list")
    return value


def _text(value: Any, place: str) -> str:
    if type(value) is not str:
        raise BadBundle(f"{place} must be a text")
    return value
