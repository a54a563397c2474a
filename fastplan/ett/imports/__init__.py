"""Jobs that other tools recorded: MLPerf logs, entries of ml-goodput-measurement, CSV of phases.

Files may be compressed by gzip. An importer reads bytes that anyone may have written. It reads as
far as they go, counts what it skips, and runs nothing that they contain.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from fastplan.ett.fleet.jobs import FleetJob

MOST_BYTES = 1 << 28  # of a file
MOST_JOBS = 10_000  # of a file
HEAD_BYTES = 1 << 23  # that a file's format is recognised by
_BINARY = 1 << 12
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 12

Importer = Callable[[str, bytes], list[FleetJob]]


def recognise(name: str, head: bytes) -> str | None:
    """Returns the format of a file: mllog, goodput or csv; None if no importer reads it.

    Args:
        name: Its name, which only tells CSV from other text.
        head: Its first HEAD_BYTES.
    """
    from fastplan.ett.imports import goodput, mllog, phases_csv

    head = _unpacked(head, HEAD_BYTES)
    if mllog.MARK.search(head):
        return "mllog"
    if b"\0" in head[:_BINARY]:
        return None
    if goodput.MARK.search(head):
        return "goodput"
    return (
        "csv" if name.lower().endswith((".csv", ".csv.gz")) and phases_csv.is_header(head) else None
    )


def import_file(kind: str, place: str, data: bytes) -> list[FleetJob]:
    """Returns the jobs of a file.

    Args:
        kind: A result of `recognise`.
        place: The file's path or URL.
        data: Its content.
    """
    from fastplan.ett.imports import goodput, mllog, phases_csv

    importers: dict[str, Importer] = {
        "mllog": mllog.read_jobs,
        "goodput": goodput.read_jobs,
        "csv": phases_csv.read_jobs,
    }
    return importers[kind](place, _unpacked(data, MOST_BYTES))[:MOST_JOBS]


def _unpacked(data: bytes, most: int) -> bytes:
    """The content of a file, which gzip may have compressed: as far as it goes, to a limit."""
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    left = most
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for begin in range(0, len(data), _CHUNK):
        rest = data[begin : begin + _CHUNK]
        while rest and left:
            try:
                part = stream.decompress(rest, left)
            except zlib.error:
                return b"".join(parts)
            parts.append(part)
            left -= len(part)
            rest = stream.unused_data  # another member of the file
            if stream.eof:
                stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    return b"".join(parts)
