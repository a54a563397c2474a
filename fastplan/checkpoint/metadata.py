"""The metadata of a checkpoint of torch.distributed.checkpoint (DCP), read as data.

The file `.metadata` is a pickle, and a pickle can run code when it is read. This reader knows the
names of the classes that DCP writes and builds records of its own for them. It imports nothing that
a pickle names, calls nothing of torch, and refuses any other name.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from fastplan.checkpoint.errors import CheckpointError

MOST_BYTES = 2 << 30  # of the metadata; 1000 tables on 1024 ranks have 100 MB
_MOST_DIMENSIONS = 16
_DCP = "torch.distributed.checkpoint."
_RECORDS = frozenset(
    {
        f"{_DCP}metadata.Metadata",
        f"{_DCP}metadata.TensorStorageMetadata",
        f"{_DCP}metadata.BytesStorageMetadata",
        f"{_DCP}metadata.ChunkStorageMetadata",
        f"{_DCP}metadata.TensorProperties",
        f"{_DCP}metadata.MetadataIndex",
        f"{_DCP}metadata.StorageMeta",
        f"{_DCP}metadata._MEM_FORMAT_ENCODING",
        f"{_DCP}filesystem._StorageInfo",
        "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
        "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
        "torch.serialization._get_layout",
        "pathlib.PosixPath",
        "pathlib.WindowsPath",
        "pathlib._local.PosixPath",
        "pathlib._local.WindowsPath",
        "upath.core.UPath",
    }
)
DTYPES = {
    name: value for name in dir(torch) if isinstance(value := getattr(torch, name), torch.dtype)
}


class Chunk(NamedTuple):
    """A part of a tensor in a file.

    Attributes:
        offsets: its place in the tensor.
        sizes: its shape.
        file: the file's name in the checkpoint.
        start: its first byte there.
        length: its bytes there.
        is_encoded: whether a DCP extension, such as compression, has encoded it.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int
    is_encoded: bool


class Entry(NamedTuple):
    """A value of a checkpoint. One without a dtype is not a tensor, and has one chunk.

    Attributes:
        key: its name, with dots.
        path: the keys of the nested state dict that it was in.
        dtype: the tensor's type.
        size: the tensor's shape.
        chunks: its parts, which cover the tensor.
    """

    key: str
    path: tuple[str | int, ...]
    dtype: torch.dtype | None
    size: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the tensor, or of the file's part for other values."""
        if self.dtype is None:
            return sum(chunk.length for chunk in self.chunks)
        return int(math.prod(self.size) * self.dtype.itemsize)


