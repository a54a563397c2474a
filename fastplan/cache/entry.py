"""The entry: one cached plan with its request, provenance and signature, as one container.

An entry's name in a store has a sketch of the model's tables: for each of 36 orders of all table
names, four bits of the first name in that order. Two sketches agree in about as many places as the
models share tables (MinHash), so listing a store is enough to find the entries that are worth
reading.
"""

from __future__ import annotations

import math
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from fastplan.files.storage import (
    ContainerError,
    Format,
    checksum,
    describe,
    encode_start,
    read_header,
    read_part,
    reader,
)

if TYPE_CHECKING:
    from fastplan.model.request import Cluster

MAX_HEADER = 1 << 20
MAX_SECTION = 16 << 20
MAX_REQUEST = 16 << 20  # unpacked
MAX_CERTIFICATE = 64 << 10

FORMAT = Format(
    name="an entry",
    magic=b"\x89fastplan\r\n\x1a\n",
    schema=2,
    max_header=MAX_HEADER,
    max_parts={"payload": MAX_SECTION, "request": MAX_SECTION},
    outdated=": an older fastplan stored it, and the next plan replaces it",
)
MAX_ENTRY = FORMAT.max_overhead + 2 * MAX_SECTION

_KEY = re.compile(r"[0-9a-f]{16,128}")
_SIGNATURE = re.compile(r"[0-9a-f]{0,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_INT64 = range(-(1 << 63), 1 << 63)
_LEAST_KEY_BYTES = 16

_PLACES = 36
_MOST_TABLES = 1 << 20
_NAME = re.compile(rf"[0-9a-f]{{20}}-([0-9a-f]{{4}})([0-9a-f]{{{_PLACES}}})")
_MIX = 0x9E3779B97F4A7C15
# Each odd factor puts all hashes into a different order.
_FACTORS = [pow(0xD1342543DE82EF95, place + 1, 1 << 64) | 1 for place in range(_PLACES)]

CapacityRun = tuple[int, int, int, int]  # ranks in a row with the same bytes of HBM, DDR and SSD
TableName = tuple[str, str]  # path of the module, name of the table


class BadEntry(ContainerError):
    """The bytes are not a usable entry; `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cached plan.

    Attributes:
        key: The fingerprint of the request, in hex.
        capacities: The memory that the plan was solved for.
        rating: The plan's rating.
        payload: The packed plan.
        request: The result of `pack_request`; may be empty.
        provenance: Versions, time, host, summary.
        certificate: Packed; proves a bound on all plans.
        signature: Made with a key that the cache's owners share, in hex; see `sign`.

    Raises:
        ValueError: A field has the wrong type or range. The message names it.
    """

    key: str
    capacities: tuple[CapacityRun, ...]
    rating: float
    payload: bytes
    request: bytes
    provenance: dict[str, str | int | float]
    certificate: bytes = b""
    signature: str = ""

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
            raise ValueError("`provenance` must map strings to strings, 64-bit ints, finite floats")
        if type(self.certificate) is not bytes or len(self.certificate) > MAX_CERTIFICATE:
            raise ValueError(f"`certificate` must be at most {MAX_CERTIFICATE} bytes")
        if type(self.signature) is not str or not _SIGNATURE.fullmatch(self.signature):
            raise ValueError("`signature` must be up to 128 lower-case hex digits")


def is_key(text: str) -> bool:
    """Returns whether the text can be an entry's key."""
    return _KEY.fullmatch(text) is not None


def encode(entry: Entry) -> bytes:
    """Returns the entry as bytes.

    Raises:
        ValueError: A part is over its limit.
    """
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
    parts = {"payload": entry.payload, "request": entry.request}
    for name, data in parts.items():
        if len(data) > MAX_SECTION:
            raise ValueError(f"`{name}` must be at most {MAX_SECTION} bytes, not {len(data)}")
    described = [describe(kind, len(data), checksum(data)) for kind, data in parts.items()]
    return b"".join([encode_start(FORMAT, fields, described), *parts.values()])


def decode(data: bytes) -> Entry:
    """Reads an entry.

    Unknown header fields are ignored, so that later versions can add some. An invalid certificate
    is ignored too, because it says nothing about the plan.

    Raises:
        BadEntry: For any bytes that are not an entry; nothing else.
    """
    try:
        read = reader(data)
        fields, parts, _ = read_header(FORMAT, read, len(data))
        if [part.kind for part in parts] != ["payload", "request"]:
            raise ContainerError("parts must be a payload and a request")
        payload, request = (read_part(read, part.span, part.kind) for part in parts)
    except ContainerError as problem:
        raise BadEntry(problem.reason) from None
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
    """Returns the canonical request in compressed form, as entries store it."""
    return zlib.compress(canonical, 9)


def request_bytes(entry: Entry, limit: int = MAX_REQUEST) -> bytes:
    """Returns the canonical request, or b"" if the entry has none.

    Args:
        entry: The entry.
        limit: The most bytes to unpack.

    Raises:
        BadEntry: The request can't be unpacked or is longer than `limit`.
    """
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


def certificate_text(certificate: bytes) -> str:
    """Returns a certificate for JSON."""
    return b64encode(certificate).decode()


def certificate_bytes(text: object) -> bytes:
    """Returns a certificate from JSON; empty for an invalid one or one over MAX_CERTIFICATE."""
    found = b""
    if type(text) is str and len(text) <= 2 * MAX_CERTIFICATE:
        with suppress(ValueError):
            found = b64decode(text, validate=True)
    # Only the canonical encoding is valid.
    is_valid = len(found) <= MAX_CERTIFICATE and certificate_text(found) == text
    return found if is_valid else b""


def parse_key(key: str | bytes) -> bytes:
    """Returns a signing key for `sign` and `check_signature`.

    Raises:
        ValueError: The key is too short.
    """
    # A variable of the environment may have any bytes; Python reads some as lone surrogates.
    secret = key.encode(errors="surrogateescape") if isinstance(key, str) else bytes(key)
    if len(secret) < _LEAST_KEY_BYTES:
        raise ValueError(f"`key` must have at least {_LEAST_KEY_BYTES} bytes, not {len(secret)}")
    return blake2b(secret).digest()


def sign(entry: Entry, key: bytes) -> Entry:
    """Returns the entry with a signature over all of its fields."""
    return replace(entry, signature=_signature(entry, key))


def check_signature(entry: Entry, key: bytes) -> None:
    """Checks that the entry was signed with this key and not changed afterwards.

    Raises:
        BadEntry: It was not signed with this key, or it was changed.
    """
    import hmac  # slow to import, and rarely needed

    if not entry.signature:
        raise BadEntry("it is not signed, but this cache requires a signature")
    if not hmac.compare_digest(entry.signature, _signature(entry, key)):
        raise BadEntry("it is signed with another key, or was changed")


def table_names(document: dict[str, Any]) -> frozenset[TableName]:
    """Returns the tables of a canonical request that was parsed as JSON.

    Raises:
        ValueError, LookupError, TypeError: The document is not a canonical request.
    """
    count = document["table_count"]
    if type(count) is not int or not 0 < count <= _MOST_TABLES:
        raise ValueError("`table_count` must be a number of tables")
    columns = [_column(document["tables"][name], count) for name in ("path", "name")]
    names = frozenset(zip(*columns, strict=False))
    if len(names) != count:
        raise ValueError("duplicate table")
    return names


def sketch_of(names: Iterable[TableName]) -> str:
    """Returns the sketch of a model's tables."""
    import numpy as np

    mix = np.uint64(_MIX)
    hashes = [zlib.crc32(f"{path}\0{name}".encode("utf-8", "replace")) for path, name in names]
    mixed = (np.array(hashes, np.uint64) + np.uint64(1)) * mix
    first = np.array([(mixed * np.uint64(factor)).min() for factor in _FACTORS])
    # The first of many is small, so its lower bits are mixed again.
    return "".join(f"{int(bits):x}" for bits in (first * mix) >> np.uint64(60))


def similarity(one: str, other: str) -> float:
    """Estimates the share of both models' tables that both have, from their sketches."""
    return sum(map(str.__eq__, one, other)) / _PLACES


def capacities_of(cluster: Cluster) -> tuple[CapacityRun, ...]:
    """Returns the capacities of a cluster as runs of equal ranks."""
    ranks = zip(cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd, strict=True)
    return tuple((len(list(run)), *each) for each, run in groupby(ranks))


def entry_name(capacities: str, ranks: int, sketch: str) -> str:
    """Returns an entry's name, from a hash of its capacities, its ranks and its sketch."""
    return f"{capacities}-{ranks & 0xFFFF:04x}{sketch}"


def read_name(name: str) -> tuple[int, str] | None:
    """Returns the ranks, modulo 65,536, and the sketch in an entry's name; None if it has none."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1], 16), found[2])


def _rating(text: object) -> float:
    """Parses a hexadecimal float: the rating must come back to the bit."""
    value = math.nan
    if type(text) is str:
        with suppress(ValueError, OverflowError):
            value = float.fromhex(text)
    if not math.isfinite(value) or value.hex() != text:
        raise ValueError("`rating` must be a finite hexadecimal float")
    return value


def _facts(value: Any) -> Any:
    """Returns the provenance without the bound, which only a certificate can prove."""
    if type(value) is not dict:
        return value
    return {name: fact for name, fact in value.items() if name != "lower_bound"}


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


def _signature(entry: Entry, key: bytes) -> str:
    body = encode(replace(entry, signature=""))
    return blake2b(body, digest_size=32, key=key).hexdigest()


def _column(column: Any, count: int) -> Iterable[str]:
    """Returns a column of strings. A value that all tables share is not copied."""
    is_shared = type(column) is dict
    texts = [column["all"]] if is_shared else column
    if type(texts) is not list or not all(type(text) is str for text in texts):
        raise TypeError("names of tables must be strings")
    if not is_shared and len(texts) != count:
        raise ValueError("a column has not one value per table")
    return repeat(texts[0], count) if is_shared else texts
