"""What measured lookups and collectives do, in the terms of the hardware costs.

Where a record lacks a number that a time depends on, the number is derived if the record says how
its ids are drawn. Otherwise the record has no work, for a reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastplan.costs.fit import ExchangeTimes, LookupTimes
from fastplan.measure.records import CollectiveRecord, LookupRecord, TimedRecord
from fastplan.model.hardware_costs import (
    COLLECTIVES,
    FAMILY_OF_KERNEL,
    KERNEL_FAMILIES,
    LinkSpeeds,
)
from fastplan.spec import stock
from fastplan.spec.hardware import Hardware, HardwareError, for_job, link_speeds
from fastplan.spec.stock_rules import optimizer_multiplier

_SECTOR = 32  # bytes: the core rounds rows up to whole sectors too
_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_POWER_LAW = re.compile(r"power law alpha (\d+(?:\.\d+)?)")
_NETWORK = re.compile(r"(?:(\d+) x )?(\d+) Gb/s per (GPU|host)")
_OPTIMIZERS = {
    "rowwise_adagrad": "rowwise_adagrad",
    "row_wise_adagrad": "rowwise_adagrad",
    "sgd": "sgd",
    "adam": "adam",
    "adagrad": "other",
    "lars": "other",
}
_COLLECTIVE_NAMES = {
    **{name: name for name in COLLECTIVES},
    "all_to_allv": "all_to_all",
}
_BINS = 4000  # of the rows of a power law


class Unknown(NamedTuple):
    """Why a record can't be estimated."""

    reason: str


class LookupWork(NamedTuple):
    """One lookup of the core's `lookup_times`, and the passes that were timed."""

    family: int
    ids: float
    unique: float
    misses: float
    outputs: float
    row_bytes: float
    output_bytes: float
    states: float
    forward: bool
    backward: bool


class ExchangeWork(NamedTuple):
    """One collective of the core's `exchange_times`."""

    collective: int
    ranks: int
    domain_ranks: int
    bytes: float
    network: float | None  # bytes per ms of a rank's network card, if the record says so


def milliseconds(record: TimedRecord) -> float | Unknown:
    """Returns the measured time."""
    default = "ms" if isinstance(record, LookupRecord) else "us"
    unit = default if record.unit is None else record.unit
    factor = _MS.get(unit)
    return (
        Unknown(f"unit `{unit}` is not one of {', '.join(_MS)}")
        if factor is None
        else (record.value * factor)
    )


def element_size(dtype: str | None) -> int | None:
    """Returns the bytes of an element; None if the type is unknown."""
    name = (dtype or "fp32").replace("bfloat", "bf").replace("float", "fp")
    return stock.DTYPE_SIZES.get(name)


def optimizer_of(record: LookupRecord) -> str | Unknown:
    """Returns the optimizer as specs name it."""
    words = (record.optimizer or "").lower().replace("-", "_").removeprefix("exact_")
    for start, name in _OPTIMIZERS.items():
        if words.startswith(start):
            return name
    return Unknown("`optimizer` is missing" if not words else "`optimizer` is unknown")


def lookup_work(record: LookupRecord) -> LookupWork | Unknown:
    """Returns what a lookup does."""
    family = FAMILY_OF_KERNEL.get(record.kernel or "")
    if family is None:
        return Unknown(f"hardware costs have no kernel `{record.kernel}`")
    tables, dim = record.tables, record.dim
    size, output_size = element_size(record.dtype), element_size(record.output_dtype)
    if tables is None or dim is None or size is None or output_size is None:
        return Unknown("`tables`, `dim` or a known `dtype` is missing")
    bags = None if record.bags_per_table is None else tables * record.bags_per_table
    ids = record.ids_total
    if ids is None and bags is not None and record.pooling is not None:
        ids = bags * record.pooling
    if ids is None or (record.pooled and bags is None):
        return Unknown("`ids_total` or `bags_per_table` is missing")
    forward, backward = record.kind != "lookup_backward", record.kind != "lookup_forward"
    unique = distinct_ids(record, ids)
    if unique is None:
        if backward or family != "hbm":
            return Unknown("`ids_unique` is missing, and the distribution of ids is unknown")
        unique = ids  # which a forward pass in HBM does not depend on
    misses = 0.0
    if family == "caching" and forward:
        found = cache_misses(record, ids, unique)
        if found is None:
            return Unknown("`misses_per_batch_expected` is missing, and so is the cache's size")
        misses = found
    states = 0.0
    if backward:
        optimizer = optimizer_of(record)
        if isinstance(optimizer, Unknown):
            return optimizer
        states = optimizer_multiplier(optimizer, int(dim))
    return LookupWork(
        family=KERNEL_FAMILIES.index(family),
        ids=ids,
        unique=min(unique, ids),
        misses=min(misses, unique),
        outputs=bags if record.pooled and bags is not None else ids,
        row_bytes=_whole_sectors(dim * size),
        output_bytes=_whole_sectors(dim * output_size),
        states=states,
        forward=forward,
        backward=backward,
    )


def _whole_sectors(size: float) -> float:
    return math.ceil(size / _SECTOR) * _SECTOR


def distinct_ids(record: LookupRecord, ids: float) -> float | None:
    """Returns the distinct ids: measured, or expected for ids that are drawn as the record says."""
    if record.ids_unique is not None:
        return record.ids_unique
    return _expected(record, ids, cached_rows=0.0)


