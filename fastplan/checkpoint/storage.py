"""The files of a checkpoint, local or remote: DCP's file systems, read in small parts.

A chunk of a tensor in a DCP file is what `torch.save` writes. Its header says where the numbers
are, so that rows of it can be read without the rest: memory doesn't depend on the size of chunks.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import MOST_BYTES, Chunk, Entry, parse_metadata

METADATA = ".metadata"
PLAN = "fastplan-plan.json"
BUFFER = 16 << 20  # bytes that are read at once
_MOST_PLAN_BYTES = 64 << 20

Path = str | os.PathLike[str]


def is_url(path: Path) -> bool:
    """Whether fsspec opens a path."""
    return "://" in os.fspath(path)


def open_writer(path: Path) -> Any:
    """Returns DCP's writer for a path or an fsspec URL."""
    if not is_url(path):
        return FileSystemWriter(os.fspath(path), overwrite=False)
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

    return FsspecWriter(os.fspath(path), overwrite=False)


def open_file_system(path: Path) -> tuple[Any, Any]:
    """Returns DCP's file system for a path or an fsspec URL, and the path in its form."""
    if not is_url(path):
        reader = FileSystemReader(os.fspath(path))
    else:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

        reader = FsspecReader(os.fspath(path))
    return reader.fs, reader.path


class _Place(NamedTuple):
    """Where the numbers of a chunk are in its file; None if they are not in the order of rows."""

    start: int | None
    dtype: torch.dtype
    sizes: tuple[int, ...]


