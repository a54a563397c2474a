"""The entry: one cached plan as one self-describing byte string.

    magic, schema (u16), header, payload and request, each after its length (u32), checksum

The header is canonical JSON, so an entry has exactly one encoding. Numbers are little-endian, the
checksum is BLAKE2b-128 over everything before it. Nothing in an entry is ever evaluated.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NoReturn

# The high byte and the line ends show files that went through a text mode, as PNG's do.
MAGIC = b"\x89fastplan\r\n\x1a\n"
SCHEMA = 1

MAX_HEADER = 1 << 20
MAX_SECTION = 16 << 20
MAX_REQUEST = 16 << 20  # unpacked
MAX_CERTIFICATE = 64 << 10

_SCHEMA = struct.Struct("<H")
_LENGTH = struct.Struct("<I")
_CHECKSUM_SIZE = 16
_SECTIONS = (("header", MAX_HEADER), ("payload", MAX_SECTION), ("request", MAX_SECTION))
MAX_ENTRY = (
    len(MAGIC) + _SCHEMA.size + sum(_LENGTH.size + limit for _, limit in _SECTIONS) + _CHECKSUM_SIZE
)

_KEY = re.compile(r"[0-9a-f]{16,128}")
_SIGNATURE = re.compile(r"[0-9a-f]{0,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_INT64 = range(-(1 << 63), 1 << 63)

CapacityRun = tuple[int, int, int, int]  # ranks in a row with the same bytes of HBM, DDR and SSD


class BadEntry(Exception):
    """The bytes are not a usable entry; `reason` says why, in words for a report."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cached plan. Raises ValueError that names the field if its type or range is wrong."""

    key: str  # fingerprint of the request, in hex
    capacities: tuple[CapacityRun, ...]  # that the plan was solved for
    rating: float
    payload: bytes  # the packed plan
    request: bytes  # from `pack_request`; may be empty
    provenance: dict[str, str | int | float]  # versions, time, host, summary
    certificate: bytes = b""  # packed; what a bound on all plans is proven by
    signature: str = ""  # by a key that the cache's owners share, in hex; see signing.py

    def __post_init__(self) -> None:
        if type(self.key) is not str or not is_key(self.key):
            raise ValueError("`key` must be 16 to 128 lower-case hex digits")
        if type(self.capacities) is not tuple or not all(map(_is_run, self.capacities)):
            raise ValueError("`capacities` must be runs of (ranks >= 1, hbm, ddr, ssd), 64-bit")
        if type(self.rating) is not float or not math.isfinite(self.rating):
            raise ValueError("`rating` must be a finite float")
        if type(self.payload) is not bytes or type(self.request) is not bytes:
            raise ValueError("`payload` and `request` must be bytes")
        if type(self.provenance) is not dict or not all(map(_is_fact, self.provenance.items())):
            raise ValueError("`provenance` must map text to text, 64-bit ints or finite floats")
        if type(self.certificate) is not bytes or len(self.certificate) > MAX_CERTIFICATE:
            raise ValueError(f"`certificate` must be at most {MAX_CERTIFICATE} bytes")
        if type(self.signature) is not str or not _SIGNATURE.fullmatch(self.signature):
            raise ValueError("`signature` must be up to 128 lower-case hex digits")


def is_key(text: str) -> bool:
    """Whether it can be an entry's key."""
    return _KEY.fullmatch(text) is not None


def encode(entry: Entry) -> bytes:
    """The entry as bytes. Raises ValueError for a section over its limit."""
    fields: dict[str, object] = {
        "capacities": entry.capacities,
        "key": entry.key,
        "provenance": entry.provenance,
        "rating": entry.rating.hex(),
    }
    if entry.certificate:
        fields["certificate"] = certificate_text(entry.certificate)
    if entry.signature:
        fields["signature"] = entry.signature
    header = _canonical(fields)
    parts = [MAGIC, _SCHEMA.pack(SCHEMA)]
    for (name, limit), section in zip(
        _SECTIONS, (header, entry.payload, entry.request), strict=True
    ):
        if len(section) > limit:
            raise ValueError(f"`{name}` must be at most {limit} bytes, not {len(section)}")
        parts += [_LENGTH.pack(len(section)), section]
    body = b"".join(parts)
    return body + _checksum(body)


def decode(data: bytes) -> Entry:
    """The entry in `data`. Raises BadEntry, and nothing else, whatever the bytes are.

    Header fields this version does not know are ignored, so that later versions can add some; so
    is a certificate that is none, which says nothing about the plan.
    """
    header, payload, request = _split(data)
    fields = _parse(header)
    try:
        return Entry(
            key=fields["key"],
            capacities=_runs(fields["capacities"]),
            rating=_rating(fields["rating"]),
            payload=payload,
            request=request,
            provenance=_facts(fields["provenance"]),
            certificate=certificate_bytes(fields.get("certificate")),
            signature=fields.get("signature", ""),
        )
    except KeyError as error:
        raise BadEntry(f"header without {error.args[0]!r}") from None
    except ValueError as error:
        raise BadEntry(f"header: {error}") from None


