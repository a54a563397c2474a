"""Where ids come from: Parquet and npz files, and functions that yield KeyedJaggedTensors.

Files are read in units, a row group of a Parquet file or a whole npz file, so that a profile can go
on after the last finished one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.measure.inputs import feature_names
from fastplan.model.references import BadReference, find, is_reference, others_code
from fastplan.model.units import shown
from fastplan.spec.model import ModelSpec

Bags = tuple[NDArray[Any], NDArray[Any]]  # ids, and how many each sample has
Batch = Mapping[str, Bags]  # by table
Features = Mapping[str, tuple[str, ...]]  # by table

LENGTHS = "_lengths"  # the end of the name of an npz column with the lengths of bags
_BATCH = 1 << 16  # rows of a Parquet file that are in memory at a time
_MOST_BYTES = 1 << 34  # of an npz column, when it is unpacked


class ProfileError(Exception):
    """Ids can't be read or profiled. The message names the file or the table."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a file that is read at once.

    Attributes:
        file: The file.
        group: The row group of a Parquet file; 0 for others.
        size: The size of the file in bytes: another size is another file.
    """

    file: str
    group: int
    size: int


def features_of(spec: ModelSpec) -> dict[str, tuple[str, ...]]:
    """Returns the features of each table, by name. Tables of the same name share their ids."""
    found: dict[str, tuple[str, ...]] = {}
    for table in spec.tables:
        found[table.name] = tuple(
            dict.fromkeys((*found.get(table.name, ()), *feature_names(table)))
        )
    return found


def file_units(files: Sequence[str]) -> list[Unit]:
    """Returns the units of files, in order.

    Raises:
        ProfileError: A file can't be read, or is neither Parquet nor npz.
    """
    found = []
    for file in files:
        kind = os.path.splitext(file)[1].lower()
        if kind not in (".parquet", ".npz"):
            raise ProfileError(f"{file}: is neither a .parquet nor an .npz file")
        try:
            size = os.stat(file).st_size
            groups = _open_parquet(file).num_row_groups if kind == ".parquet" else 1
        except (OSError, ValueError) as error:
            raise ProfileError(f"{file}: can't be read: {_line(error)}") from error
        found += [Unit(file, group, size) for group in range(groups)]
    return found


def read_unit(unit: Unit, features: Features) -> Iterator[Batch]:
    """Yields the batches of a unit.

    Raises:
        ProfileError: The file has no column of a table, or a column that has no ids.
    """
    try:
        if unit.file.lower().endswith(".npz"):
            yield from _read_npz(unit.file, features)
        else:
            yield from _read_parquet(unit, features)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ProfileError(f"{unit.file}: can't be read: {_line(error)}") from error


def function_batches(
    name: str, features: Features, part: tuple[int, int] = (0, 1)
) -> Iterator[Batch]:
    """Yields the batches of a user's function, as `fastplan measure --dataset` has it.

    Args:
        name: package.module:function, called with `part`. It yields KeyedJaggedTensors, or
            mappings with one for each module.
        features: The features of each table.
        part: The number of this worker, and the number of workers.

    Raises:
        ProfileError: There is no such function, or it yields something else.
    """
    if not is_reference(name):
        raise ProfileError(f"the dataset must be package.module:function, not {shown(name)}")
    try:
        function: Callable[..., Any] = find(name)
    except BadReference as error:
        raise ProfileError(f"the dataset {name}: {error}") from error
    if not callable(function):
        raise ProfileError(f"the dataset {name} is a {type(function).__name__}, not a function")
    with others_code():
        batches = iter(function(*part))
    while True:
        with others_code():
            batch = next(batches, None)
        if batch is None:
            return
        tensors = [*batch.values()] if isinstance(batch, dict) else [batch]
        columns: dict[str, Bags] = {}
        for tensor in tensors:
            columns |= _of_tensor(name, tensor)
        yield _by_table(name, columns.keys(), columns.__getitem__, features)


def _of_tensor(name: str, tensor: Any) -> dict[str, Bags]:
    try:
        keys, lengths = tensor.keys(), tensor.lengths().cpu().numpy()
        values = tensor.values().cpu().numpy()
    except (AttributeError, TypeError) as error:
        problem = f"the dataset {name} yields {type(tensor).__name__}"
        raise ProfileError(f"{problem}, not KeyedJaggedTensors") from error
    varies = getattr(tensor, "variable_stride_per_key", lambda: False)()
    if len(keys) == 0 or varies or len(lengths) % len(keys):
        raise ProfileError(f"the dataset {name} yields features with batches of different sizes")
    per_key = lengths.reshape(len(keys), -1)
    ends = np.cumsum(per_key.sum(axis=1))[:-1]
    parts = np.split(values, ends)
    return {key: (parts[i], per_key[i, :]) for i, key in enumerate(keys)}


def _by_table(
    source: str,
    known: Any,
    bags_of: Callable[[str], Bags],
    features: Features,
) -> dict[str, Bags]:
    """Returns the ids of each table that the source has, with those of all its features."""
    found = {}
    for table, names in features.items():
        there = [name for name in names if name in known]
        if not there:
            continue
        bags = [bags_of(name) for name in there]
        sizes = {len(lengths) for _, lengths in bags}
        if len(sizes) > 1:
            problem = f"the features of table {shown(table)} have batches of different sizes"
            raise ProfileError(f"{source}: {problem}")
        ids = np.concatenate([ids for ids, _ in bags]) if len(bags) > 1 else bags[0][0]
        lengths: NDArray[Any] = np.stack([lengths for _, lengths in bags]).sum(axis=0)
        found[table] = (ids, lengths)
    if not found:
        wanted = ", ".join([name for names in features.values() for name in names][:5])
        has = ", ".join(shown(name) for name in [*known][:5])
        raise ProfileError(f"{source}: has no column of a table ({wanted}, ...), but {has}")
    return found


def _read_npz(file: str, features: Features) -> Iterator[Batch]:
    """Yields a batch per table, so that one table's column is in memory at a time."""
    try:
        archive = np.load(file, allow_pickle=False)
    except Exception as error:  # zipfile has others for damaged files than BadZipFile
        raise ValueError(_line(error)) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("it has one array, not columns by name")
    with archive:
        assert archive.zip is not None
        sizes = {entry.filename: entry.file_size for entry in archive.zip.infolist()}
        names = [name for name in archive.files if not name.endswith(LENGTHS)]

        def array(name: str) -> NDArray[Any]:
            if sizes.get(f"{name}.npy", 0) > _MOST_BYTES:
                problem = f"column {shown(name)} is larger than {_MOST_BYTES >> 30} GiB"
                raise ProfileError(f"{file}: {problem}; split the file")
            try:
                found: NDArray[Any] = archive[name]
            except Exception as error:  # likewise, and numpy for any shape in the file
                raise ValueError(_line(error)) from error
            return found

        def bags(name: str) -> Bags:
            ids = array(name)
            if ids.ndim == 2:  # bags of one size
                return ids.reshape(-1), np.full(len(ids), ids.shape[1])
            if f"{name}{LENGTHS}" in archive.files:
                return ids, array(f"{name}{LENGTHS}")
            return ids, np.ones(len(ids), np.int64) if ids.ndim else ids

        for table, own in features.items():
            if any(name in names for name in own):
                yield _by_table(file, names, bags, {table: own})
        if not any(name in names for own in features.values() for name in own):
            _by_table(file, names, bags, features)  # says what it has instead


