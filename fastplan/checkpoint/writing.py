"""Writes a checkpoint through DCP's writer, without a process group and in small parts."""

from __future__ import annotations

import io
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from fastplan.checkpoint.copying import cut_rows
from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.sources import (
    FIRST_STATES,
    MOMENTUM1,
    Kind,
    Region,
    column_cuts,
    stacked_offsets,
)

# Bytes of a chunk, and of the chunks of a file: DCP's writer keeps a file's tensors in memory.
CHUNK_BYTES = 64 << 20
FILE_BYTES = 128 << 20

Keys = tuple[str | int, ...]


class Block(NamedTuple):
    """A part of a tensor that is to be written, made when its turn comes.

    A value that is not a tensor has no dtype, and `make` returns its bytes.

    Attributes:
        path: the keys of the nested state dict that the tensor is in.
        size: the tensor's shape.
        offsets: the place of the part.
        sizes: its shape.
        dtype: its type.
        make: returns it.
    """

    path: Keys
    size: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dtype: torch.dtype | None
    make: Callable[[], Any]

    @property
    def key(self) -> str:
        """The tensor's name in the checkpoint."""
        return ".".join(map(str, self.path))

    @property
    def bytes(self) -> int:
        """The size of the part."""
        return int(math.prod(self.sizes) * (1 if self.dtype is None else self.dtype.itemsize))


class TableTarget(NamedTuple):
    """A table as a plan shards it."""

    name: str
    rows: int
    columns: int
    regions: tuple[Region, ...]  # of all ranks; the whole table if it is data-parallel
    is_fused: bool

    def state_name(self, name: str) -> str:
        """Returns the name of a state in TorchRec's state dicts."""
        if not self.is_fused:
            return name
        return f"{self.name}.{MOMENTUM1 if name in FIRST_STATES else name}"

    def place(self, kind: Kind, region: Region) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape of a whole state, and the offsets of a region in it."""
        if kind == "pointwise":
            return (self.rows, self.columns), (region.row, region.column)
        if kind == "scalar":
            return (1,), (0,)
        at = stacked_offsets(self.regions)[region]
        return (self.rows * len(column_cuts(self.regions)),), (at,)


def region_blocks(
    path: Keys,
    size: tuple[int, ...],
    offsets: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    make: Callable[[int, int], torch.Tensor],
) -> Iterator[Block]:
    """Cuts a part of a tensor into blocks of at most CHUNK_BYTES.

    Args:
        path: where the tensor is in the state dict.
        size: the tensor's shape.
        offsets: the place of the part.
        shape: the shape of the part.
        dtype: its type.
        make: returns rows of the part: the first one and how many. A part without numbers has no
            rows to ask for.
    """
    if 0 in shape:
        yield Block(path, size, offsets, shape, dtype, lambda: torch.empty(shape, dtype=dtype))
        return
    if not shape:
        yield Block(path, size, offsets, shape, dtype, lambda: make(0, 1).reshape(shape))
        return
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    for first, count in cut_rows(shape[0], row_bytes, CHUNK_BYTES):
        yield Block(
            path,
            size,
            (offsets[0] + first, *offsets[1:]),
            (count, *shape[1:]),
            dtype,
            lambda first=first, count=count: make(first, count),  # type: ignore[misc]
        )


@contextmanager
def writing_to(folder: Any, data: _Resolver | None = None) -> Iterator[None]:
    """Names the directory and the cause if a write fails: torch's error on a full disk has neither.

    Args:
        folder: the directory, or the path of a URL.
        data: what makes the data. Its own errors stay as they are.

    Raises:
        CheckpointError: torch can't write, or the system tells no file.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        chain = [*_chain(error)]
        for each in chain:
            if not isinstance(each, Exception):  # Ctrl-C, after which torch can't end its file
                raise each from None
        has_file = isinstance(error, OSError) and error.filename is not None
        if has_file or (data is not None and data.has_failed):
            raise
        cause = next((each.strerror for each in chain if isinstance(each, OSError)), error)
        text = f"can't write {folder}: {cause}"
        if os.path.isdir(folder):  # and no URL
            free = shutil.disk_usage(folder).free
            text += f"; {free:,} bytes are free there: free what is missing, or write elsewhere"
        raise CheckpointError(text) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, and the ones during whose handling it was raised."""
    while error is not None:
        yield error
        error = error.__context__


class _Resolver:
    """What DCP's writer asks for the data of its items."""

    def __init__(self, blocks: dict[MetadataIndex, Block], wrote: Callable[[int], None]) -> None:
        self._blocks, self._wrote = blocks, wrote
        self.has_failed = False

    def resolve_data(self, item: WriteItem) -> torch.Tensor | io.BytesIO:
        block = self._blocks[item.index]
        self.has_failed = True
        self._wrote(block.bytes)
        made = block.make()
        data = io.BytesIO(made) if block.dtype is None else made.detach().cpu().contiguous()
        self.has_failed = False
        return data


def write_blocks(
    writer: Any,
    blocks: Iterable[Block],
    name: str,
    wrote: Callable[[int], None] = lambda count: None,
) -> list[Any]:
    """Writes blocks into files, and returns DCP's records of what is where.

    Args:
        writer: DCP's writer.
        blocks: what to write.
        name: the beginning of the files' names, such as a rank.
        wrote: is called with the bytes of each block.

    Raises:
        CheckpointError: the disk is full, or torch can't write for another reason.
    """
    from torch.distributed.checkpoint.filesystem import _StoragePrefix

    results: list[Any] = []
    for number, batch in enumerate(_batches(blocks)):
        items = {index: block for block in batch for index in [_index(block)]}
        plan = SavePlan(
            [_write_item(index, block) for index, block in items.items()],
            storage_data=_StoragePrefix(f"__{name}_{number}_"),
        )
        data = _Resolver(items, wrote)
        with writing_to(writer.path, data):
            results += writer.write_data(plan, data).wait()
    return results


def _batches(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    batch: list[Block] = []
    size = 0
    for block in blocks:
        if batch and size + block.bytes > FILE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += block.bytes
    if batch:
        yield batch


def _index(block: Block) -> MetadataIndex:
    return MetadataIndex(block.key, None if block.dtype is None else block.offsets)


def _write_item(index: MetadataIndex, block: Block) -> WriteItem:
    if block.dtype is None:
        return WriteItem(index=index, type=WriteItemType.BYTE_IO)
    return WriteItem(
        index=index,
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(block.offsets), torch.Size(block.sizes)),
            properties=TensorProperties(dtype=block.dtype),
            size=torch.Size(block.size),
        ),
    )


def finish(writer: Any, blocks: Iterable[Block], results: list[Any]) -> None:
    """Writes the metadata of blocks that have been written; the checkpoint is then complete."""
    values: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    paths: dict[str, Keys] = {}
    for block in blocks:
        paths[block.key] = block.path
        if block.dtype is None:
            values[block.key] = BytesStorageMetadata()
            continue
        made = TensorStorageMetadata(
            TensorProperties(dtype=block.dtype), torch.Size(block.size), []
        )
        chunk = ChunkStorageMetadata(torch.Size(block.offsets), torch.Size(block.sizes))
        own = values.setdefault(block.key, made)
        assert isinstance(own, TensorStorageMetadata)
        own.chunks.append(chunk)
    with writing_to(writer.path):
        writer.finish(Metadata(state_dict_metadata=values, planner_data=paths), [results])