class Checkpoint:
    """A checkpoint that is open for reading.

    Attributes:
        name: its path.
        entries: its values by key.
    """

    def __init__(self, path: Path) -> None:
        self.name = os.fspath(path)
        self._fs, self._path = open_file_system(path)
        data = self._read_file(METADATA, MOST_BYTES)
        if data is None:
            raise CheckpointError(
                f"{self.name}: no checkpoint here: there is no file {METADATA}, which DCP writes "
                "last"
            )
        self.entries: dict[str, Entry] = parse_metadata(data, self.name)
        self._places: dict[tuple[str, int], _Place] = {}
        self._stream: tuple[str, Any, Any] | None = None

    def plan_text(self) -> bytes | None:
        """Returns the plan file that was saved with the checkpoint, if any."""
        return self._read_file(PLAN, _MOST_PLAN_BYTES)

    def _read_file(self, name: str, most: int) -> bytes | None:
        path = self._fs.concat_path(self._path, name)
        try:
            if not self._fs.exists(path):
                return None
            self._check_regular(name, path)
            with self._fs.create_stream(path, "rb") as stream:
                data: bytes = stream.read(most + 1)
        except OSError as error:
            raise CheckpointError(f"{self.name}: {name} can't be read: {error}") from error
        if len(data) > most:
            raise CheckpointError(f"{self.name}: {name} has more than {most:,} bytes")
        return data

    def _check_regular(self, name: str, path: Any) -> None:
        """Raises CheckpointError for a pipe, which a reader would wait for, or a device."""
        if not is_url(self.name) and os.path.exists(path) and not os.path.isfile(path):
            raise CheckpointError(f"{self.name}: {name} is not a regular file")

    def check_files(self, entries: list[Entry]) -> None:
        """Checks that files exist and are long enough for the chunks of entries."""
        ends: dict[str, int] = {}
        for chunk in (chunk for entry in entries for chunk in entry.chunks):
            ends[chunk.file] = max(ends.get(chunk.file, 0), chunk.start + chunk.length)
        for file, end in ends.items():
            with self._open(file) as stream:
                size = stream.seek(0, os.SEEK_END)
            if size < end:
                raise CheckpointError(
                    f"{self.name}: file {file} has {size:,} bytes and should have {end:,}; "
                    "the checkpoint is damaged"
                )

    def close(self) -> None:
        """Closes the file that is open."""
        if self._stream is not None:
            self._stream[1].__exit__(None, None, None)
            self._stream = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _open(self, file: str) -> Iterator[Any]:
        """Opens a file, and keeps it open until another one is read."""
        try:
            if self._stream is None or self._stream[0] != file:
                self.close()
                path = self._fs.concat_path(self._path, file)
                self._check_regular(f"file {file}", path)
                opened = self._fs.create_stream(path, "rb")
                self._stream = (file, opened, opened.__enter__())
            yield self._stream[2]
        except OSError as error:
            raise CheckpointError(f"{self.name}: file {file} can't be read: {error}") from error

    def rows(
        self, entry: Entry, chunk: Chunk, begin: int, end: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Reads rows of a chunk, numbered within it, in parts of at most BUFFER bytes.

        Yields:
            The number of the first row, and the rows. A tensor without dimensions is one row.

        Raises:
            CheckpointError: the file doesn't hold what the metadata says.
        """
        if chunk.is_encoded:
            raise CheckpointError(
                f"{self.name}: {entry.key} was encoded by a DCP extension; load it with DCP and "
                "save it without the extension"
            )
        place = self._place(entry, chunk)
        width = math.prod(chunk.sizes[1:])
        row_bytes = max(1, width * place.dtype.itemsize)
        step = max(1, BUFFER // row_bytes)
        if place.start is None:
            # Such as a transposed dense weight. An expanded one has more rows than numbers.
            whole = self._load(entry, chunk, "cpu")
            for first in range(begin, end, step):
                yield first, whole[first : min(first + step, end)]
            return
        for first in range(begin, end, step):
            count = min(step, end - first)
            with self._open(chunk.file) as stream:
                stream.seek(place.start + first * row_bytes)
                data = bytearray(stream.read(count * row_bytes))
            if len(data) != count * row_bytes:
                raise CheckpointError(
                    f"{self.name}: file {chunk.file} ends within {entry.key}; "
                    "the checkpoint is damaged"
                )
            made = torch.frombuffer(data, dtype=place.dtype)
            yield first, made.view(count, *chunk.sizes[1:]) if chunk.sizes else made.view(())

    def raw(self, entry: Entry) -> bytes:
        """Returns the bytes of a value that is not a tensor, as they are in its file."""
        found = b""
        for chunk in entry.chunks:
            with self._open(chunk.file) as stream:
                stream.seek(chunk.start)
                found += stream.read(chunk.length)
        return found

    def _place(self, entry: Entry, chunk: Chunk) -> _Place:
        at = chunk.file, chunk.start
        if at not in self._places:
            self._places[at] = self._read_place(entry, chunk)
        found = self._places[at]
        if found.dtype != entry.dtype or found.sizes != chunk.sizes:
            raise CheckpointError(
                f"{self.name}: {entry.key} at {chunk.offsets} is {found.dtype} of {found.sizes} in "
                f"file {chunk.file}, and {entry.dtype} of {chunk.sizes} in the metadata"
            )
        return found

    def _load(self, entry: Entry, chunk: Chunk, device: str) -> torch.Tensor:
        """Returns what `torch.save` wrote as a chunk."""
        with self._open(chunk.file) as stream:
            try:
                part = _Slice(stream, chunk.start, chunk.length)
                made = torch.load(part, map_location=device, weights_only=True)
            except CheckpointError:
                raise
            except Exception as error:  # damaged data can raise anything
                raise CheckpointError(
                    f"{self.name}: {entry.key} at {chunk.offsets} in file {chunk.file} can't be "
                    f"read: {error!r:.300}"
                ) from error
        if type(made) is not torch.Tensor:
            raise CheckpointError(
                f"{self.name}: {entry.key} at {chunk.offsets} in file {chunk.file} is no tensor"
            )
        return made

    def _read_place(self, entry: Entry, chunk: Chunk) -> _Place:
        made = self._load(entry, chunk, "meta")  # the header only: there are no numbers on `meta`
        first = made.untyped_storage()._checkpoint_offset
        offset = first + made.storage_offset() * made.element_size()
        if not made.is_contiguous():
            return _Place(None, made.dtype, tuple(made.shape))
        if not 0 <= offset <= chunk.length - made.nbytes:
            raise CheckpointError(
                f"{self.name}: {entry.key} in file {chunk.file} ends after its chunk"
            )
        return _Place(chunk.start + offset, made.dtype, tuple(made.shape))


class _Slice(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, stream: Any, start: int, length: int) -> None:
        self._stream, self._start, self._length, self._at = stream, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), max(0, self._length - self._at))
        self._stream.seek(self._start + self._at)
        data = self._stream.read(count)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
