"""Generates batches of ids: lengths by the spec's pooling factors, ids uniform or with Zipf skew.

The same seed, rank and number give the same batch for every plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.measure.settings import MeasureError, Settings
from fastplan.spec.model import ModelSpec, ModuleSpec, TableSpec

Ints = NDArray[np.int64]

# Spreads ids over the rows, as hashing does. Otherwise the most frequent ones would be neighbours,
# and all in the first shard of a row-wise table.
_STRIDE = 0x9E3779B1


class Feature(NamedTuple):
    """A sparse feature: its mean number of ids, and the rows of its smallest table."""

    name: str
    mean: float
    rows: int


class ModuleInputs(NamedTuple):
    """The inputs of a module."""

    path: str
    features: tuple[Feature, ...]
    weighted: bool


class Batch(NamedTuple):
    """One batch of one module, feature by feature, with one length for each sample."""

    keys: tuple[str, ...]
    lengths: Ints
    ids: Ints
    weights: NDArray[np.float32] | None


def feature_names(table: TableSpec) -> tuple[str, ...]:
    """Returns the table's features, or generated names if the spec has none."""
    if table.features:
        return table.features
    if len(table.pooling) == 1:
        return (table.name,)
    return tuple(f"{table.name}:{i}" for i in range(len(table.pooling)))


def module_inputs(spec: ModelSpec) -> tuple[ModuleInputs, ...]:
    """Returns the inputs of each module of a spec, in order.

    Raises:
        MeasureError: The batches can't be generated.
    """
    modules: dict[str, dict[str, Feature]] = {}
    for table in spec.tables:
        _check_batch(table, spec.batch_size)
        names = feature_names(table)
        means = table.pooling if len(table.pooling) > 1 else table.pooling * len(names)
        own = modules.setdefault(table.module, {})
        for name, mean in zip(names, means, strict=True):
            known = own.get(name, Feature(name, mean, table.rows))
            own[name] = known._replace(rows=min(known.rows, table.rows))
    return tuple(
        ModuleInputs(path, tuple(features.values()), is_weighted(spec, path))
        for path, features in modules.items()
    )


def is_weighted(spec: ModelSpec, path: str) -> bool:
    """Returns whether the ids of a module have weights.

    Raises:
        MeasureError: Its tables differ.
    """
    module = spec.modules.get(path) or ModuleSpec()
    found = {
        module.weighted if table.weighted is None else table.weighted
        for table in spec.tables
        if table.module == path
    }
    if len(found) > 1:
        raise MeasureError(
            f"module {path}: weighted and other tables can't be in one module; move the weighted "
            "ones to a separate module"
        )
    return found.pop()


def _check_batch(table: TableSpec, batch_size: int) -> None:
    if any(size != batch_size for size in table.batch_sizes or ()):
        raise MeasureError(
            f"table {table.name}: batches of a different size than the model's can't be generated; "
            "provide them with --dataset"
        )
    if any(count != 1 for count in table.poolings or ()):
        raise MeasureError(
            f"table {table.name}: several poolings of a sample can't be generated; "
            "provide them with --dataset"
        )


def generate_batch(inputs: ModuleInputs, batch_size: int, settings: Settings, *key: int) -> Batch:
    """Generates a batch. `key` has numbers that identify it, such as rank and position."""
    random = np.random.default_rng([settings.seed, *key])
    lengths, ids = [], []
    for feature in inputs.features:
        own = _lengths(random, feature.mean, batch_size, settings.lengths)
        lengths.append(own)
        ids.append(_ids(random, feature.rows, int(own.sum()), settings.zipf))
    values = np.concatenate(ids)
    weights = random.random(len(values), np.float32) if inputs.weighted else None
    keys = tuple(feature.name for feature in inputs.features)
    return Batch(keys, np.concatenate(lengths), values, weights)


def _lengths(random: np.random.Generator, mean: float, samples: int, kind: str) -> Ints:
    if kind == "poisson":
        return random.poisson(mean, samples).astype(np.int64)
    # Rounded up with the probability that gives the mean.
    return np.floor(mean + random.random(samples)).astype(np.int64)


def _ids(random: np.random.Generator, rows: int, count: int, skew: float) -> Ints:
    if skew == 0:
        return random.integers(0, rows, count)
    uniform = random.random(count)
    if skew == 1:
        place = (rows + 1.0) ** uniform
    else:
        # The inverse of the power law's distribution from 1 to rows + 1.
        power = 1 - skew
        place = (((rows + 1.0) ** power - 1) * uniform + 1) ** (1 / power)
    popularity = np.clip(place.astype(np.int64) - 1, 0, rows - 1)
    return (popularity * _stride(rows)) % rows


def _stride(rows: int) -> int:
    """Returns a step that visits every row before it returns to the first."""
    stride = _STRIDE % min(rows, 2**62 // rows) or 1  # times a row it must fit 64 bits
    while np.gcd(stride, rows) != 1:
        stride += 1
    return stride
