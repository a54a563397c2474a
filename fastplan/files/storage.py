"""Data on disk: canonical JSON, files that are replaced atomically, and a checked container.

The binary container of cache entries and start bundles has a header that describes its parts:

    magic, schema (u16), length of the header (u32), header, checksum of all before, the parts

The header is canonical JSON, so a container has exactly one encoding. Its field `parts` lists every
part with its kind, size and checksum, so a reader can read single parts. Numbers are little-endian,
checksums are BLAKE2b-128, which detect damage, not manipulation. Nothing in it is evaluated.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

Read = Callable[[int, int], bytes]  # offset and length; returns less at the end of the file

_START = struct.Struct("<HI")
_CHECKSUM_SIZE = 16
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_MOST_DIGITS = 300  # of an integer; longer ones are beyond the range of a float


class ContainerError(Exception):
    """The bytes are not a usable container.

    Attributes:
        reason: What is wrong, without the name of the file.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of container.

    Attributes:
        name: What messages call it, such as "an entry".
        magic: The first bytes. A high byte and line ends reveal files that went through a text
            mode, as in PNG.
        schema: The version that this release reads and writes.
        max_header: The limit for the header, in bytes.
        max_parts: The limits for parts by their kind, in bytes.
        max_other: The limit for parts of unknown kinds, which later versions may add.
        outdated: For older schemas: what to do, as the end of a message.
    """

    name: str
    magic: bytes
    schema: int
    max_header: int
    max_parts: Mapping[str, int] = field(default_factory=dict)
    max_other: int = 0
    outdated: str = ""

    @property
    def max_overhead(self) -> int:
        """The most bytes that a container has in addition to its parts."""
        return len(self.magic) + _START.size + self.max_header + _CHECKSUM_SIZE


class Span(NamedTuple):
    """The position of a part in the file, and its checksum."""

    at: int
    size: int
    checksum: str


class Part(NamedTuple):
    """A part as the header describes it; `fields` has also kind, size and checksum."""

    kind: str
    fields: dict[str, Any]
    span: Span


class Header(NamedTuple):
    """The fields of a header, its parts, and the size of the whole container in bytes."""

    fields: dict[str, Any]
    parts: list[Part]
    size: int


def checksum(data: bytes | memoryview) -> str:
    """Returns the checksum of a part, in hexadecimal."""
    return _digest(data).hex()


def canonical_json(document: object) -> bytes:
    """Returns the only valid encoding of a document.

    Raises:
        ValueError: A number is not finite.
    """
    return _ENCODER.encode(document).encode("ascii")


def parse_json(text: str) -> Any:
    """Returns the value of JSON from outside. Its numbers can be formatted and written again.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has a number beyond a float's range.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def describe(kind: str, size: int, digest: str, **fields: object) -> dict[str, object]:
    """Returns the header's description of a part."""
    return {**fields, "kind": kind, "size": size, "checksum": digest}


def encode_start(
    form: Format, fields: Mapping[str, object], parts: Iterable[Mapping[str, object]]
) -> bytes:
    """Returns everything before the parts.

    Args:
        form: The format to write.
        fields: The header's other fields.
        parts: Descriptions from `describe`, in the order of the parts.

    Raises:
        ValueError: The header is over its limit.
    """
    header = canonical_json({**fields, "parts": list(parts)})
    if len(header) > form.max_header:
        raise ValueError(f"`header` must be at most {form.max_header} bytes, not {len(header)}")
    start = form.magic + _START.pack(form.schema, len(header)) + header
    return start + _digest(start)


def read_header(form: Format, read: Read, size: int) -> Header:
    """Reads and checks the header of a container.

    Args:
        form: The expected format.
        read: Reads from the container.
        size: The size of the whole container in bytes.

    Raises:
        ContainerError: For any bytes that are not a container of this format; nothing else.
    """
    begin = read(0, len(form.magic) + _START.size)
    if not begin.startswith(form.magic):
        is_cut = bool(begin) and form.magic.startswith(begin)
        raise ContainerError("truncated" if is_cut else f"not {form.name}")
    if len(begin) < len(form.magic) + _START.size:
        raise ContainerError("truncated")
    schema, length = _START.unpack_from(begin, len(form.magic))
    # Checked before the checksum, because other schemas may have a different one.
    _check_schema(form, schema)
    if length > form.max_header:
        raise ContainerError(f"header of {length} bytes, the limit is {form.max_header}")
    rest = read(len(begin), length + _CHECKSUM_SIZE)
    if len(rest) < length + _CHECKSUM_SIZE:
        raise ContainerError("truncated")
    text = rest[:length]
    if _digest(begin + text) != rest[length:]:
        raise ContainerError("the header's checksum does not match")
    fields = _parse(text)
    parts, end = _parts(form, fields.get("parts"), len(begin) + len(rest))
    if size != end:
        problem = "truncated" if size < end else "extra bytes after its end"
        raise ContainerError(f"{problem}: {size} bytes, the header says {end}")
    return Header(fields, parts, end)