class _Record:
    """Stands for an object of a pickle. It keeps what the pickle says, and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Size(tuple[int, ...]):
    __slots__ = ()


class _Reader(pickle._Unpickler):
    """An unpickler whose classes are made for it, so that a pickle can change nothing else.

    It is the one in Python: the one in C makes an array for the largest number of an object, which
    a few bytes can make as large as all memory. A `bytearray` is as large as its length says before
    it is read; metadata has none.
    """

    dispatch = {  # noqa: RUF012
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if code != pickle.BYTEARRAY8[0]
    }

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.kinds: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if full not in self.kinds:
            self.kinds[full] = self._made(full)
        return self.kinds[full]

    def _made(self, full: str) -> Any:
        name = full.rpartition(".")[2]
        if full == "torch.Size":
            return type(name, (_Size,), {})
        if full in ("collections.OrderedDict", "builtins.dict"):
            return type(name, (dict,), {})
        if full in _RECORDS:
            # MetadataIndex is the key of a dict: without equality, each is a key of its own.
            return type(name, (_Record,), {})
        raise CheckpointError(
            f"the metadata names {full}, which DCP's metadata does not need; nothing was loaded"
        )


def parse_metadata(data: bytes, name: str) -> dict[str, Entry]:
    """Returns the values of a checkpoint by key.

    Args:
        data: the content of `.metadata`.
        name: the checkpoint's name in errors.

    Raises:
        CheckpointError: the data is not DCP's metadata, or not consistent.
    """
    try:
        reader = _Reader(data)
        root = reader.load()
        return _entries(root, reader.kinds)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointError(f"{name}: the metadata can't be read: {error!r}") from error


def _entries(root: Any, kinds: Mapping[str, Any]) -> dict[str, Entry]:
    fields = _fields(root, kinds, "Metadata")
    stored = _stored(_dict(fields.get("storage_data"), "storage_data"), kinds)
    paths = fields.get("planner_data") or {}
    found = {}
    for key, value in _dict(fields.get("state_dict_metadata"), "state_dict_metadata").items():
        if not isinstance(key, str):
            raise CheckpointError(f"key {key!r} is not a text")
        path = paths.get(key) if isinstance(paths, dict) else None
        is_path = isinstance(path, tuple) and all(isinstance(p, str | int) for p in path)
        own = stored.get(key, {})
        found[key] = _entry(key, path if is_path and path else (key,), value, own, kinds)
    return found


def _entry(
    key: str,
    path: Any,
    value: Any,
    stored: Mapping[tuple[int, ...] | None, Chunk],
    kinds: Mapping[str, Any],
) -> Entry:
    if _is(value, kinds, "BytesStorageMetadata"):
        whole = stored.get(None)
        return Entry(key, path, None, (), () if whole is None else (whole,))
    fields = _fields(value, kinds, "TensorStorageMetadata")
    size = _ints(fields.get("size"), f"the size of {key}")
    chunks = []
    for each in fields.get("chunks") or ():
        part = _fields(each, kinds, "ChunkStorageMetadata")
        offsets = _ints(part.get("offsets"), f"an offset of {key}")
        sizes = _ints(part.get("sizes"), f"a size of {key}")
        if not (len(offsets) == len(sizes) == len(size)) or any(
            offset + length > most
            for offset, length, most in zip(offsets, sizes, size, strict=True)
        ):
            raise CheckpointError(f"{key}: a chunk at {offsets} of {sizes} is outside of {size}")
        if math.prod(sizes) == 0:
            continue
        if offsets not in stored:
            raise CheckpointError(f"{key}: the chunk at {offsets} is in no file")
        chunks.append(stored[offsets]._replace(offsets=offsets, sizes=sizes))
    if sum(math.prod(chunk.sizes) for chunk in chunks) != math.prod(size):
        raise CheckpointError(f"{key}: its chunks don't cover its shape {size}")
    return Entry(key, path, _dtype(fields.get("properties"), key), size, tuple(chunks))


def _stored(data: dict[Any, Any], kinds: Mapping[str, Any]) -> dict[str, dict[Any, Chunk]]:
    """Returns where chunks are, by key and offsets; those of other values have no offsets."""
    found: dict[str, dict[Any, Chunk]] = {}
    for index, value in data.items():
        names, place = _fields(index, kinds, "MetadataIndex"), _fields(value, kinds, "_StorageInfo")
        key, file = names.get("fqn"), place.get("relative_path")
        if not isinstance(key, str) or not isinstance(file, str):
            raise CheckpointError("storage_data has an entry without a name")
        if not file or "/" in file or "\\" in file or file in (".", ".."):
            raise CheckpointError(f"{key}: file {file!r:.80} is not in the checkpoint's directory")
        offsets = names.get("offset")
        at = None if offsets is None else _ints(offsets, f"an offset of {key}")
        start, length = _ints(
            (place.get("offset"), place.get("length")), f"the place of {key} in {file}"
        )
        encoded = bool(place.get("transform_descriptors"))
        found.setdefault(key, {})[at] = Chunk((), (), file, start, length, encoded)
    return found


def _is(value: Any, kinds: Mapping[str, Any], name: str) -> bool:
    return any(
        type(value) is kind for full, kind in kinds.items() if full.rpartition(".")[2] == name
    )


def _fields(value: Any, kinds: Mapping[str, Any], name: str) -> dict[str, Any]:
    state = getattr(value, "state", None) if _is(value, kinds, name) else None
    if not isinstance(state, dict):
        raise CheckpointError(f"the metadata has a {type(value).__name__} where {name} must be")
    return state


def _dict(value: Any, name: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"the metadata has no {name}")
    return value


def _ints(value: Any, what: str) -> tuple[int, ...]:
    is_right = isinstance(value, tuple | list) and len(value) <= _MOST_DIMENSIONS
    if not is_right or not all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        raise CheckpointError(f"{what} is {_shown(value)}, which is not a list of sizes")
    return tuple(value)


def _shown(value: Any) -> str:
    """Returns a short text. A short pickle can hold lists of lists whose `repr` has gigabytes."""
    if isinstance(value, tuple | list):
        shown = [*map(_shown_item, value[:4]), *(["..."] if len(value) > 4 else [])]
        return f"[{', '.join(shown)}]"
    return _shown_item(value)


def _shown_item(value: Any) -> str:
    short = value is None or type(value) in (bool, float)
    is_shown = short or (type(value) is int and abs(value) < 1 << 64)
    return repr(value) if is_shown else f"a {type(value).__name__}"


def _dtype(properties: Any, key: str) -> torch.dtype:
    state = getattr(properties, "state", None)
    found: Callable[..., Any] | Any = state[0] if isinstance(state, tuple) and state else None
    if not isinstance(found, torch.dtype):
        raise CheckpointError(f"{key}: its type of numbers is missing")
    return found
