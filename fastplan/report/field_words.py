"""The fields of a request in words: `ranks per host: 8 -> 4` for `context.local_world_size`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastplan.cache.why_miss import Difference
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_bytes, format_count, format_percent, format_seconds

_Format = Callable[[Any], str]


def _bandwidth(value: float) -> str:
    """Formats TorchRec's bytes per millisecond."""
    return f"{value / 1e6:,.4g} GB/s" if value else "none"


def _bytes_exactly(value: int) -> str:
    return f"{value:,} B"


def _seconds(value: float) -> str:
    return format_seconds(value) if value else "none"


def _last_name(value: str) -> str:
    return value.rpartition(".")[2]


_TABLE = {
    "rows": "rows",
    "dim": "columns",
    "element_size": "bytes per element",
    "bytes": "size",
    "perf_inputs": "ids per step",
    "perf_outputs": "vectors per step",
    "storage_inputs": "ids per step that memory is reserved for",
    "storage_outputs": "vectors per step that memory is reserved for",
    "pooled": "pooled",
    "weighted": "weighted ids",
    "usage": "kind of storage",
    "output_element_size": "bytes per output element",
    "fwd_a2a": "bytes per element in the forward all-to-all",
    "bwd_a2a": "bytes per element in the backward all-to-all",
    "fwd_sr": "bytes per element in the reduce-scatter",
    "bwd_sr": "bytes per element in the all-gather of gradients",
    "min_partition": "smallest column-wise shard",
    "prefetch_passes": "prefetch passes",
    "optimizer_multiplier": "optimizer states per weight",
    "cache_ratio": "cache load factor",
    "expected_lookups": "expected lookups of the cache",
    "miss_rate": "miss rate of the cache",
    "kv_cache_bytes": "cache of the key-value store",
    "tower": "tower",
    "options": "allowed placements",
}
_SCOPES = {"world": "among all ranks", "group": "within a host", "across": "across hosts"}
_FIELDS: dict[str, tuple[str, _Format | None]] = {
    "ranks": ("ranks", None),
    "context.local_world_size": ("ranks per host", None),
    "context.group_size": ("ranks of a group of hosts", None),
    "context.torchrec": ("TorchRec", None),
    "context.replan": ("following a previous plan", None),
    "context.previous": ("the plan before", None),
    "context.optimize": ("optimizing", None),
    "context.custom": ("custom parts", None),
    "context.reservation.percentage": ("reserved share of memory", format_percent),
    "context.reservation.policy": ("policy of the reservation", _last_name),
    "cost.hbm_to_ddr_bw": ("bandwidth between device and host memory", _bandwidth),
    "cost.device_kind": ("memory of devices", None),
    "cost.pipeline": ("pipeline", None),
    "cost.bwd_compute_multiplier": ("backward compute, relative to forward", None),
    "search.timeout_seconds": ("time limit of the search", _seconds),
    "search.proposers": ("proposers", None),
}
_PREFIXES = {
    "context.optimize.": "optimizer: ",
    "context.replan.": "policy for following a plan: ",
    "context.reservation.": "reservation: ",
    "context.": "",
    "search.partitioner.": "partitioner: ",
    "search.": "search: ",
    "cost.": "cost model: ",
}
_RESERVATIONS = {"kjt_storage": "inputs", "dense_storage": "dense parameters"}
_RESERVATION = re.compile(r"context\.reservation\.(kjt_storage|dense_storage)(?:\.(hbm|ddr|ssd))?")
_BANDWIDTH = re.compile(r"cost\.bw_(world|group|across)_(\w+)")
_TABLE_FIELD = re.compile(r"tables\[(.*)\]\.(\w+)", re.DOTALL)
_A_TABLE = re.compile(r"tables\[(.*)\]", re.DOTALL)
_CAPACITY = re.compile(r"rank_(hbm|ddr|ssd)\[(\d+)\]")
# Fields that follow from others: naming the cause is enough.
_SIZES_OF_RANKS = re.compile(r"cost\.(perf|storage|layout)_(world|local_world|group)_size")
_CAUSES_OF_SIZES = ("ranks", "context.local_world_size", "context.group_size")
_PREVIOUS, _FOLLOWING = "context.previous", "context.replan"
_FOLLOWS = {
    "bytes": ("rows", "dim", "element_size"),
    "output_element_size": ("element_size",),
    "fwd_a2a": ("element_size", "output_element_size"),
    "bwd_a2a": ("element_size", "output_element_size"),
    "fwd_sr": ("element_size", "output_element_size"),
    "bwd_sr": ("element_size", "output_element_size"),
    "storage_inputs": ("perf_inputs",),
    "storage_outputs": ("perf_outputs",),
}