def read_part(read: Read, span: Span, name: str) -> bytes:
    """Reads a part and checks it.

    Args:
        read: Reads from the container.
        span: The part.
        name: The part's name for messages.

    Raises:
        ContainerError: The part differs from the header's description.
    """
    data = read(span.at, span.size)
    if len(data) != span.size or checksum(data) != span.checksum:
        raise ContainerError(f"{name}: the checksum does not match")
    return data


def reader(data: bytes) -> Read:
    """Returns a function that reads from a container in memory."""
    return lambda at, length: data[at : at + length]


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM_SIZE).digest()


def _check_schema(form: Format, schema: int) -> None:
    if schema > form.schema:
        raise ContainerError(f"newer schema {schema}, this version reads {form.schema}")
    if 0 < schema < form.schema:
        raise ContainerError(
            f"older schema {schema}, this version reads {form.schema}{form.outdated}"
        )
    if schema != form.schema:
        raise ContainerError(f"unknown schema {schema}, this version reads {form.schema}")


def _parts(form: Format, listed: object, at: int) -> tuple[list[Part], int]:
    """Returns the parts, and the end of the last one. `at` is the end of the header."""
    if type(listed) is not list:
        raise ContainerError("parts must be a list")
    found = []
    for i, part in enumerate(listed):
        if type(part) is not dict:
            raise ContainerError(f"parts[{i}] must be an object")
        kind, size, digest = part.get("kind"), part.get("size"), part.get("checksum")
        if type(kind) is not str:
            raise ContainerError(f"parts[{i}].kind must be a string")
        limit = form.max_parts.get(kind, form.max_other)
        if type(size) is not int or not 0 <= size <= limit:
            raise ContainerError(f"parts[{i}].size must be from 0 to {limit}")
        if type(digest) is not str or not _CHECKSUM.fullmatch(digest):
            raise ContainerError(f"parts[{i}].checksum must be 32 hex digits")
        found.append(Part(kind, part, Span(at, size, digest)))
        at += size
    return found, at


def _parse(header: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(header.decode("ascii"))
        canonical = canonical_json(fields)
    except (ValueError, RecursionError) as error:
        raise ContainerError(f"header is not valid JSON: {str(error)[:80]}") from None
    if type(fields) is not dict:
        raise ContainerError("header is not a JSON object")
    if canonical != header:
        raise ContainerError("header is not canonical JSON")
    return fields


def _integer(text: str) -> int:
    # Python's own limit is higher, and releases without one need quadratic time for long ones.
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"integer with over {_MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number that is not finite")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"number that is not finite: {text}")


# Built once: json.dumps and json.loads build a new one for each call with such settings.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
)
_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_no_constant)


def replace_file(
    path: str | os.PathLike[str], pieces: Iterable[bytes], *, others_write: bool = True
) -> None:
    """Replaces a file atomically. If the path is a link, its target is replaced.

    The new file gets the old one's permissions, owner and group, as far as this process may set
    them. Devices and pipes, such as /dev/stdout, are written to directly.

    Args:
        path: The file.
        pieces: The new content.
        others_write: Whether users other than the owner keep their permission to write.

    Raises:
        OSError: The file can't be written. The error names `path`, not the temporary file.
    """
    given = Path(path)
    if given.exists() and not (given.is_file() or given.is_dir()):
        with open(path, "wb") as stream:
            stream.writelines(pieces)
        return
    target = given.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with _errors_for(path, draft):
            with open(_create(draft, _stat(target), others_write), "wb") as stream:
                stream.writelines(pieces)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _create(draft: Path, old: os.stat_result | None, others_write: bool) -> int:
    """Creates a file with the owner and the permissions of the old one, if any."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    new = 0o666 if others_write else 0o644
    file = os.open(draft, flags, new if old is None else 0o600)
    if old is not None and hasattr(os, "fchown"):
        mode = stat.S_IMODE(old.st_mode) & 0o777
        if not _copy_owner(file, old):  # another group gets only what all users may do
            mode &= ~0o070 | (mode & 0o007) << 3
        with suppress(OSError):  # not every file system has permissions
            os.fchmod(file, mode if others_write else mode & ~0o022)
    return file


def _copy_owner(file: int, old: os.stat_result) -> bool:
    """Sets the owner and the group of the old file; returns whether the group was set."""
    for user in (old.st_uid, -1):
        with suppress(OSError):
            os.fchown(file, user, old.st_gid)
            return True
    return os.fstat(file).st_gid == old.st_gid


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _errors_for(path: str | os.PathLike[str], draft: Path) -> Iterator[None]:
    """Makes errors name the target file instead of the temporary file."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or error.filename not in (None, os.fspath(draft)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