def _open_parquet(file: str) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise ProfileError(
            f"{file}: reading Parquet needs pyarrow: pip install 'fastplan[parquet]'"
        ) from error
    try:
        return parquet.ParquetFile(file)
    except ArrowException as error:
        raise ValueError(str(error)) from error


def _read_parquet(unit: Unit, features: Features) -> Iterator[Batch]:
    from pyarrow import ArrowException

    file = _open_parquet(unit.file)
    known = set(file.schema_arrow.names)
    wanted = [name for names in features.values() for name in names if name in known]
    if not wanted:
        _by_table(unit.file, file.schema_arrow.names, dict[str, Bags]().__getitem__, features)
    try:
        for batch in file.iter_batches(_BATCH, row_groups=[unit.group], columns=wanted):
            columns = {name: _of_arrow(unit.file, name, batch.column(name)) for name in wanted}
            yield _by_table(unit.file, columns.keys(), columns.__getitem__, features)
    except ArrowException as error:
        raise ValueError(str(error)) from error


def _of_arrow(file: str, name: str, column: Any) -> Bags:
    """Returns the ids of a column of numbers or of lists; nulls are bags without ids."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    kind = column.type
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    if not kinds.is_integer(kind.value_type if is_list else kind):
        raise ProfileError(f"{file}: column {shown(name)} has {kind}, not ids")
    if not is_list:
        lengths = pc.is_valid(column).to_numpy(zero_copy_only=False).astype(np.int64)
        return column.drop_null().to_numpy(zero_copy_only=False), lengths
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ids = pc.list_flatten(column)
    if ids.null_count:
        raise ProfileError(f"{file}: column {shown(name)} has nulls inside of lists")
    return ids.to_numpy(zero_copy_only=False), lengths.astype(np.int64)


def _line(error: BaseException) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
