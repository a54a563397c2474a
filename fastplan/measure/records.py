"""Reads files of measured times: a JSON object per line, as docs/hardware-costs.md describes them.

The files come from anywhere, so everything is bounded, and unknown fields are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from fastplan.files.document import MOST_BYTES, SpecError
from fastplan.model.limits import MOST_NUMBER, MOST_RANKS, MOST_TEXT

MOST_RECORDS = 500_000
_MOST_LINE = 1 << 20  # bytes

Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Count = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Positive = Annotated[float, Meta(gt=0, le=MOST_NUMBER)]
Amount = Annotated[float, Meta(ge=0, le=MOST_NUMBER)]

LOOKUP_KINDS = ("lookup_forward", "lookup_backward", "lookup_fwd_bwd")
COLLECTIVE_KIND = "collective"


class Record(Struct, frozen=True, kw_only=True):
    """A measured time, or anything else that a file has a line about."""

    id: Text
    kind: Text
    group: Text | None = None


class TimedRecord(Record, frozen=True, kw_only=True):
    """A time that may be estimated."""

    gpu: Text | None = None
    value: Positive
    unit: Text | None = None
    confidence: Text | None = None


class LookupRecord(TimedRecord, frozen=True, kw_only=True):
    """One pass of a lookup kernel over all tables, on one device."""

    kernel: Text | None = None
    tables: Positive | None = None
    rows_per_table: Positive | None = None
    dim: Positive | None = None
    dtype: Text | None = None
    output_dtype: Text | None = None
    pooling: Positive | None = None
    pooled: bool | None = None
    bags_per_table: Positive | None = None
    ids_total: Positive | None = None
    ids_unique: Positive | None = None
    id_distribution: Text | None = None
    optimizer: Text | None = None
    cache_rows: Amount | None = None
    cache_load_factor: Amount | None = None
    misses_per_batch_expected: Amount | None = None


class CollectiveRecord(TimedRecord, frozen=True, kw_only=True):
    """One collective. `message_bytes` is what nccl-tests prints: the whole buffer of a rank."""

    collective: Text | None = None
    gpus_per_host: Count | None = None
    hosts: Count | None = None
    ranks: Count | None = None
    network: Text | None = None
    message_bytes: Amount | None = None


_STRUCTS: dict[str, type[Record]] = {
    **dict.fromkeys(LOOKUP_KINDS, LookupRecord),
    COLLECTIVE_KIND: CollectiveRecord,
}


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """Reads a file of records.

    Args:
        path: The file.

    Returns:
        A LookupRecord or CollectiveRecord for each line of these kinds, and a Record for others.

    Raises:
        SpecError: The file can't be read, or a line is malformed. The message has its number.
    """
    file = os.fspath(path)
    try:
        with open(file, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(file, None, "", f"can't be read: {reason}") from error
    if len(data) > MOST_BYTES:
        raise SpecError(file, None, "", f"is larger than {MOST_BYTES >> 20} MiB, the limit")
    return list(parse_records(data.splitlines(), file))


def parse_records(lines: Iterable[bytes], file: str) -> Iterator[Record]:
    """Parses lines of JSON.

    Args:
        lines: The lines; empty ones are skipped.
        file: The name of the file in errors.

    Raises:
        SpecError: A line is malformed. The message has its number.
    """
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        count += 1
        if count > MOST_RECORDS:
            raise SpecError(file, number, "", f"has more than {MOST_RECORDS:,} records, the limit")
        if len(line) > _MOST_LINE:
            raise SpecError(file, number, "", f"is longer than {_MOST_LINE >> 20} MiB, the limit")
        yield _parsed(line, file, number)


def _parsed(line: bytes, file: str, number: int) -> Record:
    try:
        head = msgspec.json.decode(line, type=Record)
        kind = _STRUCTS.get(head.kind)
        return head if kind is None else msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(file, number, "", str(error)) from error