def cache_misses(record: LookupRecord, ids: float, unique: float) -> float | None:
    """Returns the distinct ids that the cache does not hold.

    If the record does not say, the cache holds the most frequent rows.
    """
    if record.misses_per_batch_expected is not None:
        return record.misses_per_batch_expected
    tables, rows = record.tables, record.rows_per_table
    if tables is None or rows is None:
        return None
    cached = record.cache_rows
    if cached is None and record.cache_load_factor is not None:
        cached = record.cache_load_factor * tables * rows
    if cached is None:
        return None
    every, missed = _expected(record, ids, 0.0), _expected(record, ids, cached / tables)
    if every is None or missed is None:
        return unique * max(0.0, 1 - cached / (tables * rows))
    return unique * missed / every if every else 0.0


def _expected(record: LookupRecord, ids: float, cached_rows: float) -> float | None:
    """Returns the expected number of distinct ids beyond the most frequent rows of each table."""
    tables, rows = record.tables, record.rows_per_table
    words = (record.id_distribution or "").lower()
    if tables is None or rows is None:
        return None
    drawn = ids / tables
    left = max(0.0, rows - cached_rows)
    if words.startswith("unique"):
        return ids * left / rows
    if words.startswith("uniform"):
        return tables * left * -math.expm1(-drawn / rows)
    found = _POWER_LAW.match(words)
    if found is None:
        return None
    # Rows k = 1, 2, ... are drawn with probability k^-alpha / sum. Bins of rows share one.
    alpha = float(found[1])
    edges = np.unique(np.concatenate([np.arange(1, 101), np.geomspace(100, rows + 1, _BINS)]))
    middle = np.sqrt(edges[:-1] * edges[1:])
    middle[edges[:-1] < 100] = edges[:-1][edges[:-1] < 100]
    counts = np.diff(edges)
    share = middle**-alpha
    share /= (share * counts).sum()
    kept = np.clip((edges[1:] - 1 - cached_rows) / counts, 0, 1)
    return float(tables * (kept * counts * -np.expm1(-drawn * share)).sum())


def exchange_work(record: CollectiveRecord, hardware: Hardware) -> ExchangeWork | Unknown:
    """Returns what a collective does on this hardware."""
    name = _COLLECTIVE_NAMES.get((record.collective or "").lower().replace("-", "_"))
    if name is None:
        return Unknown(f"hardware costs have no collective `{record.collective}`")
    if record.ranks is None or record.message_bytes is None:
        return Unknown("`ranks` or `message_bytes` is missing")
    ranks = record.ranks
    local = record.gpus_per_host or min(ranks, hardware.ranks_per_host)
    hosts = record.hosts or math.ceil(ranks / local)
    domain = max(ranks, local)
    if hosts > 1:
        try:
            domain = local * (for_job(hardware, ranks, local).pod_size or 1)
        except HardwareError as error:
            return Unknown(str(error))
        if record.network and domain >= ranks:
            domain = local  # the record says that hosts used the network
    return ExchangeWork(
        collective=COLLECTIVES.index(name),
        ranks=ranks,
        domain_ranks=domain,
        bytes=record.message_bytes,
        network=_network_speed(record.network, local) if domain < ranks else None,
    )


def _network_speed(words: str | None, ranks_per_host: int) -> float | None:
    """Returns the bytes per ms of a rank's network card, if the text has them."""
    found = _NETWORK.search(words or "")
    if found is None:
        return None
    gigabits = int(found[1] or 1) * int(found[2])
    share = ranks_per_host if found[3] == "host" else 1
    return gigabits / 8 * 1e6 / share if 0 < gigabits < 1e6 else None


def lookup_times(
    works: Sequence[LookupWork], ms: Sequence[float], names: Sequence[str], links: LinkSpeeds
) -> LookupTimes:
    """Returns lookups on the same hardware as the fit takes them.

    Args:
        works: What each does.
        ms: How long each took.
        names: The configuration of each.
        links: Bandwidths of the device.
    """
    fields = ("ids", "unique", "misses", "outputs", "row_bytes", "output_bytes", "states")
    columns = {name: np.array([getattr(w, name) for w in works], np.float64) for name in fields}
    return LookupTimes(
        links=links,
        columns={"family": np.array([work.family for work in works], np.uint8), **columns},
        forward=np.array([work.forward for work in works], np.float64),
        backward=np.array([work.backward for work in works], np.float64),
        ms=np.array(ms, np.float64),
        configurations=tuple(names),
    )


def exchange_times(
    works: Sequence[ExchangeWork], ms: Sequence[float], names: Sequence[str], hardware: Hardware
) -> list[ExchangeTimes]:
    """Returns collectives on the same hardware as the fit takes them, by network card.

    The arguments are those of `lookup_times`.
    """
    found = []
    for network in dict.fromkeys(work.network for work in works):
        own = [i for i, work in enumerate(works) if work.network == network]
        found.append(
            ExchangeTimes(
                links=link_speeds(hardware, network),
                columns={
                    "collective": np.array([works[i].collective for i in own], np.uint8),
                    "ranks": np.array([works[i].ranks for i in own], np.int64),
                    "domain_ranks": np.array([works[i].domain_ranks for i in own], np.int64),
                    "bytes": np.array([works[i].bytes for i in own], np.float64),
                },
                ms=np.array([ms[i] for i in own], np.float64),
                configurations=tuple(names[i] for i in own),
            )
        )
    return found