def pack_request(canonical: bytes) -> bytes:
    """The canonical request as an entry keeps it."""
    return zlib.compress(canonical, 9)


def request_bytes(entry: Entry, limit: int = MAX_REQUEST) -> bytes:
    """The canonical request, or b"" if the entry has none. Raises BadEntry if it can't be unpacked
    or is longer than `limit`; no more than that is ever unpacked."""
    if not entry.request:
        return b""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(entry.request, limit + 1)
    except zlib.error as error:
        raise BadEntry(f"request can't be unpacked: {error}") from None
    if len(unpacked) > limit:
        raise BadEntry(f"request is over {limit} bytes when unpacked")
    if not unpacker.eof:
        raise BadEntry("request can't be unpacked: truncated")
    if unpacker.unused_data:
        raise BadEntry("request can't be unpacked: extra bytes after its end")
    return unpacked


def _split(data: bytes) -> list[bytes]:
    """The sections of an entry whose frame and checksum are right."""
    if not data.startswith(MAGIC):
        raise BadEntry("truncated" if data and MAGIC.startswith(data) else "not an entry")
    at = len(MAGIC) + _SCHEMA.size
    if len(data) < at:
        raise BadEntry("truncated")
    (schema,) = _SCHEMA.unpack_from(data, len(MAGIC))
    # Before the checksum: another schema may have another one.
    if schema > SCHEMA:
        raise BadEntry(f"newer schema {schema}, this version reads {SCHEMA}")
    if schema < SCHEMA:
        raise BadEntry(f"unknown schema {schema}, this version reads {SCHEMA}")
    spans = []
    for name, limit in _SECTIONS:
        if len(data) < at + _LENGTH.size:
            raise BadEntry("truncated")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > limit:
            raise BadEntry(f"{name} of {length} bytes, the limit is {limit}")
        spans.append((at, at + length))
        at += length
    if len(data) < at + _CHECKSUM_SIZE:
        raise BadEntry("truncated")
    if len(data) > at + _CHECKSUM_SIZE:
        raise BadEntry("extra bytes after its end")
    if _checksum(memoryview(data)[:at]) != data[at:]:
        raise BadEntry("checksum does not match")
    return [data[begin:end] for begin, end in spans]


def _parse(header: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(
            header.decode(), parse_int=_integer, parse_float=_number, parse_constant=_no_constant
        )
        canonical = _canonical(fields)
    except (ValueError, RecursionError) as error:
        raise BadEntry(f"header is not valid JSON: {str(error)[:80]}") from None
    if type(fields) is not dict:
        raise BadEntry("header is not a JSON object")
    if canonical != header:
        raise BadEntry("header is not canonical JSON")
    return fields


def _canonical(fields: object) -> bytes:
    return json.dumps(
        fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _integer(text: str) -> int:
    # Python takes quadratic time for long ones.
    if len(text) > 20:
        raise ValueError("integer over 64 bits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number that is not finite")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"number that is not finite: {text}")


def _rating(text: object) -> float:
    """Hexadecimal text, since the rating must come back to the bit whoever reads the JSON."""
    value = math.nan
    if type(text) is str:
        with suppress(ValueError, OverflowError):
            value = float.fromhex(text)
    if not math.isfinite(value) or value.hex() != text:
        raise ValueError("`rating` must be a finite hexadecimal float")
    return value


def _facts(value: Any) -> Any:
    """All that is told but a bound on other plans, which nothing but a certificate proves."""
    if type(value) is not dict:
        return value
    return {name: fact for name, fact in value.items() if name != "lower_bound"}


def certificate_text(certificate: bytes) -> str:
    """A certificate for JSON."""
    return b64encode(certificate).decode()


def certificate_bytes(text: object) -> bytes:
    """A certificate as JSON has it; empty for anything else, or more than MAX_CERTIFICATE."""
    found = b""
    if type(text) is str and len(text) <= 2 * MAX_CERTIFICATE:
        with suppress(ValueError):
            found = b64decode(text, validate=True)
    # Just the one way to write it.
    whole = len(found) <= MAX_CERTIFICATE and certificate_text(found) == text
    return found if whole else b""


def _runs(value: object) -> tuple[CapacityRun, ...]:
    if type(value) is not list or not all(type(run) is list and len(run) == 4 for run in value):
        raise ValueError("`capacities` must be a list of runs of four numbers")
    return tuple((ranks, hbm, ddr, ssd) for ranks, hbm, ddr, ssd in value)


def _is_run(run: object) -> bool:
    return (
        isinstance(run, tuple)
        and len(run) == 4
        and all(type(value) is int and value in _INT64 for value in run)
        and run[0] >= 1
    )


def _is_fact(item: tuple[object, object]) -> bool:
    name, value = item
    if type(name) is not str or _SURROGATE.search(name):
        return False
    if type(value) is str:
        return not _SURROGATE.search(value)
    if type(value) is int:
        return value in _INT64
    return type(value) is float and math.isfinite(value)


def _checksum(body: bytes | memoryview) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_SIZE).digest()