def field_words(change: Difference) -> str:
    """Returns a changed field of a request in words, on one line for any names.

    Example:
        `table sparse.t3: rows 50,000 -> 60,000` for `tables[sparse.t3].rows`
    """
    field = change.field
    if found := _TABLE_FIELD.fullmatch(field):
        return f"table {escape_name(found[1])}: {_table_change(found[2], change)}"
    if found := _A_TABLE.fullmatch(field):
        return f"table {escape_name(found[1])} is {'new' if change.old == 'missing' else 'missing'}"
    if field == "tables":
        return "tables are in another order"
    name, form = _named(field)
    return f"{name}: {_values(change, form)}"


def differences_in_words(changes: Sequence[Difference]) -> list[str]:
    """Returns changed fields in words: what follows from another change is left out, and tables
    with the same change share a line. Costs, which follow from the cluster, are last."""
    fields = {change.field for change in changes}
    tables: dict[str, list[tuple[str, Difference]]] = {}
    words: list[str] = []
    costs: list[str] = []
    for change in changes:
        found = _TABLE_FIELD.fullmatch(change.field)
        if found is None:
            if _SIZES_OF_RANKS.fullmatch(change.field) and fields.intersection(_CAUSES_OF_SIZES):
                continue
            if change.field == _PREVIOUS and _FOLLOWING in fields:
                continue
            target = costs if change.field.startswith("cost.") else words
            target.append(field_words(change))
        elif not any(
            f"tables[{found[1]}].{cause}" in fields for cause in _FOLLOWS.get(found[2], ())
        ):
            tables.setdefault(found[2], []).append((found[1], change))
    return [*words, *_of_tables(tables), *costs]


def _of_tables(tables: dict[str, list[tuple[str, Difference]]]) -> Iterator[str]:
    for field, changes in tables.items():
        if len(changes) == 1:
            yield field_words(changes[0][1])
            continue
        count = format_count(len(changes), "table")
        texts = {_table_change(field, change) for _, change in changes}
        yield f"{count}: {texts.pop() if len(texts) == 1 else f'other {_TABLE.get(field, field)}'}"


def _table_change(field: str, change: Difference) -> str:
    name = _TABLE.get(field, field.replace("_", " "))
    if field == "options":
        return f"other {name}"
    form: _Format | None = format_bytes if field in ("bytes", "kv_cache_bytes") else None
    return f"{name} {_values(change, form)}"


def _named(field: str) -> tuple[str, _Format | None]:
    """Returns the name of a field, and how its values are formatted."""
    if field in _FIELDS:
        return _FIELDS[field]
    if found := _BANDWIDTH.fullmatch(field):
        collective = found[2].replace("_", "-")
        return f"bandwidth of {collective} {_SCOPES[found[1]]}", _bandwidth
    if found := _RESERVATION.fullmatch(field):
        tier = "" if found[2] in (None, "hbm") else f" in {found[2].upper()}"
        return f"reservation for {_RESERVATIONS[found[1]]}{tier}", format_bytes
    if found := _CAPACITY.fullmatch(field):
        return f"{found[1].upper()} of rank {found[2]} for tables", format_bytes
    for prefix, words in _PREFIXES.items():
        if field.startswith(prefix):
            return words + escape_name(field.removeprefix(prefix)).replace("_", " "), None
    return escape_name(field).replace("_", " "), None


def _values(change: Difference, form: _Format | None) -> str:
    old, new = change.old, change.new
    if isinstance(old, dict | list) or isinstance(new, dict | list):
        # One of them is missing, or both are long.
        if old is None or new is None:
            return f"{'no' if old is None else 'yes'} -> {'no' if new is None else 'yes'}"
        return "others"
    texts = [_value(value, form) for value in (old, new)]
    if texts[0] == texts[1]:  # rounding hides the difference
        exactly = _bytes_exactly if form is format_bytes else None
        texts = [_value(value, exactly) for value in (old, new)]
    return " -> ".join(texts)


def _value(value: Any, form: _Format | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        try:
            return escape_name(form(value) if form is _last_name else value) or "none"
        except (TypeError, ValueError):
            return escape_name(value)
    if form is not None and form is not _last_name and isinstance(value, int | float):
        return form(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, int):
        return f"{value:,}"
    return json.dumps(value)
